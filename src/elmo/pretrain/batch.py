"""WINDOW ─▶ BATCH: which distinct words a step reads, predicts and contrasts; NumPy only, prepared while the last runs.

word rows (S, B, T + 1) ─▶ distinct words and their characters, places (S, N) of inputs and targets, N = T·B time-major
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

AHEAD, AHEAD_OF_GPU = 8, 128  # batches that are prepared before they are asked for: a GPU does not wait for a shuffle
FREQUENT = 100_000  # words whose spelling is kept at hand: the table begins with the most frequent ones


@dataclass(frozen=True)
class Batch:
    """One step's ids. `predicted` is what the softmax is computed on: all words, or targets and negatives."""

    spelled: Tensor  # (U, C) character ids of the distinct words, or (U,) ids in a word table
    inputs: Tensor  # (S, N) places in `spelled`
    targets: Tensor  # (S, N) places in `predicted`
    predicted: Tensor | None = None  # (P,) rows of the vocabulary; none is all of them
    negatives: Tensor | None = None  # (S, K) places in `predicted`
    log_q: Tensor | None = None  # (S, P)
    filled: int = 0  # the number of `predicted` at its end that only fill it up to a round number

    def pinned(self) -> "Batch":
        """The same in memory that a device copies from by itself."""
        return self._each(pinned)

    def to(self, device: torch.device, copy: bool = False) -> "Batch":
        """The same on a device; of a pinned one, without waiting."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True, copy=copy))

    def copy_(self, other: "Batch") -> None:
        """Become another of the same sizes, `filled` apart."""
        for own, new in zip(vars(self).values(), vars(other).values(), strict=True):
            if isinstance(own, Tensor):
                own.copy_(new, non_blocking=True)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        tensors = {name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[arg-type]


class Batches:
    """Makes the batches of a corpus for a model with this vocabulary."""

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
        """`round_to`: distinct words are filled up to a multiple of it, so that few sizes occur."""
        self._words = corpus.words
        self._streams = streams
        self._sampler = LogUniform(len(vocabulary))
        self._targets = corpus.targets(vocabulary)
        self._distinct_words, self._distinct_targets = _Distinct(len(self._targets)), _Distinct(len(vocabulary))
        self._max_characters = max_characters
        if max_characters is not None:
            frequent = np.arange(min(FREQUENT, len(self._words)))
            self._spelled_frequent = self._words.characters(frequent, max_characters)
        self._negatives = negatives
        self._round_to = round_to
        self._parts = np.array_split(np.arange(len(streams.own)), accumulate)

    def from_step(self, first: int, last: int, pinned: bool = False) -> Generator[list[Batch]]:
        """The batches of steps `first` to `last`, each in its parts, prepared ahead by another thread."""

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
        """The batch of one step: a function of the seed and the step alone."""
        window = self._streams.window(step)
        draws = []
        if self._negatives is not None:  # one draw per direction, the same for every process and part
            for direction in range(len(window)):
                rng = np.random.default_rng([self._streams.seed, NEGATIVES, step, direction])
                draws.append(self._sampler.draw(rng, self._negatives))
        return [self._part(window[:, rows], draws) for rows in self._parts]

    def _part(self, window: Rows, draws: list[Draw]) -> Batch:
        words, inputs = self._distinct_words(_time_major(window[:, :, :-1]))
        targets = self._targets[_time_major(window[:, :, 1:])]
        spelled = torch.from_numpy(self._filled(self._spelled(words)))
        if not draws:
            return Batch(spelled, torch.from_numpy(inputs), torch.from_numpy(targets.astype(np.int64)))
        distinct, places = self._distinct_targets(targets, *(draw.words for draw in draws))
        predicted = self._filled(distinct)
        negatives = np.stack([self._distinct_targets.places(draw.words) for draw in draws])
        log_q = np.stack([self._sampler.log_expected_count(predicted, draw.tries) for draw in draws])
        return Batch(
            spelled, torch.from_numpy(inputs), torch.from_numpy(places), torch.from_numpy(predicted),
            torch.from_numpy(negatives), torch.from_numpy(log_q), filled=len(predicted) - len(distinct),
        )  # fmt: skip

    def _filled(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Up to a round number, by the first again."""
        return np.concatenate([rows, np.repeat(rows[:1], -len(rows) % self._round_to, axis=0)])

    def _spelled(self, words: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Character ids of rising rows of the words' table; or what a model without characters reads."""
        if self._max_characters is None:
            return self._targets[words].astype(np.int64) + 1  # row 0 of the table is no token
        n_frequent = int(np.searchsorted(words, len(self._spelled_frequent)))
        rare = self._words.characters(words[n_frequent:], self._max_characters)
        return np.concatenate([self._spelled_frequent[words[:n_frequent]], rare])


class _Distinct:
    """Finds distinct numbers through a table of all possible ones: no sorting."""

    def __init__(self, size: int) -> None:
        self._place = np.zeros(size, dtype=np.int64)

    def __call__(
        self, numbers: npt.NDArray[Any], *others: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The distinct ones of all arrays, rising, and the places of the first array's among them."""
        seen = np.zeros(len(self._place), dtype=np.bool_)
        for some in (numbers, *others):
            seen[some] = True
        distinct = np.flatnonzero(seen)
        self._place[distinct] = np.arange(len(distinct))
        return distinct, self.places(numbers)

    def places(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Places among the distinct numbers found last."""
        places: npt.NDArray[np.int64] = self._place[numbers]
        return places


def _time_major(window: Rows) -> Rows:
    """(S, B, T) ─▶ (S, T·B): all rows' first token, all rows' second, …"""
    return window.transpose(0, 2, 1).reshape(len(window), -1)
