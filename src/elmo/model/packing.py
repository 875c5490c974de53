"""SENTENCES OF DIFFERENT LENGTHS ─▶ ONE ROW PER TOKEN: time step after time step, longest sentence first, no padding.

    a b c        step:   0     1    2
    d e     ─▶   rows:  a d f  b e  c          (three rows are active at step 0, two at 1, one at 2)
    f

A sentence that has ended is no longer among the first rows, so its LSTM state stays unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Packing:
    """The order of packed rows: the sentence and the place of each."""

    order: npt.NDArray[np.int64]  # (B,) sentences, longest first
    rows: list[int]  # (T,) number of sentences active at each step
    sentence: npt.NDArray[np.int64]  # (N,) the sentence of each packed row
    step: npt.NDArray[np.int64]  # (N,) its place in that sentence
    mirror: npt.NDArray[np.int64]  # (N,) the packed row at the same place from the sentence's other end

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "Packing":
        """Pack sentences of these lengths."""
        given = np.asarray(lengths, dtype=np.int64)
        order = np.argsort(-given, kind="stable")
        descending = given[order]
        longest = int(descending[0]) if len(descending) else 0
        # Active at step t: as many as are longer than t.
        rows = np.searchsorted(-descending, -np.arange(longest), side="left")
        starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
        step = np.repeat(np.arange(longest), rows)
        rank = np.arange(starts[-1]) - starts[step]
        mirror = starts[descending[rank] - 1 - step] + rank
        return cls(order, rows.tolist(), order[rank], step, mirror)

    def of_sentences(self) -> list[npt.NDArray[np.int64]]:
        """Return the packed rows of each sentence, in the order of its tokens."""
        starts = np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)
        lengths = np.bincount(self.sentence, minlength=len(self.order))
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(self.order))
        return [starts[:length] + row for length, row in zip(lengths, rank, strict=True)]
