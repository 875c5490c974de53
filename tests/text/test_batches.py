"""Windows and batches: nothing lost, nothing twice, in the promised order and size."""

from itertools import chain, count, islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.text.batches import by_length, consecutive, windows

SENTENCES = st.lists(st.integers(0, 30).map(lambda length: ["word"] * length), max_size=40)


def numbered(sentences: list[list[str]]) -> list[list[str]]:
    return [[f"{row}.{column}" for column in range(len(sentence))] for row, sentence in enumerate(sentences)]


@given(SENTENCES, st.integers(1, 200))
@settings(deadline=None)
def test_windows_are_the_sentences_in_order_and_as_small_as_the_bound_allows(
    sentences: list[list[str]], tokens: int
) -> None:
    sentences = numbered(sentences)
    found = list(windows(iter(sentences), tokens))
    assert list(chain.from_iterable(found)) == sentences
    assert all(found)
    sizes = [[max(len(sentence), 1) for sentence in window] for window in found]  # a blank line takes room too
    assert all(sum(size) >= tokens for size in sizes[:-1])
    assert all(sum(size[:-1]) < tokens for size in sizes)


def test_windows_of_an_endless_stream_come_as_they_are_ready() -> None:
    stream = ([str(number)] for number in count())
    first = islice(windows(stream, 2), 2)
    assert list(first) == [[["0"], ["1"]], [["2"], ["3"]]]
    assert next(stream) == ["4"]  # nothing is read ahead


@given(st.lists(st.integers()), st.integers(1, 12))
@settings(deadline=None)
def test_consecutive_is_slicing(items: list[int], size: int) -> None:
    expected = [items[start : start + size] for start in range(0, len(items), size)]
    assert list(consecutive(iter(items), size)) == expected


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(1, 200))
@settings(deadline=None)
def test_batches_by_length(lengths: list[int], budget: int) -> None:
    batches = by_length(lengths, budget)
    with_tokens = [row for row, length in enumerate(lengths) if length]
    assert sorted(chain.from_iterable(batches)) == with_tokens
    in_order = [lengths[row] for row in chain.from_iterable(batches)]
    assert in_order == sorted((lengths[row] for row in with_tokens), reverse=True)
    assert all(batches)
    for batch in batches:
        assert sum(lengths[row] for row in batch) <= budget or len(batch) == 1
    for batch, following in pairwise(batches):
        assert sum(lengths[row] for row in batch) + lengths[following[0]] > budget  # no batch ends too early


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([3, 9, 5, 5], 10, [[1], [2, 3], [0]]),
        ([3, 30, 5, 4], 10, [[1], [2, 3], [0]]),  # one longer than the budget
        ([4, 4, 4], 12, [[0, 1, 2]]),
        ([4, 4, 4], 11, [[0, 1], [2]]),
        ([4, 4], 1, [[0], [1]]),
        ([0, 3, 0, 4], 10, [[3, 1]]),  # without tokens, in no batch
        ([0, 0], 10, []),
        ([], 10, []),
    ],
)
def test_batches_by_hand(lengths: list[int], budget: int, expected: list[list[int]]) -> None:
    assert by_length(lengths, budget) == expected
