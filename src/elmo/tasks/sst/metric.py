"""Accuracy over whole sentences: the roots of the trees."""

from elmo.tasks.accuracy import accuracy as score

__all__ = ["score"]
