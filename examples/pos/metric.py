"""The share of words with the correct tag, in per cent."""

from collections.abc import Sequence


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    pairs = [pair for a, b in zip(gold, predicted, strict=True) for pair in zip(a, b, strict=True)]
    return {"accuracy": 100 * sum(a == b for a, b in pairs) / len(pairs)}
