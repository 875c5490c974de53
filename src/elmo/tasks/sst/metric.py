"""Accuracy: how many sentences have the label that was found for them."""

from collections.abc import Sequence


def score(gold: Sequence[str], found: Sequence[str]) -> dict[str, float]:
    """Accuracy in per cent."""
    right = sum(wanted == given for wanted, given in zip(gold, found, strict=True))
    return {"accuracy": 100 * right / len(gold) if gold else 0.0}
