"""USING A MODEL: text in, arrays out, in memory or to a file."""
