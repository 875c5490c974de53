"""The cache against an `OrderedDict` that does the same in the obvious way."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmo.embed.words import WordCache

MIXED = 2654435761  # spreads the words' numbers


def vector_of(word: str) -> list[float]:
    number = int(word)
    return [float(number), float(number * number % 1009), float(number * MIXED % 65521)]


class Encoder:
    """Counts what it is asked for, and gives each word a vector of its own."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, words: Sequence[str]) -> Tensor:
        self.asked += words
        return torch.tensor([vector_of(word) for word in words]).view(len(words), 3)


def words(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last)]


def assert_right(cache: WordCache, asked: Sequence[str]) -> None:
    assert cache.vectors(asked).tolist() == [vector_of(word) for word in asked]


@settings(deadline=None, max_examples=300)
@given(
    st.integers(0, 8),
    st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=9, unique=True), max_size=25),
)
def test_the_words_unused_for_longest_make_room(capacity: int, calls: list[list[int]]) -> None:
    encoder = Encoder()
    cache = WordCache(encoder, capacity)
    kept: OrderedDict[str, None] = OrderedDict()
    for numbers in calls:
        asked = [str(number) for number in numbers]
        missing = [word for word in asked if word not in kept]
        if len(asked) > capacity:  # these do not fit together: they pass by, and nothing is forgotten for them
            missing = asked
        else:
            for word in [word for word in asked if word in kept] + missing:
                kept[word] = None
                kept.move_to_end(word)
            while len(kept) > capacity:
                kept.popitem(last=False)
        encoder.asked.clear()
        assert_right(cache, asked)
        assert encoder.asked == missing
        assert len(cache) == len(kept) <= capacity


def test_a_capacity_of_nothing_keeps_nothing() -> None:
    encoder = Encoder()
    cache = WordCache(encoder, 0)
    assert_right(cache, ["1", "2"])
    assert_right(cache, ["1", "2"])
    assert encoder.asked == ["1", "2", "1", "2"]
    assert len(cache) == 0


def test_a_word_is_encoded_once() -> None:
    encoder = Encoder()
    cache = WordCache(encoder, 100)
    for _ in range(3):
        assert_right(cache, words(0, 50))
    assert encoder.asked == words(0, 50)


def test_more_words_than_the_capacity_are_right_and_leave_the_rest_remembered() -> None:
    encoder = Encoder()
    cache = WordCache(encoder, 10)
    assert_right(cache, words(0, 10))
    assert_right(cache, words(5, 40))
    encoder.asked.clear()
    assert_right(cache, words(0, 10))
    assert encoder.asked == []


def test_vectors_stay_right_while_the_table_grows() -> None:
    encoder = Encoder()
    cache = WordCache(encoder, 5000)
    for end in (700, 1500, 1501, 3200, 4999, 5000):
        assert_right(cache, words(0, end))
        assert len(cache) == end
    assert encoder.asked == words(0, 5000)
    assert_right(cache, list(reversed(words(2000, 6000))))  # grown and full: a thousand make room
    assert len(cache) == 5000
    assert_right(cache, words(1000, 6000))


def test_cleared_it_encodes_again() -> None:
    encoder = Encoder()
    cache = WordCache(encoder, 10)
    assert_right(cache, ["3"])
    cache.clear()
    assert len(cache) == 0
    assert_right(cache, ["3"])
    assert encoder.asked == ["3", "3"]


def test_what_is_given_is_not_the_table_itself() -> None:
    cache = WordCache(Encoder(), 10)
    with torch.inference_mode():
        cache.vectors(["1", "2"]).zero_()
    assert_right(cache, ["1", "2"])


def test_an_encoder_that_runs_out_of_memory_leaves_the_cache_right() -> None:
    encoder = Encoder()
    tight = True

    def encode(asked: Sequence[str]) -> Tensor:
        if tight and len(asked) > 2:
            raise torch.OutOfMemoryError
        return encoder(asked)

    cache = WordCache(encode, 4)
    for pair in (["1", "2"], ["3", "4"]):
        assert_right(cache, pair)
    with pytest.raises(torch.OutOfMemoryError):
        cache.vectors(["2", "5", "6", "7"])
    tight = False
    for asked in (["1", "2", "3", "4"], ["5", "6"], ["3", "4", "5", "6"], ["2", "5", "6", "7"]):
        assert_right(cache, asked)


class Tight(Tensor):
    """A tensor on a device that has no room for another like it."""

    def new_empty(self, *size: Any, **options: Any) -> Tensor:
        raise torch.OutOfMemoryError


def test_a_table_that_cannot_grow_leaves_the_cache_right() -> None:
    tight = False

    def encode(asked: Sequence[str]) -> Tensor:
        vectors = Encoder()(asked)
        return vectors.as_subclass(Tight) if tight else vectors

    cache = WordCache(encode, 1500)
    assert_right(cache, words(0, 100))
    tight = True
    with pytest.raises(torch.OutOfMemoryError):
        cache.vectors(words(100, 1550))  # needs both a larger table and the rows of the oldest words
    tight = False
    assert_right(cache, words(100, 160))  # as a batch that was halved asks again
    assert_right(cache, words(0, 160))


def test_very_long_words_are_right_but_not_kept() -> None:
    """A server would keep whatever it is sent."""
    encoded: list[str] = []

    def encode(words: Sequence[str]) -> Tensor:
        encoded.extend(words)
        return torch.tensor([[float(len(word))] for word in words])

    cache = WordCache(encode, 10)
    for _ in range(2):
        assert cache.vectors(["a" * 1000, "b" * 256, "c" * 257]).tolist() == [[1000.0], [256.0], [257.0]]
    assert len(cache) == 1
    assert [len(word) for word in encoded] == [1000, 256, 257, 1000, 257]
