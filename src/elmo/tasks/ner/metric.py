"""Span F1 as conlleval counts it: an entity is right if its two ends and its type are."""

from collections.abc import Sequence

from elmo.tasks.ner.data import Span


def score(gold: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]]) -> dict[str, float]:
    """F1, precision and recall in per cent over all types, then F1 of each type."""
    counted = {kind: _counts(gold, found, kind) for kind in sorted({span.type for spans in gold for span in spans})}
    f1, precision, recall = _f1(*_counts(gold, found, None))
    each = {f"f1_{kind}": _f1(*counts)[0] for kind, counts in counted.items()}
    return {"f1": f1, "precision": precision, "recall": recall, **each}


def _counts(gold: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]], kind: str | None) -> tuple[int, int, int]:
    """How many are right, how many were found, and how many there are."""
    right = n_found = n_gold = 0
    for wanted, given in zip(gold, found, strict=True):
        a = {span for span in wanted if kind in (None, span.type)}
        b = {span for span in given if kind in (None, span.type)}
        right, n_found, n_gold = right + len(a & b), n_found + len(b), n_gold + len(a)
    return right, n_found, n_gold


def _f1(right: int, found: int, gold: int) -> tuple[float, float, float]:
    precision, recall = (100 * right / count if count else 0.0 for count in (found, gold))
    return (2 * precision * recall / (precision + recall) if right else 0.0), precision, recall
