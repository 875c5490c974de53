"""BATCHES OF TOKENS ─▶ LAYERS: initial states, batches that run out of memory, weights that change.

Any number of threads may run batches at once. They share the word cache, which has its own lock, and the initial
states, which are computed once for each set of weights and never changed. The computation itself takes no lock.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from elmo.embed.snapshot import Snapshot
from elmo.embed.warm_up import TEXT, warm_state
from elmo.embed.word_store import WordStore
from elmo.embed.words import WordCache, WordEncoder, with_boundaries
from elmo.errors import ConfigError, ElmoError
from elmo.model.bilm import BiLM
from elmo.model.device import without_autocast
from elmo.model.kernels.products import rounded_down
from elmo.model.lstm import State
from elmo.model.packed import PackedBiLM, packed
from elmo.model.packing import Packing
from elmo.model.threads import available, each
from elmo.text import batches
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE

log = logging.getLogger("elmo")

Item = TypeVar("Item")
Result = TypeVar("Result")
# A batch of sentences, its layers, (N, 2D) each, packed ─▶ a result for each sentence
Finish = Callable[[list[list[str]], list[Tensor], Packing], list[Result]]

BATCH_TOKENS = {"cpu": 2048, "cuda": 65536}  # tokens per batch
WINDOW_BATCHES = 4  # batches in a window, which is sorted by length
WINDOW_THREADS = 4  # on a CPU, a window has work for these; with more threads, several windows are computed at once
# With packed weights, a batch is divided into pieces that stay in the processor's cache: at most this many tokens, and
# this many values of a layer.
PIECE_TOKENS, PIECE_VALUES = 2048, 1 << 20
# Between two operations a thread waits for Python, which runs one thread at a time: the more threads there are, the
# longer an operation has to be. So with n threads, more than two, batches and pieces of a model with layers of this
# width are n times as large, up to a limit. In wider models an operation takes longer anyway.
GROWING_WIDTH, MOST_GROWTH = 256, 8
MOST_WINDOWS = 16  # of the size for one thread: larger ones are fewer, so that memory has a bound


@dataclass(frozen=True)
class _Computed:
    """What is computed once from a set of weights: packed weights; initial states, (L, 2, 1, ·), by their name."""

    weights: Snapshot
    packed: PackedBiLM | None = None  # None: the biLM's own operations compute
    in_use: bool = False  # weights are packed when they are first used
    stored: State | None = None  # the warm state in the files of these weights
    before: dict[str, State] = field(default_factory=dict)  # before a boundary
    after: dict[str, State] = field(default_factory=dict)  # after a boundary, before the first token
    texts: dict[str, str] = field(default_factory=dict)  # of `once`


class Runner:
    """Runs sentences through a biLM, batch by batch. `stored` is the warm state in the model's files, if any.

    `module` is the biLM for what is not a weight: its config, device, dtype and softmax. While nobody else can have a
    reference to it (`sole_owner`), matrices that are packed are released. Whoever reads `bilm` gets them back.
    """

    def __init__(
        self,
        bilm: BiLM,
        encoder: WordEncoder,
        cache_bytes: int,
        stored: State | None = None,
        int8: bool = False,
        sole_owner: bool = False,
    ) -> None:
        self.module = bilm
        self.sole_owner = sole_owner
        self.int8 = int8
        self._encoder = encoder
        # A word table needs no cache.
        width = 4 * bilm.config.lstm.projection_dim
        self.words = WordCache(self._stored, cache_bytes // width if bilm.config.n_words is None else 0)
        self.store: WordStore | None = None  # word vectors on disk, while nobody else can change the weights
        self.carried: State | None = None
        self._carrying = Lock()
        self._changing = Lock()
        self._computed = _Computed(self._snapshot(), stored=stored, before={} if stored is None else {"warm": stored})

    @property
    def bilm(self) -> BiLM:
        """The biLM with all its weights, which are no longer released from now on."""
        with self._changing:
            self.sole_owner = False
            self.store = None
            self._give_back()
        return self.module

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.module.weight.device

    def batch_tokens(self, asked: int | None) -> int:
        """Return the number of tokens per batch: as asked, or the device's default."""
        if asked is not None and asked < 1:
            raise ConfigError(f"batch_tokens is {asked}; expected 1 or more")
        return asked or BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"]) * self._growth()

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return `function` of each item, computed on several threads if the weights are packed."""
        return [function(item) for item in items] if self._packed() is None else each(function, items)

    def before(self, state: str) -> State:
        """Return the state before a boundary, (L, 2, 1, ·): zeros ("fresh"), or the warm state."""
        return self._before(self._current(), state)

    def after(self, state: str) -> State:
        """Return the state before a sentence's own tokens, (L, 2, 1, ·): forward after `<S>`, backward after `</S>`.

        The vectors of the boundaries are not returned, and from one initial state these two steps always give the same
        result: they are computed once, and a sentence costs only its tokens.
        """
        computed = self._current()
        if state not in computed.after:
            computed.after[state] = self._after_boundaries(self._before(computed, state))
        return computed.after[state]

    def encode(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of words, (N, D), without the cache."""
        self.forget_if_changed()
        return self._encode(words)

    def forget_if_changed(self) -> None:
        """Drop vectors and states that were computed from old weights, and free their memory."""
        self._current()

    def stored_state(self) -> State | None:
        """Return the warm state in the model's files, if there is one and the weights are still those of the files."""
        return self._current(use=False).stored

    def once(self, name: str, compute: Callable[[], str]) -> str:
        """Return `compute()`, which is called once for each set of weights."""
        texts = self._current(use=False).texts
        if name not in texts:
            texts[name] = compute()
        return texts[name]

    def read_weights(self, read: Callable[[BiLM], Result]) -> Result:
        """Return `read(biLM)`, which reads weights and keeps no reference to them."""
        with self._changing:
            packs = self._give_back()
            try:
                return read(self.module)
            finally:
                if packs is not None:
                    self._computed.weights.drop()
                    packs.release()
                    self._computed = replace(self._computed, weights=self._snapshot())

    def independent(
        self,
        sentences: Iterable[list[str]],
        finish: Finish[Result],
        start: Callable[[], State],
        *,
        batch_tokens: int,
        empty: Callable[[], Result] | None = None,
        skip: int = 0,
        n_layers: int | None = None,
    ) -> Iterator[Result]:
        """Yield the result of `finish` for each sentence, in order, all from one state; `empty()` for an empty one.

        `start()` is called once for each window of sentences, because the weights may have changed since the last one.
        `finish` gets the first `n_layers` layers, by default all; LSTMs above them are not run. The first `skip`
        sentences are read but give no result.
        """

        def run(piece: tuple[list[list[str]], State]) -> list[Result]:
            batch, first = piece
            every = State(*(part.expand(-1, -1, len(batch), -1) for part in first))
            return self.run(batch, every, finish)[0]

        windows = batches.windows(sentences, WINDOW_BATCHES * batch_tokens)
        at_once = min(-(-self._threads() // WINDOW_THREADS), MOST_WINDOWS // self._growth())
        for some in batches.consecutive(windows, at_once):
            asked: list[tuple[int, list[str]]] = []  # sentences that give a result, and their numbers
            rows: list[int] = []
            pieces: list[tuple[list[list[str]], State]] = []
            before = 0  # sentences of the windows before
            for window in some:
                skipped = min(skip, len(window))
                skip -= skipped
                first = State(*(part[: None if n_layers is None else n_layers - 1] for part in start()))
                self._encode_new_words(window)  # also of a window that is skipped: the cache must have seen them
                if skipped < len(window):
                    for piece in self._pieces([len(sentence) for sentence in window], batch_tokens):
                        rows += [before + row for row in piece]
                        pieces.append(([window[row] for row in piece], first))
                asked += [(before + row, window[row]) for row in range(skipped, len(window))]
                before += len(window)
            results = dict(zip(rows, chain.from_iterable(self.each(run, pieces)), strict=True))
            for row, sentence in asked:
                yield results.pop(row) if empty is None or sentence else empty()

    def carry(
        self, sentences: Iterable[list[str]], finish: Finish[Result], *, batch_size: int, skip: int = 0
    ) -> Iterator[Result]:
        """Yield the result of `finish` for each sentence; row r of a batch starts from the state of row r before it.

        Threads share this state: their batches are computed one after the other.
        """
        for batch in batches.consecutive(sentences, batch_size):
            size = len(batch)
            with self._carrying:
                self.forget_if_changed()
                before = self._carried_by(size)
                start = State(*(part[:, :, :size] for part in before))
                ((results, after),) = self.each(partial(self.run, start=start, finish=finish), [batch])
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
            with torch.inference_mode(), without_autocast(self.module.weight):
                packing = Packing.of([len(sentence) for sentence in batch])
                layers, state = self._contextualize(self._vectors(batch, packing), packing, start)
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
        zeros = self.module.zero_state(size)
        if self.carried is None:
            return zeros
        pairs = list(zip(self.carried, zeros, strict=True))
        return State(*(torch.cat([part.to(zero), zero[:, :, part.shape[2] :]], dim=2) for part, zero in pairs))

    def _current(self, use: bool = True) -> _Computed:
        """Return what is computed from the present weights; drop everything computed from others."""
        computed = self._computed
        if computed.weights.holds() and (computed.in_use or not use):
            return computed
        with self._changing:
            if self._computed is not computed:
                return self._computed
            if not computed.weights.holds():
                self._computed.weights.drop()
                self.words.clear()  # first: a thread that sees the new states must not find old vectors
                computed = _Computed(self._snapshot())
            if use:
                self._use(computed)
            else:
                self._computed = computed
            return self._computed

    def _use(self, computed: _Computed) -> None:
        """Pack the weights, which have not changed since `computed`, and release what is packed."""
        computed.weights.drop()  # a snapshot keeps the memory of what it has read
        packs = None
        try:
            packs = packed(self.module, self.int8, self.sole_owner)
            self._computed = replace(computed, weights=self._snapshot(), packed=packs, in_use=True)
        except BaseException:
            if packs is not None:
                packs.give_back()
            self._computed = replace(computed, weights=self._snapshot())
            raise

    def _give_back(self) -> PackedBiLM | None:
        """Give the biLM back the weights that were released, and return what has them packed."""
        packs = self._computed.packed
        if packs is None or not packs.released:
            return None
        packs.give_back()
        self._computed = replace(self._computed, weights=self._snapshot())
        return packs

    def _snapshot(self) -> Snapshot:
        """Take a snapshot of the weights that vectors and states depend on: all but the softmax's."""
        return Snapshot([self.module.token_encoder, self.module.lstms])

    def _packed(self) -> PackedBiLM | None:
        return None if self.module.reference else self._computed.packed

    def _threads(self) -> int:
        """Return how many pieces can be computed at once: 1 on a GPU."""
        return available() if self.device.type == "cpu" else 1

    def _growth(self) -> int:
        """Return how many times as large batches and pieces are as with one or two threads."""
        threads = self._threads()
        if threads <= 2:
            return 1
        return max(1, min(threads * GROWING_WIDTH**2 // self.module.config.output_dim**2, MOST_GROWTH))

    def _pieces(self, lengths: list[int], batch_tokens: int) -> list[list[int]]:
        """Divide a window of sentences into those that are computed together."""
        if self._packed() is None:
            return batches.by_length(lengths, batch_tokens)
        fitting = min(PIECE_TOKENS, max(PIECE_VALUES // self.module.config.output_dim, 1))
        tokens = min(batch_tokens, fitting * self._growth())
        return batches.by_length(lengths, tokens, rounded_down)

    def _contextualize(self, tokens: Tensor, packing: Packing, start: State) -> tuple[list[Tensor], State]:
        with without_autocast(self.module.weight):
            return (self._packed() or self.module).contextualize(tokens, packing, start)

    def _encode(self, words: Sequence[str]) -> Tensor:
        packed = self._packed()
        return self._encoder(words, None if packed is None else packed.encode)

    def _stored(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of words, (N, D), from the disk if they are there."""
        store = self.store
        return self._encode(words) if store is None else store.vectors(words, self._encode)

    @torch.inference_mode()
    def _before(self, computed: _Computed, state: str) -> State:
        zeros = self.module.zero_state(1)
        if state == "fresh":
            return zeros
        if state not in computed.before:
            vectors = [self._vectors([with_boundaries(line.split())]) for line in TEXT]
            computed.before[state] = warm_state(self._contextualize, vectors, zeros)
        return State(*(known.to(zero) for known, zero in zip(computed.before[state], zeros, strict=True)))

    @torch.inference_mode()
    def _after_boundaries(self, start: State) -> State:
        both = State(*(part.expand(-1, -1, 2, -1) for part in start))
        vectors = self._vectors([[BEGIN_SENTENCE], [END_SENTENCE]])
        _, after = self._contextualize(vectors, Packing.of([1, 1]), both)
        directions = range(self.module.config.directions)  # direction k reads boundary k first
        return State(*(torch.stack([part[:, k, k : k + 1] for k in directions], dim=1) for part in after))

    def _encode_new_words(self, sentences: list[list[str]]) -> None:
        """Let the cache store the words of some batches, so that threads do not encode the same word at once."""
        words = list(dict.fromkeys(chain.from_iterable(sentences)))
        if len(words) <= self.words.capacity:
            self.words.vectors(words)

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
