"""F1, by hand."""

import pytest

from elmo.tasks.f1 import f1_score


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    assert f1_score(2, 5, 4) == pytest.approx((100 * 4 / 9, 40.0, 50.0))
    assert f1_score(3, 3, 3) == (100.0, 100.0, 100.0)


def test_where_there_is_nothing_to_divide_by() -> None:
    assert f1_score(0, 0, 4) == f1_score(0, 5, 0) == f1_score(0, 0, 0) == (0.0, 0.0, 0.0)
