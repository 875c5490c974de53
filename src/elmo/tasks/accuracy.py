"""Accuracy: how many answers are right, in per cent. The metric of tasks with one label an example."""

from collections.abc import Sequence


def accuracy(gold: Sequence[str], found: Sequence[str]) -> dict[str, float]:
    """The score of a task, as `Task.score` wants it."""
    right = sum(wanted == given for wanted, given in zip(gold, found, strict=True))
    return {"accuracy": 100 * right / len(gold) if gold else 0.0}
