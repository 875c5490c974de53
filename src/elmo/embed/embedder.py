"""TEXT ─▶ ARRAYS: `elmo.load(…)` returns an `Embedder`, which tokenizes, runs the biLM in batches and selects layers.

any number of sentences ─▶ one array (L+1, tokens, 2D) per sentence, in order
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmo.embed.arrays import Staging, embed_sentences
from elmo.embed.language_model import LanguageModel, Scores, Substitute, SubstitutesByDirection
from elmo.embed.padded import padded_layers
from elmo.embed.runner import Runner
from elmo.embed.selection import Array, LayersArgument
from elmo.embed.sentence_vectors import SentencePooling, sentence_pooling
from elmo.embed.sentences import MAX_SENTENCE_TOKENS, Sentence, tokenize_sentences
from elmo.embed.word_store import WordStore
from elmo.embed.words import WordCache, WordEncoder
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.device import PRECISIONS, device_named
from elmo.model.layers import Layers
from elmo.model.lstm import State
from elmo.packaged import DEFAULT
from elmo.text import tokens
from elmo.weights import folder, source
from elmo.weights.folder import Pretrained

CACHE_BYTES = 64 << 20  # size of the word cache


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
    word_cache: str | Path | None = None,
) -> "Embedder":
    """Load a model: a folder, an archive, an HDF5 or a checkpoint, a hub id, an installed or a published name.

    The default is the English model that comes with the package. Folders of ELMoForManyLangs and training runs of
    bilm-tf are read as they are.

    `options` is the path of an options.json that is not beside its weights. With `token_embeddings` and its
    `vocabulary`, words are looked up in that file instead of being read as characters. `softmax` also reads the softmax
    of a folder or a checkpoint, which `score` and `substitutes` need. `precision="bfloat16"` is faster, and less exact,
    on GPUs and on processors with instructions for it; `precision="int8"` on CPUs, whatever the precision of the files.
    `cache_bytes` is the size of the word cache in memory, 0 for none. `word_cache` is a folder that keeps word vectors
    for later processes (docs/cpu.md).
    """
    where = device_named(device)
    read = source.read(
        model, options=options, vocabulary=vocabulary, token_embeddings=token_embeddings, softmax=softmax
    )
    embedder = Embedder(read, device=where, precision=precision, cache_bytes=cache_bytes, name=str(model))
    embedder.runner.sole_owner = True  # nobody else has read these files
    if word_cache is not None and embedder.config.n_words is None:  # a word table is on disk already
        weight, dim = embedder.runner.module.weight, embedder.config.lstm.projection_dim
        embedder.runner.store = WordStore(word_cache, embedder.word_fingerprint(), weight, dim)
    return embedder


class Embedder:
    """A biLM ready for use. Every result depends on the sentence only, except with `state="carried"`.

    Any number of threads may use one Embedder at once. It computes in the dtype of its weights, also under
    `torch.autocast`. Weights may be trained or replaced between calls: cached vectors of the old ones are dropped.
    """

    def __init__(
        self,
        model: Pretrained,
        *,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        cache_bytes: int = CACHE_BYTES,
        name: str | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise ConfigError(f"precision is {precision!r}; expected one of {', '.join(PRECISIONS)}")
        _check_int8(precision, torch.device(device))
        model.bilm.to(torch.device(device), PRECISIONS[precision]).eval().freeze()
        self._begin(model, cache_bytes, name, precision)

    def _begin(
        self, model: Pretrained, cache_bytes: int, name: str | None, precision: str, carried: State | None = None
    ) -> None:
        self.name = name
        self.precision = precision
        self.config = model.bilm.config
        self.vocabulary = model.vocabulary
        self.sif = model.sif  # the statistics of `pooling="sif"`
        self._lexicon = model.lexicon
        self._n_parameters = model.bilm.n_parameters()
        self._cache_bytes = cache_bytes
        self._encoder = WordEncoder(model.bilm, model.vocabulary, model.lexicon)
        # Public, for code that needs more than `embed` gives, such as `embed_file`.
        self.runner = Runner(model.bilm, self._encoder, cache_bytes, model.warm_state, precision == "int8")
        self.runner.carried = carried
        self._staging = Staging()

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r}, "
        weight = self.runner.module.weight
        dtype = "int8" if self.precision == "int8" else str(weight.dtype).removeprefix("torch.")
        return (
            f"Embedder({name}{self.n_layers} layers of {self.dim}, {self._n_parameters:,} parameters, "
            f"{dtype} on {self.device})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs, also in another process: no locks, and nothing that is computed when needed.

        So `pickle` gives the same bytes before and after use, on which the cache of `datasets` relies. Only a carried
        state is in it: results depend on it.
        """
        model = Pretrained(self.bilm, self.vocabulary, self.runner.stored_state(), self._lexicon, self.sif)
        return {
            "model": model,
            "cache_bytes": self._cache_bytes,
            "name": self.name,
            "precision": self.precision,
            "carried": self.runner.carried,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._begin(**state)

    @property
    def bilm(self) -> BiLM:
        """The biLM, a PyTorch module. Until it is first read, a loaded model has one copy of its weights, packed."""
        return self.runner.bilm

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.runner.device

    @property
    def cache(self) -> WordCache:
        """Cache of word vectors: `len(cache)` is the number of words, `cache.clear()` empties it."""
        return self.runner.words

    @property
    def dim(self) -> int:
        """2D, the width of every vector."""
        return self.config.output_dim

    @property
    def n_layers(self) -> int:
        """Number of layers that `layers="all"` returns."""
        return self.config.n_layers

    def to(self, device: torch.device | str) -> "Embedder":
        """Move the model to a device, by its name or "auto"; the word cache starts empty there. Returns itself."""
        where = device_named(str(device))
        _check_int8(self.precision, where)
        self.bilm.to(where)
        self.runner.forget_if_changed()
        return self

    def tokens(self, text: str) -> list[tokens.Token]:
        """Tokenize a raw text; the tokens have character offsets."""
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
        max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS,
    ) -> Iterator[Array]:
        """Yield one array per sentence, in order: (L+1, tokens, 2D) for all layers, (tokens, 2D) for one.

        A string is raw text and is tokenized; a list is tokens, used as they are. The stream may be endless: a window
        of about four batches of `batch_tokens` tokens is in memory, and sorted by length; on a CPU with more than four
        threads, two windows or more. A sentence of more than `max_sentence_tokens` tokens is refused, because memory
        and time grow with it; None sets no limit.

        `state` is the initial state of the LSTMs: "fresh" (zeros for every sentence), "warm" (one stored state for
        every sentence), or "carried" (from batch to batch, row by row, `batch_size` sentences at a time, also across
        calls until `reset_state()`, as in bilm-tf and AllenNLP). The carried state belongs to the model: threads that
        use it compute one batch after the other, each from the state that the last one left, in whichever thread. For
        independent streams, give each its own `Embedder(Pretrained(model.bilm))`: they share the weights.
        """
        return embed_sentences(
            self.runner,
            sentences,
            layers,
            dtype=dtype,
            state=state,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
            max_sentence_tokens=max_sentence_tokens,
            staging=self._staging,
        )

    def layers(
        self,
        sentences: Iterable[Sentence],
        *,
        boundaries: bool = False,
        state: str = "fresh",
        batch_tokens: int | None = None,
        max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS,
    ) -> Layers:
        """Return all layers of a batch as one padded tensor (L+1, B, T, 2D) on the model's device, and its mask (B, T).

        This is what `ScalarMix` and networks of your own read. Unlike `Elmo`, which takes ids and can train the biLM,
        it uses the word cache and computes no gradient. `boundaries` keeps `<S>` and `</S>`. With `state="carried"`
        the sentences are one batch.
        """
        split = tokenize_sentences(sentences, max_sentence_tokens)
        return padded_layers(self.runner, split, boundaries=boundaries, state=state, batch_tokens=batch_tokens)

    def encode(
        self,
        sentences: Iterable[Sentence],
        pooling: str = "mean",
        layers: LayersArgument | None = None,
        *,
        normalize: bool = False,
        state: str = "fresh",
        batch_tokens: int | None = None,
        max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS,
    ) -> Array:
        """Return one vector per sentence, (n, dim), pooled over its tokens; `normalize` scales it to length 1.

        `pooling` is "mean", "max", "first-last", "sif", or a sentence head: the folder of a trained task `sentences`,
        or the name of an installed one (docs/sentences.md compares them). `layers` is by default the average; "sif" and
        heads have their own.
        """
        if isinstance(layers, str) and layers == "all":
            raise ConfigError("encode() returns one vector per sentence; layers='all' gives several. Choose one")
        chosen = self.pooling(pooling, layers)
        waiting: deque[list[str]] = deque()  # read, but not embedded yet

        def read() -> Iterator[list[str]]:
            for split in tokenize_sentences(sentences, max_sentence_tokens):
                waiting.append(split)
                yield split

        arrays = self.embed(
            read(), chosen.layers, state=state, batch_tokens=batch_tokens, max_sentence_tokens=max_sentence_tokens
        )
        rows = [chosen.pool(array, waiting.popleft()) for array in arrays]
        vectors = np.stack(rows) if rows else np.zeros((0, chosen.dim), dtype=np.float32)
        if normalize:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.where(norms > 0, norms, 1)
        return vectors

    def pooling(
        self, name: str, layers: LayersArgument | None = None, default: LayersArgument = "average"
    ) -> SentencePooling:
        """Return the pooling of that name for this model, and the layers that it needs; or refuse them."""

        def fingerprint() -> str:
            return self.runner.once("fingerprint", self.fingerprint)  # it takes longer than a few sentences

        return sentence_pooling(name, layers, self.config, self.sif, fingerprint, default)

    def score(
        self, sentence: Sentence, state: str = "fresh", *, max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS
    ) -> Scores:
        """Return the log-probability of each token of a sentence, given the tokens before it, and given those after it.

        The model needs its softmax: `load(…, softmax=True)`.
        """
        return next(self.score_all([sentence], state=state, max_sentence_tokens=max_sentence_tokens))

    def score_all(
        self,
        sentences: Iterable[Sentence],
        *,
        state: str = "fresh",
        batch_tokens: int | None = None,
        max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS,
    ) -> Iterator[Scores]:
        """Yield the scores of any number of sentences, in order, computed in batches as `embed` does.

        Every sentence is scored alone, from the state "fresh" or "warm".
        """
        model = LanguageModel(self.runner, self.vocabulary)
        if state not in ("fresh", "warm"):
            raise ConfigError(f"state is {state!r}; every sentence is scored alone: expected fresh or warm")
        budget = self.runner.batch_tokens(batch_tokens)
        return model.score_all(tokenize_sentences(sentences, max_sentence_tokens), state, budget)

    def substitutes(self, sentence: Sentence, i: int, n: int = 10) -> list[Substitute]:
        """Return the n words of the vocabulary that fit best in the place of token i, with their probabilities.

        p(w) ∝ p(w | tokens before i) · p(w | tokens after i) / p(w). Token i itself is not read, and can be among them.
        """
        return self.substitutes_by_direction(sentence, i, n).both

    def substitutes_by_direction(self, sentence: Sentence, i: int, n: int = 10) -> SubstitutesByDirection:
        """Return what `substitutes` returns, and the words that each language model alone expects in that place.

        The probabilities of one direction are those of `score`: of all words, `</S>` (or `<S>`) and `<UNK>`.
        """
        return LanguageModel(self.runner, self.vocabulary).substitutes(next(tokenize_sentences([sentence])), i, n)

    def fingerprint(self) -> str:
        """Return a short hash of the config and the weights, the same from whatever file they were read.

        The softmax does not count: vectors do not depend on it. With `precision="int8"` it is another one, because the
        vectors are.
        """
        sums = self.runner.read_weights(lambda bilm: _sums(bilm.token_encoder) + _sums(bilm.lstms))
        return _short_hash(replace(self.config, n_softmax=None), sums, *self._rounding())

    def word_fingerprint(self) -> str:
        """Return a short hash of what `token_vectors` depends on: the same for models that differ in LSTMs only."""
        lexicon = None if self._lexicon is None else (self._lexicon.words, self._lexicon.characters)
        sums = self.runner.read_weights(lambda bilm: _sums(bilm.token_encoder))
        encoder = (self.config.char_cnn, self.config.many_langs, self.config.lstm.projection_dim)
        return _short_hash(encoder, lexicon, sums, *self._rounding())

    def _rounding(self) -> list[str]:
        return ["int8"] if self.precision == "int8" else []

    def token_vectors(self, words: Sequence[str]) -> Array:
        """Return the context-independent vectors of words, (N, D), the input of the LSTMs."""
        vectors: Array = self.runner.encode(next(tokenize_sentences([words], None))).float().cpu().numpy()
        return vectors

    def ids(self, sentences: Iterable[Sentence]) -> Tensor:
        """Return the input of `Elmo` and `BiLM`, with boundaries: character ids (B, T, C), or word ids (B, T)."""
        return self._encoder.ids(list(tokenize_sentences(sentences)))

    def reset_state(self) -> None:
        """Set the state that `state="carried"` carries back to zeros."""
        self.runner.reset_carried()

    def warm_state(self) -> State:
        """Return the initial state of `state="warm"`, (L, 2, 1, ·): the model's, or the one after a fixed text."""
        return self.runner.before("warm")

    def save(self, path: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write a model folder, with the warm state of the weights as they are stored there.

        `torch.float16` halves the size of a float32 model. `torch.int8` makes it a quarter, in files of at most 48 MB.
        """
        stored = self
        if dtype is not None and dtype != self.bilm.weight.dtype:
            stored = Embedder(Pretrained(folder.rounded(self.bilm, dtype), self.vocabulary, lexicon=self._lexicon))
        model = Pretrained(self.bilm, self.vocabulary, stored.warm_state(), self._lexicon, self.sif)
        folder.write(model, Path(path).expanduser(), dtype)


def _sums(module: nn.Module) -> list[int]:
    """Return the sum of the bits of each parameter's values, as integers: the same in any order, on any device."""
    return [int(parameter.float().view(torch.int32).sum()) for parameter in module.parameters()]


def _short_hash(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _check_int8(precision: str, device: torch.device) -> None:
    if precision == "int8" and device.type != "cpu":
        raise ConfigError(f"precision is 'int8' and the device {str(device)!r}; int8 is for a CPU: choose device='cpu'")
