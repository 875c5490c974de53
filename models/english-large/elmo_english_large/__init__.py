"""The files of a model, found by its name: `elmo.load("english-large")`."""
