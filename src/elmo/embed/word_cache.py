"""WORDS ─▶ TOKEN VECTORS, remembered: x_k depends on the word alone, so it is computed once and kept across calls.

The cache is bounded; the words unused for longest make room. It changes the time a result takes, not the result.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import torch
from torch import Tensor


class WordCache:
    """At most `capacity` word vectors, made by `encode` when first asked for. A capacity of 0 keeps none."""

    def __init__(self, encode: Callable[[Sequence[str]], Tensor], capacity: int) -> None:
        self.capacity = capacity
        self._encode = encode
        self._rows: dict[str, int] = {}  # word ─▶ row of the table, least recently used first
        self._table: Tensor | None = None  # (rows in use or more, D)

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Forget every word."""
        self._rows.clear()
        self._table = None

    def vectors(self, words: Sequence[str]) -> Tensor:
        """The vectors of distinct words, (N, D)."""
        if len(words) > self.capacity:
            return self._encode(words)
        new = []
        for word in words:
            row = self._rows.pop(word, None)
            if row is None:
                new.append(word)
            else:
                self._rows[word] = row  # now the most recently used
        if new:
            vectors = self._encode(new)
            rows = self._make_room(len(new), vectors)
            assert self._table is not None
            self._table[torch.tensor(rows, device=vectors.device)] = vectors
            self._rows.update(zip(new, rows, strict=True))
        assert self._table is not None
        return self._table[torch.tensor([self._rows[word] for word in words], device=self._table.device)]

    def _make_room(self, count: int, like: Tensor) -> list[int]:
        """Rows for so many new words: free ones first, then those of the words unused for longest."""
        used = len(self._rows)
        needed = min(used + count, self.capacity)
        # Grow before any word is forgotten: where memory runs out here, the cache is as it was.
        if self._table is None or needed > len(self._table):
            grown = like.new_empty(min(max(2 * needed, 1024), self.capacity), like.shape[1])
            if self._table is not None:
                grown[:used] = self._table[:used]
            self._table = grown
        free = list(range(used, needed))
        oldest = list(islice(self._rows, count - len(free)))
        return free + [self._rows.pop(word) for word in oldest]
