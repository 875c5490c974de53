"""WORDS ─▶ TOKEN VECTORS, cached: the vector of a word does not depend on context, so it is computed once.

The cache has a fixed capacity and drops the least recently used words. It changes the time of a result, not its value.
Any number of threads may use it at once: it is read and changed under a lock, and the encoder runs outside the lock.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from threading import Lock
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.model.bilm import BiLM
from elmo.model.device import without_autocast
from elmo.text import batches, characters
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmo.text.lexicon import Lexicon
from elmo.text.vocabulary import Vocabulary

WORDS_AT_ONCE = 1024  # words per batch of the token encoder
LONGEST = 256  # characters of a word that is cached: the capacity counts words, and longer ones are hardly seen twice


def with_boundaries(sentence: Sequence[str]) -> list[str]:
    """Return the sentence with `<S>` and `</S>` around it."""
    return [BEGIN_SENTENCE, *sentence, END_SENTENCE]


class WordEncoder:
    """Encodes words with a biLM's token encoder: by their characters, or by their row in the word table, or by both."""

    def __init__(self, bilm: BiLM, vocabulary: Vocabulary | None = None, lexicon: Lexicon | None = None) -> None:
        self.bilm = bilm
        self.vocabulary = vocabulary
        self.lexicon = lexicon

    @torch.inference_mode()
    def __call__(self, words: Sequence[str], encode: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the vectors of words, (N, D); `encode` computes what the biLM's own token encoder would compute."""
        weight, config = self.bilm.weight, self.bilm.config
        if not words:
            return weight.new_empty(0, config.lstm.projection_dim)
        encode = self.bilm.token_encoder if encode is None else encode
        with without_autocast(weight):
            if config.n_words is not None:
                assert self.vocabulary is not None
                rows = torch.from_numpy(self.vocabulary.ids(words)).to(weight.device)
                vectors: Tensor = encode(rows)
                return vectors
            parts = [
                encode(torch.from_numpy(self._word_ids(some)).to(weight.device))
                for some in batches.consecutive(words, WORDS_AT_ONCE)
            ]
            return torch.cat(parts)

    def _word_ids(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        cnn = self.bilm.config.char_cnn
        if cnn is not None:
            return characters.word_ids(words, cnn.max_characters_per_token)
        assert self.lexicon is not None
        return self.lexicon.ids(words)

    def ids(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return the input of `BiLM`, with boundaries: character ids (B, T, C), or word ids (B, T)."""
        cnn = self.bilm.config.char_cnn
        if cnn is not None:
            ids = characters.sentence_ids(sentences, cnn.max_characters_per_token)
        elif self.lexicon is not None:
            ids = self.lexicon.sentence_ids(sentences)
        else:
            assert self.vocabulary is not None
            ids = np.zeros((len(sentences), max(map(len, sentences), default=0) + 2), dtype=np.int64)
            for row, sentence in zip(ids, sentences, strict=True):
                row[: len(sentence) + 2] = self.vocabulary.ids(with_boundaries(sentence))
        return torch.from_numpy(ids).to(self.bilm.weight.device)


class WordCache:
    """Stores up to `capacity` word vectors, computed by `encode` when first used. A capacity of 0 turns it off."""

    def __init__(self, encode: Callable[[Sequence[str]], Tensor], capacity: int) -> None:
        self.capacity = capacity
        self.encode = encode
        self._lock = Lock()
        self._rows: OrderedDict[str, int] = OrderedDict()  # word ─▶ row of the table, least recently used first
        self._table: Tensor | None = None  # (rows in use or more, D)
        _caches.add(self)

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Remove every word. Words that another thread is encoding now are not stored either."""
        with self._lock:
            self._forget()

    @torch.inference_mode()
    def vectors(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of distinct words, (N, D)."""
        if not words or len(words) > self.capacity:
            return self.encode(words)
        with self._lock:
            rows = self._rows
            new = [word for word in words if word not in rows]
            known = [word for word in words if word in rows] if new else words
            for word in known:
                rows.move_to_end(word)  # now the most recently used
            found = self._gather([rows[word] for word in known])
        if not new:
            assert found is not None
            return found
        made = self.encode(new)
        with self._lock:
            if self._rows is rows:  # else it was cleared: these may be from old weights
                self._keep(new, made)
        if found is None:
            return made
        place = {word: number for number, word in enumerate([*known, *new])}
        return torch.cat([found, made])[torch.tensor([place[word] for word in words], device=made.device)]

    def _gather(self, rows: list[int]) -> Tensor | None:
        """Return a copy of these rows: the table may change as soon as the lock is released."""
        if self._table is None:
            return None
        return self._table[torch.tensor(rows, device=self._table.device, dtype=torch.long)]

    def _keep(self, words: Sequence[str], vectors: Tensor) -> None:
        """Store words that were missing; another thread may have stored some of them since."""
        new = [row for row, word in enumerate(words) if word not in self._rows and len(word) <= LONGEST]
        used = len(self._rows)
        needed = min(used + len(new), self.capacity)
        # Grow before any word is removed: if memory runs out here, the cache stays as it was.
        if self._table is None or needed > len(self._table):
            grown = vectors.new_empty(min(max(2 * needed, 1024), self.capacity), vectors.shape[1])
            if self._table is not None:
                grown[:used] = self._table[:used]
            self._table = grown
        try:
            free = list(range(used, needed))
            oldest = list(islice(self._rows, len(new) - len(free)))
            rows = free + [self._rows.pop(word) for word in oldest]
            self._table[torch.tensor(rows, device=vectors.device, dtype=torch.long)] = vectors[new]
            self._rows.update(zip((words[row] for row in new), rows, strict=True))
        except BaseException:  # Ctrl-C, too: rows and words must not be half changed
            self._forget()
            raise

    def _forget(self) -> None:
        self._rows = OrderedDict()
        self._table = None

    def after_fork(self) -> None:
        """Get a lock that is free: a thread that held it has stayed in the other process, perhaps half-way."""
        if self._lock.locked():
            self._forget()
        self._lock = Lock()


_caches: WeakSet[WordCache] = WeakSet()


def _renew_locks() -> None:
    for cache in list(_caches):
        cache.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_renew_locks)
