"""Accuracy: the share of correct answers, in per cent. The metric of tasks with one label per example."""

from collections.abc import Sequence


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Compute the accuracy, in the form that `Task.score` returns."""
    correct = sum(wanted == given for wanted, given in zip(gold, predicted, strict=True))
    return {"accuracy": 100 * correct / len(gold) if gold else 0.0}
