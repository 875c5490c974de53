"""Accuracy over sentences, which are the roots of the trees."""

from elmo.tasks.accuracy import accuracy as score

__all__ = ["score"]
