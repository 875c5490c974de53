"""USING A MODEL: text in; arrays, vectors and probabilities out, in memory or to a file."""
