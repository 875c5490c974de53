"""TEXT ─▶ ARRAYS: `elmo.load(…)` gives an `Embedder`, which tokenises, batches, runs the biLM and picks layers.

sentences, any number of them ─▶ one array (L+1, tokens, 2D) per sentence, in order, as they are asked for
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from elmo.embed.language_model import LanguageModel, Scores, Substitute, bounded
from elmo.embed.pooling import pooling as pooling_named
from elmo.embed.selection import Array, LayersArgument, Selection
from elmo.embed.warm_up import TEXT, warm_state
from elmo.embed.word_cache import WordCache
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.model.bilm import BiLM
from elmo.model.device import PRECISIONS, device_named
from elmo.model.lstm import State
from elmo.model.packing import Packing
from elmo.packaged import DEFAULT
from elmo.text import batches, characters, tokens
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmo.weights import folder, source
from elmo.weights.folder import Pretrained

log = logging.getLogger("elmo")

Sentence = str | Sequence[str]
Result = TypeVar("Result")
Run = Callable[[list[list[str]], State], tuple[list[Result], State]]  # a batch, and where each of it starts

STATES = ("fresh", "carried", "warm")
BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}  # computed together
WINDOW_BATCHES = 4  # batches that are read ahead, and sorted by length
CACHE_BYTES = 64 << 20  # of word vectors
WORDS_AT_ONCE = 1024  # new words that pass the token encoder together


def load(
    model: str | Path = DEFAULT,
    *,
    device: str = "auto",
    precision: str = "float32",
    options: str | Path | None = None,
    vocabulary: str | Path | None = None,
    token_embeddings: str | Path | None = None,
    softmax: bool = False,
    cache_bytes: int = CACHE_BYTES,
) -> "Embedder":
    """Load a model: a folder, a zip of one, an HDF5 with its options beside it, a hub id, a published or packaged name.

    Without a name it is the English model that comes with the package.

    `options` names an options.json that does not lie beside its HDF5. With `token_embeddings` and its `vocabulary`,
    words enter by their row in that file instead of by their characters. `softmax` reads a folder's softmax too: what
    `score` and `substitutes` need. `precision="bfloat16"` is faster, and less exact, on GPUs and on processors with
    instructions for it.
    """
    where = device_named(device)
    read = source.read(
        model, options=options, vocabulary=vocabulary, token_embeddings=token_embeddings, softmax=softmax
    )
    return Embedder(read, device=where, precision=precision, cache_bytes=cache_bytes)


class Embedder:
    """A biLM in use. Every result depends on the sentence alone, unless `state="carried"` asks otherwise."""

    def __init__(
        self,
        model: Pretrained,
        *,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        if precision not in PRECISIONS:
            raise ConfigError(f"precision is {precision!r}; expected one of {', '.join(PRECISIONS)}")
        self.device = torch.device(device)
        self.bilm: BiLM = model.bilm.to(self.device, PRECISIONS[precision]).eval().requires_grad_(False)
        self.config = model.bilm.config
        self.vocabulary = model.vocabulary
        self.cache = WordCache(self._encode_words, cache_bytes // (4 * self.config.lstm.projection_dim))
        self._warm_state = model.warm_state
        self._starts: dict[str, State] = {}  # where a sentence's own tokens begin, by the name of the state
        self._versions = self._weight_versions()
        self._carried: State | None = None
        self._staging: Tensor | None = None

    @property
    def dim(self) -> int:
        """2D: the width of every vector."""
        return self.config.output_dim

    @property
    def n_layers(self) -> int:
        """How many layers `layers="all"` gives."""
        return self.config.n_layers

    def tokens(self, text: str) -> list[tokens.Token]:
        """What the tokenizer makes of a raw text, with character offsets."""
        return tokens.tokenize(text)

    def embed(
        self,
        sentences: Iterable[Sentence],
        layers: LayersArgument = "all",
        *,
        dtype: str = "float32",
        state: str = "fresh",
        batch_tokens: int | None = None,
        batch_size: int = 64,
        skip: int = 0,
    ) -> Iterator[Array]:
        """One array per sentence, in order: (L+1, tokens, 2D) for all layers, (tokens, 2D) for one.

        A string is raw text and is tokenised; a list is tokens, taken as they are. The sentences may be endless: a
        window of about four batches of `batch_tokens` tokens is in memory, sorted by length inside.

        `state` is where the LSTMs start: "fresh" (zeros, every sentence), "warm" (one stored state, every sentence),
        or "carried" (from batch to batch, row by row, `batch_size` sentences at a time, also across calls until
        `reset_state()`: what bilm-tf and AllenNLP do).

        The first `skip` sentences are read but not given back: a run that goes on where another stopped gives, to the
        bit, what that one would have given.
        """
        if state not in STATES:
            raise ConfigError(f"state is {state!r}; expected one of {', '.join(STATES)}")
        if min(batch_size, 1 if batch_tokens is None else batch_tokens) < 1:
            raise ConfigError("batch_tokens and batch_size must be positive")
        selection = Selection.parse(layers, self.n_layers, dtype)
        tokenised = _tokenised(sentences)
        if state == "carried":
            return self._carrying(tokenised, selection, batch_size, skip)
        self._forget_what_changed()
        if state not in self._starts:
            self._starts[state] = self._after_boundaries(self._before(state))
        run, empty = partial(self._run, selection), partial(selection.empty, self.n_layers, self.dim)
        return self._independent(tokenised, run, empty, self._starts[state], self._budget(batch_tokens), skip)

    def encode(
        self,
        sentences: Iterable[Sentence],
        pooling: str = "mean",
        layers: LayersArgument = "average",
        *,
        normalize: bool = False,
        state: str = "fresh",
        batch_tokens: int | None = None,
    ) -> Array:
        """One vector per sentence, (n, 2D): pooled over its tokens; `normalize` makes its length 1."""
        pool = pooling_named(pooling, self.config.directions)
        if Selection.parse(layers, self.n_layers).weights is None:
            raise ConfigError("encode() gives one vector a sentence; layers='all' would be several: choose or mix them")
        rows = [pool(array) for array in self.embed(sentences, layers, state=state, batch_tokens=batch_tokens)]
        vectors = np.stack(rows) if rows else np.zeros((0, self.dim), dtype=np.float32)
        if normalize:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.where(norms > 0, norms, 1)
        return vectors

    def score(self, sentence: Sentence, state: str = "fresh") -> Scores:
        """How probable each token of one sentence is to the language model, after its left and before its right side.

        The model needs its softmax: `load(…, softmax=True)`.
        """
        return next(self.score_all([sentence], state=state))

    def score_all(
        self, sentences: Iterable[Sentence], *, state: str = "fresh", batch_tokens: int | None = None
    ) -> Iterator[Scores]:
        """The scores of any number of sentences, in order, computed in batches as `embed` does.

        Every sentence is scored alone, from the state "fresh" or "warm".
        """
        model = LanguageModel(self.bilm, self.vocabulary, self._layers)
        if state not in ("fresh", "warm"):
            raise ConfigError(f"state is {state!r}; every sentence is scored alone: expected fresh or warm")
        budget, start = self._budget(batch_tokens), self._before(state)
        empty = cache(lambda: model.scores([[]], start)[0][0])  # which has its boundaries to predict
        return self._independent(_tokenised(sentences), model.scores, empty, start, budget)

    def substitutes(self, sentence: Sentence, i: int, n: int = 10) -> list[Substitute]:
        """The n words of the vocabulary that fit best in place of token i, itself among them, with their probabilities.

        p(w) ∝ p(w | what is before token i) · p(w | what is after it) / p(w): the word that stands there has no say.
        """
        model = LanguageModel(self.bilm, self.vocabulary, self._layers)
        return model.substitutes(next(_tokenised([sentence])), self._before("fresh"), i, n)

    def fingerprint(self) -> str:
        """What tells this model from another: short, and the same for the same numbers wherever they were read from."""
        sums = [float(parameter.sum(dtype=torch.float64)) for parameter in self.bilm.parameters()]
        return hashlib.sha256(repr((self.config, sums)).encode()).hexdigest()[:16]

    def token_vectors(self, words: Sequence[str]) -> Array:
        """The context-independent vectors of words, (N, D): what the LSTMs read."""
        vectors: Array = self._encode_words(words).float().cpu().numpy()
        return vectors

    def ids(self, sentences: Iterable[Sentence]) -> Tensor:
        """What `Elmo` and `BiLM` take, boundaries included: character ids (B, T, C), or a word table's ids (B, T)."""
        split = list(_tokenised(sentences))
        if self.config.char_cnn is not None:
            ids = characters.sentence_ids(split, self.config.char_cnn.max_characters_per_token)
        else:
            assert self.vocabulary is not None
            ids = np.zeros((len(split), max(map(len, split), default=0) + 2), dtype=np.int64)
            for row, sentence in zip(ids, split, strict=True):
                row[: len(sentence) + 2] = self.vocabulary.ids(bounded(sentence))
        return torch.from_numpy(ids).to(self.device)

    def reset_state(self) -> None:
        """Forget what `state="carried"` has read."""
        self._carried = None

    @torch.inference_mode()
    def warm_state(self) -> State:
        """Where `state="warm"` starts: the model's stored state, or the one after a fixed text; (L, 2, 1, ·)."""
        self._forget_what_changed()
        if self._warm_state is None:
            self._warm_state = warm_state(self.bilm, [self._vectors([bounded(line.split())]) for line in TEXT])
        like = self.bilm.zero_state(1)
        return State(*(known.to(zeros) for known, zeros in zip(self._warm_state, like, strict=True)))

    def _before(self, state: str) -> State:
        """Where a sentence's boundaries begin; (L, 2, 1, ·)."""
        self._forget_what_changed()
        return self.warm_state() if state == "warm" else self.bilm.zero_state(1)

    @torch.inference_mode()
    def _after_boundaries(self, start: State) -> State:
        """Where the sentence's own tokens begin: forward after `<S>`, backward after `</S>`; (L, 2, 1, ·).

        Nobody sees the vectors of the boundaries, and from one starting state these two steps always end in the same
        place: they are computed once, and a sentence costs its tokens alone.
        """
        both = State(*(part.expand(-1, -1, 2, -1) for part in start))
        _, after = self.bilm.contextualize(self._vectors([[BEGIN_SENTENCE], [END_SENTENCE]]), Packing.of([1, 1]), both)
        directions = range(self.config.directions)  # direction k reads boundary k first
        return State(*(torch.stack([part[:, k, k : k + 1] for k in directions], dim=1) for part in after))

    def save(self, path: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write a model folder, the warm state in it; `torch.float16` halves its size."""
        folder.write(Pretrained(self.bilm, self.vocabulary, self.warm_state()), Path(path), dtype)

    def _weight_versions(self) -> int:
        return sum(parameter._version for parameter in self.bilm.parameters())

    def _forget_what_changed(self) -> None:
        """Whoever trains `bilm` changes its weights in place: what was computed from the old ones must go."""
        if self._weight_versions() != self._versions:
            self._versions = self._weight_versions()
            self._warm_state = None
            self._starts.clear()
            self.cache.clear()

    def _budget(self, batch_tokens: int | None) -> int:
        if batch_tokens is not None and batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {batch_tokens}; expected 1 or more")
        return batch_tokens or BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])

    def _independent(
        self,
        sentences: Iterator[list[str]],
        run: Run[Result],
        empty: Callable[[], Result],
        start: State,
        budget: int,
        skip: int = 0,
    ) -> Iterator[Result]:
        """What `run` makes of each sentence, all from the same state; of one without tokens, what `empty` gives."""
        for window in batches.windows(sentences, WINDOW_BATCHES * budget):
            skipped = min(skip, len(window))
            skip -= skipped
            results: dict[int, Result] = {}
            for rows in batches.by_length([len(sentence) for sentence in window], budget):
                batch = [window[row] for row in rows]
                if skipped == len(window):
                    self._vectors(batch)  # the cache must have seen them
                else:
                    every = State(*(part.expand(-1, -1, len(batch), -1) for part in start))
                    results.update(zip(rows, self._halving(batch, run, every)[0], strict=True))
            for row in range(skipped, len(window)):
                yield results.pop(row) if window[row] else empty()

    def _carrying(
        self, sentences: Iterator[list[str]], selection: Selection, batch_size: int, skip: int
    ) -> Iterator[Array]:
        for rows in batches.consecutive(sentences, batch_size):
            size = len(rows)
            before = self._carried if self._carried is not None else self.bilm.zero_state(size)
            if before.h.shape[2] < size:
                more = self.bilm.zero_state(size - before.h.shape[2])
                before = State(*(torch.cat(pair, dim=2) for pair in zip(before, more, strict=True)))
            start = State(before.h[:, :, :size], before.c[:, :, :size])
            arrays, after = self._halving([bounded(row) for row in rows], partial(self._run, selection), start)
            arrays = [np.ascontiguousarray(array[..., 1:-1, :]) for array in arrays]
            # Rows beyond a smaller batch keep theirs.
            pairs = zip(after, before, strict=True)
            self._carried = State(*(torch.cat([new, old[:, :, size:]], dim=2) for new, old in pairs))
            yield from arrays[min(skip, size) :]
            skip -= min(skip, size)

    def _halving(self, batch: list[list[str]], run: Run[Result], start: State) -> tuple[list[Result], State]:
        """Run a batch; where memory does not suffice, its two halves."""
        try:
            return run(batch, start)
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
            self._halving(batch[rows], run, State(*(part[:, :, rows] for part in start)))
            for rows in (slice(half), slice(half, None))
        ]
        (results, state), (more_results, more_state) = halves
        return results + more_results, State(*(torch.cat(p, dim=2) for p in zip(state, more_state, strict=True)))

    @torch.inference_mode()
    def _run(self, selection: Selection, batch: list[list[str]], start: State) -> tuple[list[Array], State]:
        """A batch of sentences ─▶ an array each, with a row per token given; and the state after them."""
        layers, packing, state = self._layers(batch, start)
        chosen = self._on_host(selection.apply(layers))  # (…, N, 2D)
        return [np.take(chosen, rows, axis=-2) for rows in packing.of_sentences()], state

    @torch.inference_mode()
    def _layers(self, batch: list[list[str]], start: State) -> tuple[list[Tensor], Packing, State]:
        """A batch of sentences ─▶ its layers (N, 2D), packed; and the state after them."""
        packing = Packing.of([len(sentence) for sentence in batch])
        layers, state = self.bilm.contextualize(self._vectors(batch, packing), packing, start)
        return layers, packing, state

    def _on_host(self, tensor: Tensor) -> Array:
        """The tensor as an array, valid until the next call: a GPU's comes through one pinned memory, used again."""
        if tensor.device.type == "cuda":
            size = tensor.numel() * tensor.element_size()
            if self._staging is None or len(self._staging) < size:
                self._staging = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            tensor = self._staging[:size].view(tensor.dtype).view(tensor.shape).copy_(tensor)
        array: Array = tensor.cpu().numpy()
        return array

    @torch.inference_mode()
    def _vectors(self, batch: list[list[str]], packing: Packing | None = None) -> Tensor:
        """Token vectors of a batch, (N, D): packed, or sentence after sentence."""
        numbers: dict[str, int] = {}
        for word in chain.from_iterable(batch):
            numbers.setdefault(word, len(numbers))
        vectors = self.cache.vectors(list(numbers)) if self.config.char_cnn else self._encode_words(list(numbers))
        index = np.fromiter((numbers[word] for word in chain.from_iterable(batch)), dtype=np.int64)
        if packing is not None:
            starts = np.cumsum([0, *(len(sentence) for sentence in batch)])
            index = index[starts[packing.sentence] + packing.step]
        return vectors[torch.from_numpy(index).to(self.device)]

    @torch.inference_mode()
    def _encode_words(self, words: Sequence[str]) -> Tensor:
        """Distinct words through the token encoder, (N, D)."""
        if not words:
            return next(self.bilm.parameters()).new_empty(0, self.config.lstm.projection_dim)
        if self.config.char_cnn is None:
            assert self.vocabulary is not None
            vectors: Tensor = self.bilm.token_encoder(torch.from_numpy(self.vocabulary.ids(words)).to(self.device))
            return vectors
        length = self.config.char_cnn.max_characters_per_token
        parts = [
            self.bilm.token_encoder(torch.from_numpy(characters.word_ids(some, length)).to(self.device))
            for some in batches.consecutive(words, WORDS_AT_ONCE)
        ]
        return torch.cat(parts)


def _tokenised(sentences: Iterable[Sentence]) -> Iterator[list[str]]:
    if isinstance(sentences, str):
        raise DataError("expected a list of sentences, found one string; write [text]")
    return (tokens.words(sentence) if isinstance(sentence, str) else list(sentence) for sentence in sentences)


def _out_of_memory(error: RuntimeError) -> bool:
    # The CPU's allocator has no exception of its own.
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
