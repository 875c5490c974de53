"""The best score so far, and when patience ends."""

import pytest

from elmo.training.best import Best


@pytest.mark.parametrize("lower", [True, False])
def test_the_first_of_equal_scores_is_the_best(lower: bool) -> None:
    best, found = Best(), []
    scores = [3.0, 1.0, 1.0, 2.0, 4.0, 4.0]
    for step, score in enumerate(scores):
        found.append(best.count(score, step, lower_is_better=lower))
    wanted = min(scores) if lower else max(scores)
    assert (best.best, best.best_step) == (wanted, scores.index(wanted))
    assert found == ([True, True, False, False, False, False] if lower else [True, False, False, False, True, False])
    assert best.worse == len(scores) - 1 - scores.index(wanted)


def test_patience_counts_evaluations_in_a_row() -> None:
    best = Best()
    exhausted = []
    for step, score in enumerate([1.0, 0.5, 2.0, 1.5, 2.0, 1.0]):
        best.count(score, step)
        exhausted.append(best.exhausted(2))
    assert exhausted == [False, False, False, False, True, True]
    assert not best.exhausted(None)
