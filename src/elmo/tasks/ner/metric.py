"""Span F1 as conlleval computes it: an entity is correct if its start, its end and its type are."""

from collections.abc import Sequence

from elmo.tasks.ner.data import Span


def score(gold: Sequence[Sequence[Span]], predicted: Sequence[Sequence[Span]]) -> dict[str, float]:
    """Return F1, precision and recall over all types, then F1 of each type, in per cent."""
    counted = {kind: _counts(gold, predicted, kind) for kind in sorted({span.type for spans in gold for span in spans})}
    f1, precision, recall = _f1(*_counts(gold, predicted, None))
    each = {f"f1_{kind}": _f1(*counts)[0] for kind, counts in counted.items()}
    return {"f1": f1, "precision": precision, "recall": recall, **each}


def _counts(
    gold: Sequence[Sequence[Span]], predicted: Sequence[Sequence[Span]], kind: str | None
) -> tuple[int, int, int]:
    """Count the correct, the predicted and the gold entities of a type, or of all."""
    correct = n_predicted = n_gold = 0
    for gold_spans, predicted_spans in zip(gold, predicted, strict=True):
        a = {span for span in gold_spans if kind in (None, span.type)}
        b = {span for span in predicted_spans if kind in (None, span.type)}
        correct, n_predicted, n_gold = correct + len(a & b), n_predicted + len(b), n_gold + len(a)
    return correct, n_predicted, n_gold


def _f1(correct: int, predicted: int, gold: int) -> tuple[float, float, float]:
    precision, recall = (100 * correct / count if count else 0.0 for count in (predicted, gold))
    return (2 * precision * recall / (precision + recall) if correct else 0.0), precision, recall
