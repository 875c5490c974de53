"""Accuracy, by hand."""

import pytest

from elmo.tasks.accuracy import accuracy


def test_accuracy_is_the_share_of_equal_answers_in_per_cent() -> None:
    assert accuracy(["0", "4", "2", "2"], ["0", "3", "2", "2"]) == {"accuracy": 75.0}
    assert accuracy(["a", "b", "c"], ["a", "a", "a"]) == {"accuracy": pytest.approx(100 / 3)}
    assert accuracy([], []) == {"accuracy": 0.0}


def test_as_many_answers_as_gold_ones_are_needed() -> None:
    with pytest.raises(ValueError, match="zip"):
        accuracy(["a", "b"], ["a"])
