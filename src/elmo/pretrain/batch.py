"""WINDOW ─▶ BATCH: the distinct words of a step, its targets and negatives, prepared in another thread with NumPy.

word rows (S, B, T + 1) ─▶ distinct words and their characters; indices (S, N) of inputs and targets, N = T·B time-major
"""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.model.device import pinned
from elmo.pretrain.corpus import Corpus, Rows
from elmo.pretrain.sampler import NEGATIVES, Draw, LogUniform
from elmo.pretrain.streams import Streams
from elmo.text.vocabulary import Vocabulary

AHEAD, AHEAD_OF_GPU = 8, 128  # batches prepared in advance: a GPU must not wait while a shard is shuffled
FREQUENT = 100_000  # words whose characters are cached: the table begins with the most frequent words


@dataclass(frozen=True)
class Batch:
    """The ids of one step. The softmax is computed over `predicted`: targets and negatives, or all words."""

    words: Tensor  # (U, C) character ids of the distinct words, or (U,) ids in a word table
    inputs: Tensor  # (S, N) rows of `words`
    targets: Tensor  # (S, N) rows of `predicted`
    predicted: Tensor | None = None  # (P,) rows of the vocabulary; None means all
    negatives: Tensor | None = None  # (S, K) rows of `predicted`
    log_q: Tensor | None = None  # (S, P)
    filled: int = 0  # padding rows at the end of `predicted`

    def pinned(self) -> "Batch":
        """Copy the batch to pinned memory, from which a device copies asynchronously."""
        return self._each(pinned)

    def to(self, device: torch.device, copy: bool = False) -> "Batch":
        """Copy the batch to a device; without waiting if it is pinned."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True, copy=copy))

    def copy_(self, other: "Batch") -> None:
        """Overwrite the tensors with those of another batch of the same sizes; `filled` stays."""
        for own, new in zip(vars(self).values(), vars(other).values(), strict=True):
            if isinstance(own, Tensor):
                own.copy_(new, non_blocking=True)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        tensors = {name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[arg-type]


class Batches:
    """Prepares the batches of a corpus for a model with this vocabulary."""

    def __init__(
        self,
        corpus: Corpus,
        streams: Streams,
        vocabulary: Vocabulary,
        *,
        max_characters: int | None,
        negatives: int | None,
        accumulate: int = 1,
        round_to: int = 1,
    ) -> None:
        """`round_to`: the number of distinct words is padded to a multiple of this, so that few sizes occur."""
        self._words = corpus.words
        self._streams = streams
        self._sampler = LogUniform(len(vocabulary))
        self._targets = corpus.targets(vocabulary)
        self._distinct_words, self._distinct_targets = _Distinct(len(self._targets)), _Distinct(len(vocabulary))
        self._max_characters = max_characters
        if max_characters is not None:
            frequent = np.arange(min(FREQUENT, len(self._words)))
            self._frequent_characters = self._words.characters(frequent, max_characters)
        self._negatives = negatives
        self._round_to = round_to
        self._parts = np.array_split(np.arange(len(streams.own)), accumulate)

    def from_step(self, first: int, last: int, pinned: bool = False) -> Generator[list[Batch]]:
        """Yield the batches of steps `first` to `last`, each as a list of parts, prepared ahead by another thread."""

        def prepared(step: int) -> list[Batch]:
            return [batch.pinned() if pinned else batch for batch in self.of_step(step)]

        ahead = AHEAD_OF_GPU if pinned else AHEAD
        with ThreadPoolExecutor(max_workers=1) as thread:
            waiting = [thread.submit(prepared, step) for step in range(first, min(first + ahead, last))]
            try:
                for step in range(first, last):
                    ready = waiting.pop(0)
                    if step + ahead < last:
                        waiting.append(thread.submit(prepared, step + ahead))
                    yield ready.result()
            finally:
                for future in waiting:
                    future.cancel()

    def of_step(self, step: int) -> list[Batch]:
        """Prepare the batch of one step; it depends only on the seed and the step."""
        window = self._streams.window(step)
        draws = []
        if self._negatives is not None:  # one draw per direction, the same in all processes and parts
            for direction in range(len(window)):
                rng = np.random.default_rng([self._streams.seed, NEGATIVES, step, direction])
                draws.append(self._sampler.draw(rng, self._negatives))
        return [self._part(window[:, rows], draws) for rows in self._parts]

    def _part(self, window: Rows, draws: list[Draw]) -> Batch:
        words, inputs = self._distinct_words(_time_major(window[:, :, :-1]))
        targets = self._targets[_time_major(window[:, :, 1:])]
        ids = torch.from_numpy(self._filled(self._word_ids(words)))
        if not draws:
            return Batch(ids, torch.from_numpy(inputs), torch.from_numpy(targets.astype(np.int64)))
        distinct, places = self._distinct_targets(targets, *(draw.words for draw in draws))
        predicted = self._filled(distinct)
        negatives = np.stack([self._distinct_targets.places(draw.words) for draw in draws])
        log_q = np.stack([self._sampler.log_expected_count(predicted, draw.tries) for draw in draws])
        return Batch(
            ids, torch.from_numpy(inputs), torch.from_numpy(places), torch.from_numpy(predicted),
            torch.from_numpy(negatives), torch.from_numpy(log_q), filled=len(predicted) - len(distinct),
        )  # fmt: skip

    def _filled(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Pad to a multiple of `round_to` by repeating the first row."""
        return np.concatenate([rows, np.repeat(rows[:1], -len(rows) % self._round_to, axis=0)])

    def _word_ids(self, words: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the character ids of words, given by ascending rows; or word ids if the model reads no characters."""
        if self._max_characters is None:
            return self._targets[words].astype(np.int64) + 1  # row 0 of the table is no token
        n_frequent = int(np.searchsorted(words, len(self._frequent_characters)))
        rare = self._words.characters(words[n_frequent:], self._max_characters)
        return np.concatenate([self._frequent_characters[words[:n_frequent]], rare])


class _Distinct:
    """Finds distinct integers with a table of all possible ones, without sorting."""

    def __init__(self, size: int) -> None:
        self._place = np.zeros(size, dtype=np.int64)

    def __call__(
        self, numbers: npt.NDArray[Any], *others: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the distinct integers of all arrays, ascending, and the places of the first array's among them."""
        seen = np.zeros(len(self._place), dtype=np.bool_)
        for some in (numbers, *others):
            seen[some] = True
        distinct = np.flatnonzero(seen)
        self._place[distinct] = np.arange(len(distinct))
        return distinct, self.places(numbers)

    def places(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the places among the distinct integers of the last call."""
        places: npt.NDArray[np.int64] = self._place[numbers]
        return places


def _time_major(window: Rows) -> Rows:
    """(S, B, T) ─▶ (S, T·B): the first token of all rows, the second of all rows, …"""
    return window.transpose(0, 2, 1).reshape(len(window), -1)
