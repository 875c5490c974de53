"""BATCHES OF TOKENS ─▶ LAYERS: initial states, batches that run out of memory, weights that change.

Any number of threads may run batches at once. They share the word cache, which has its own lock, and the initial
states, which are computed once for each set of weights and never changed. The computation itself takes no lock.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from elmo.embed.snapshot import Snapshot
from elmo.embed.warm_up import TEXT, warm_state
from elmo.embed.words import WordCache, WordEncoder, with_boundaries
from elmo.errors import ConfigError, ElmoError
from elmo.model.bilm import BiLM
from elmo.model.device import without_autocast
from elmo.model.lstm import State
from elmo.model.packing import Packing
from elmo.text import batches
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE

log = logging.getLogger("elmo")

Result = TypeVar("Result")
# A batch of sentences, its layers, (N, 2D) each, packed ─▶ a result for each sentence
Finish = Callable[[list[list[str]], list[Tensor], Packing], list[Result]]

BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}  # tokens per batch
WINDOW_BATCHES = 4  # batches in a window, which is sorted by length


@dataclass(frozen=True)
class _Starts:
    """Initial states, (L, 2, 1, ·), of one set of weights, by the name of the state."""

    weights: Snapshot
    stored: State | None = None  # the warm state in the files of these weights
    before: dict[str, State] = field(default_factory=dict)  # before a boundary
    after: dict[str, State] = field(default_factory=dict)  # after a boundary, before the first token


class Runner:
    """Runs sentences through a biLM, batch by batch. `stored` is the warm state in the model's files, if any."""

    def __init__(self, bilm: BiLM, encoder: WordEncoder, cache_bytes: int, stored: State | None = None) -> None:
        self.bilm = bilm
        # A word table needs no cache.
        width = 4 * bilm.config.lstm.projection_dim
        self.words = WordCache(encoder, cache_bytes // width if bilm.config.n_words is None else 0)
        self.carried: State | None = None
        self._carrying = Lock()
        self._changing = Lock()
        self._starts = _Starts(self._snapshot(), stored, {} if stored is None else {"warm": stored})

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.bilm.weight.device

    def batch_tokens(self, asked: int | None) -> int:
        """Return the number of tokens per batch: as asked, or the device's default."""
        if asked is not None and asked < 1:
            raise ConfigError(f"batch_tokens is {asked}; expected 1 or more")
        return asked or BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])

    def before(self, state: str) -> State:
        """Return the state before a boundary, (L, 2, 1, ·): zeros ("fresh"), or the warm state."""
        return self._before(self._current(), state)

    def after(self, state: str) -> State:
        """Return the state before a sentence's own tokens, (L, 2, 1, ·): forward after `<S>`, backward after `</S>`.

        The vectors of the boundaries are not returned, and from one initial state these two steps always give the same
        result: they are computed once, and a sentence costs only its tokens.
        """
        starts = self._current()
        if state not in starts.after:
            starts.after[state] = self._after_boundaries(self._before(starts, state))
        return starts.after[state]

    def forget_if_changed(self) -> None:
        """Drop vectors and states that were computed from old weights, and free their memory."""
        self._current()

    def stored_state(self) -> State | None:
        """Return the warm state in the model's files, if there is one and the weights are still those of the files."""
        return self._current().stored

    def independent(
        self,
        sentences: Iterable[list[str]],
        finish: Finish[Result],
        start: Callable[[], State],
        *,
        batch_tokens: int,
        empty: Callable[[], Result] | None = None,
        skip: int = 0,
    ) -> Iterator[Result]:
        """Yield the result of `finish` for each sentence, in order, all from one state; `empty()` for an empty one.

        `start()` is called once for each window of sentences, because the weights may have changed since the last one.
        The first `skip` sentences are read but give no result.
        """
        for window in batches.windows(sentences, WINDOW_BATCHES * batch_tokens):
            skipped = min(skip, len(window))
            skip -= skipped
            first = start()
            results: dict[int, Result] = {}
            for rows in batches.by_length([len(sentence) for sentence in window], batch_tokens):
                batch = [window[row] for row in rows]
                if skipped == len(window):
                    self._vectors(batch)  # the cache must have seen them
                else:
                    every = State(*(part.expand(-1, -1, len(batch), -1) for part in first))
                    results.update(zip(rows, self.run(batch, every, finish)[0], strict=True))
            for row in range(skipped, len(window)):
                yield results.pop(row) if empty is None or window[row] else empty()

    def carry(
        self, sentences: Iterable[list[str]], finish: Finish[Result], *, batch_size: int, skip: int = 0
    ) -> Iterator[Result]:
        """Yield the result of `finish` for each sentence; row r of a batch starts from the state of row r before it.

        Threads share this state: their batches are computed one after the other.
        """
        for batch in batches.consecutive(sentences, batch_size):
            size = len(batch)
            with self._carrying:
                before = self._carried_by(size)
                start = State(*(part[:, :, :size] for part in before))
                results, after = self.run(batch, start, finish)
                # A smaller batch leaves the states of further rows unchanged.
                pairs = zip(after, before, strict=True)
                self.carried = State(*(torch.cat([new, old[:, :, size:]], dim=2) for new, old in pairs))
            yield from results[min(skip, size) :]
            skip -= min(skip, size)

    def reset_carried(self) -> None:
        """Set the carried state back to zeros."""
        with self._carrying:
            self.carried = None

    def run(self, batch: list[list[str]], start: State, finish: Finish[Result]) -> tuple[list[Result], State]:
        """Compute a batch, in halves if memory runs out; return the results of `finish`, and the final state."""
        try:
            with torch.inference_mode(), without_autocast(self.bilm.weight):
                packing = Packing.of([len(sentence) for sentence in batch])
                layers, state = self.bilm.contextualize(self._vectors(batch, packing), packing, start)
                return finish(batch, layers, packing), state
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not _out_of_memory(error):
                raise
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(batch) == 1:
            raise ElmoError(f"out of memory on {self.device} with one sentence of {len(batch[0])} tokens; split it")
        log.warning("out of memory: a batch of %d sentences is halved; batch_tokens= sets the size", len(batch))
        half = len(batch) // 2
        halves = [
            self.run(batch[rows], State(*(part[:, :, rows] for part in start)), finish)
            for rows in (slice(half), slice(half, None))
        ]
        (results, state), (more_results, more_state) = halves
        return results + more_results, State(*(torch.cat(p, dim=2) for p in zip(state, more_state, strict=True)))

    def _carried_by(self, size: int) -> State:
        """Return the carried state with at least `size` rows; new rows are zeros."""
        zeros = self.bilm.zero_state(size)
        if self.carried is None:
            return zeros
        pairs = list(zip(self.carried, zeros, strict=True))
        return State(*(torch.cat([part.to(zero), zero[:, :, part.shape[2] :]], dim=2) for part, zero in pairs))

    def _current(self) -> _Starts:
        """Return the states of the present weights; drop everything computed from others."""
        starts = self._starts
        if starts.weights.holds():
            return starts
        with self._changing:
            if self._starts is starts:
                weights = self._snapshot()
                self.words.clear()  # first: a thread that sees the new states must not find old vectors
                self._starts = _Starts(weights)
            return self._starts

    def _snapshot(self) -> Snapshot:
        """Take a snapshot of the weights that vectors and states depend on: all but the softmax's."""
        return Snapshot([self.bilm.token_encoder, self.bilm.lstms])

    @torch.inference_mode()
    def _before(self, starts: _Starts, state: str) -> State:
        zeros = self.bilm.zero_state(1)
        if state == "fresh":
            return zeros
        if state not in starts.before:
            sentences = [with_boundaries(line.split()) for line in TEXT]
            starts.before[state] = warm_state(self.bilm, [self._vectors([sentence]) for sentence in sentences])
        return State(*(known.to(zero) for known, zero in zip(starts.before[state], zeros, strict=True)))

    @torch.inference_mode()
    def _after_boundaries(self, start: State) -> State:
        both = State(*(part.expand(-1, -1, 2, -1) for part in start))
        vectors = self._vectors([[BEGIN_SENTENCE], [END_SENTENCE]])
        _, after = self.bilm.contextualize(vectors, Packing.of([1, 1]), both)
        directions = range(self.bilm.config.directions)  # direction k reads boundary k first
        return State(*(torch.stack([part[:, k, k : k + 1] for k in directions], dim=1) for part in after))

    @torch.inference_mode()
    def _vectors(self, batch: list[list[str]], packing: Packing | None = None) -> Tensor:
        """Return the token vectors of a batch, (N, D): packed, or sentence after sentence."""
        numbers: dict[str, int] = {}
        for word in chain.from_iterable(batch):
            numbers.setdefault(word, len(numbers))
        vectors = self.words.vectors(list(numbers))
        index = np.fromiter((numbers[word] for word in chain.from_iterable(batch)), dtype=np.int64)
        if packing is not None:
            starts = np.cumsum([0, *(len(sentence) for sentence in batch)])
            index = index[starts[packing.sentence] + packing.step]
        return vectors[torch.from_numpy(index).to(vectors.device)]


def _out_of_memory(error: RuntimeError) -> bool:
    # The CPU's allocator has no exception class of its own.
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
