"""Accuracy over pairs."""

from elmo.tasks.accuracy import accuracy as score

__all__ = ["score"]
