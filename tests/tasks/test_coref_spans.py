"""Spans: the grid of a document, pruning against a literal search for crossing spans, groups of sentences."""

import numpy as np
import pytest

from elmo.tasks.coref import spans


def crosses(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Lee et al., section 5: START(i) < START(j) ≤ END(i) < END(j), or the other way round; ends included."""
    return a[0] < b[0] <= a[1] < b[1] or b[0] < a[0] <= b[1] < a[1]


def literally(scores: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Try every span, from the highest score on, against all that are kept."""
    ranked = sorted(
        ((t, t + w) for t, row in enumerate(scores) for w, score in enumerate(row) if score > -np.inf),
        key=lambda span: -scores[span[0], span[1] - span[0]],
    )
    kept: list[tuple[int, int]] = []
    for span in ranked:
        if len(kept) < count and not any(crosses(span, other) for other in kept):
            kept.append(span)
    return sorted(kept)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("width", [1, 2, 7])
def test_pruning_is_a_literal_search(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 14, size=4).tolist()
    scores = rng.normal(size=(sum(lengths), width)).astype(np.float32) + np.arange(width)  # long spans first
    scores[~spans.within_sentences(lengths, width)] = -np.inf
    for count in (1, 5, sum(lengths), 99_999):
        places = spans.prune(scores, count)
        assert [(p // width, p // width + p % width) for p in places.tolist()] == literally(scores, count)


def test_spans_stay_inside_their_sentence() -> None:
    allowed = spans.within_sentences([3, 1, 2], 3).tolist()
    yes, no = True, False
    assert allowed == [[yes, yes, yes], [yes, yes, no], [yes, no, no], [yes, no, no], [yes, yes, no], [yes, no, no]]


def test_nan_is_kept_last_but_kept() -> None:
    scores = np.array([[np.nan, -np.inf], [1.0, -np.inf]], dtype=np.float32)
    assert spans.prune(scores, 1).tolist() == [2] and spans.prune(scores, 5).tolist() == [0, 2]


def test_groups_bound_the_padded_size() -> None:
    lengths = np.random.default_rng(1).integers(1, 60, size=300).tolist()
    divided = spans.groups(lengths, 200)
    assert sorted(row for group in divided for row in group) == list(range(300))
    assert all(len(group) * max(lengths[row] for row in group) <= 200 for group in divided)
    assert spans.groups([500, 2, 3], 100) == [[0], [2, 1]]
