"""SENTENCES ─▶ BATCHES: a stream is read in windows; a window is sorted by length and cut by a budget of tokens.

Sentences of similar length are computed together, so that nearly every row of every matrix product is a real token.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Sentence = TypeVar("Sentence", bound=Sequence[str])


def windows(sentences: Iterable[Sentence], tokens: int) -> Iterator[list[Sentence]]:
    """Group consecutive sentences into windows of at least `tokens` tokens: these are in memory, and sorted."""
    window: list[Sentence] = []
    size = 0
    for sentence in sentences:
        window.append(sentence)
        size += max(len(sentence), 1)  # an empty sentence counts too, so that a window ends
        if size >= tokens:
            yield window
            window, size = [], 0
    if window:
        yield window


def consecutive(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Group the items in their order, `size` at a time."""
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch


def by_length(
    lengths: Sequence[int], budget: int, size: Callable[[int], int] | None = None
) -> list[list[int]]:
    """Divide the rows of a window into batches of at most `budget` tokens, longest sentences first.

    A sentence longer than the budget is a batch of its own; a sentence without tokens is in no batch. Where there is
    room for n sentences as long as its first, a batch has at most `size(n)`.
    """
    batches: list[list[int]] = []
    room, most = 0, len(lengths)
    for row in sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row]):
        if lengths[row] > room or len(batches[-1]) == most:
            batches.append([])
            room = max(budget, lengths[row])
            most = len(lengths) if size is None else size(room // lengths[row])
        batches[-1].append(row)
        room -= lengths[row]
    return batches
