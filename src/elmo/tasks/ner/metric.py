"""Span F1 as conlleval computes it: an entity is correct if its start, its end and its type are."""

from collections.abc import Sequence

from elmo.tasks.f1 import f1_score
from elmo.tasks.ner.data import Span


def score(gold: Sequence[Sequence[Span]], predicted: Sequence[Sequence[Span]]) -> dict[str, float]:
    """Return F1, precision and recall over all types, then F1 of each type, in per cent."""
    counted = {kind: _counts(gold, predicted, kind) for kind in sorted({span.type for spans in gold for span in spans})}
    f1, precision, recall = f1_score(*_counts(gold, predicted, None))
    each = {f"f1_{kind}": f1_score(*counts)[0] for kind, counts in counted.items()}
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
