"""CORPUS ─▶ WINDOWS: sentences one after another in B rows, read T tokens at a time in each direction.

    row 0   <S> the cat sat </S> <S> it rain|ed </S> …        one window of T tokens per step; the LSTM state is
    row 1   … </S> <S> who knows ? </S> <S> n|obody …         carried from window to window along each row

The sentences of every shard are shuffled again in every epoch, and the shard is cut into B equal rows; the backward
stream reads each sentence in reverse. A window depends only on the seed and on its number: continuing after step k
means asking for window k. Each of several processes reads only its own rows.
"""

from functools import lru_cache

import numpy as np

from elmo.errors import DataError
from elmo.messages import counted
from elmo.pretrain.corpus import Corpus, Rows, Shard, end_to_end, sentences_in

SHUFFLE = 1  # random numbers for different purposes are independent sequences: this is the one for shuffling


class Streams:
    """The training windows of all B rows, or of this process's rows."""

    def __init__(
        self,
        corpus: Corpus,
        batch: int,
        steps: int,
        *,
        seed: int = 0,
        directions: int = 2,
        same_text: bool = False,
        rows: range | None = None,
    ) -> None:
        self.corpus, self.batch, self.steps, self.seed = corpus, batch, steps, seed
        self.own = rows if rows is not None else range(batch)
        self.directions = directions
        self._same_text = same_text
        columns = [len(shard) // batch for shard in corpus.train]
        self.columns_per_epoch = sum(columns)
        self._columns = np.array(columns)
        self._shard = lru_cache(maxsize=2 * directions)(self._read_shard)
        if self.columns_per_epoch <= steps:
            found = sum(len(shard) for shard in corpus.train)
            raise DataError(
                f"{corpus.folder}: {found:,} training tokens in {counted(len(corpus.train), 'shard')} do not fill one "
                f"batch of {batch} rows × {steps + 1} tokens; expected more text, a smaller batch.size or fewer shards"
            )

    @property
    def windows_per_epoch(self) -> float:
        """The number of steps that read the text once."""
        return self.columns_per_epoch / self.steps

    def window(self, number: int) -> Rows:
        """Return the word rows (S, B, T + 1) of step `number`: the first T are read, the last T are predicted."""
        first = number * self.steps
        parts = []
        while first <= (number + 1) * self.steps:
            epoch, column = divmod(first, self.columns_per_epoch)
            order = self._rng(epoch).permutation(len(self._columns))
            ends = np.cumsum(self._columns[order])
            place = int(np.searchsorted(ends, column, side="right"))
            shard = int(order[place])
            column -= int(ends[place]) - int(self._columns[shard])
            size = min(int(self._columns[shard]) - column, (number + 1) * self.steps + 1 - first)
            directions = [self._shard(direction, epoch, shard) for direction in range(self.directions)]
            parts.append(np.stack([text[:, column : column + size] for text in directions]))
            first += size
        return np.concatenate(parts, axis=2)

    def _rng(self, epoch: int, *which: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, SHUFFLE, epoch, *which])

    def _read_shard(self, direction: int, epoch: int, number: int) -> Rows:
        """Shuffle a shard and return this process's part of it, (rows, columns)."""
        shard: Shard = self.corpus.train[number]
        rng = self._rng(epoch, number, 0 if self._same_text else direction)
        columns = int(self._columns[number])
        first, last = self.own.start * columns, self.own.stop * columns
        text = shuffled(self.corpus.rows(shard), rng, first, last, reverse=direction == 1)
        return text.reshape(len(self.own), columns)


def shuffled(text: Rows, rng: np.random.Generator, first: int, last: int, reverse: bool = False) -> Rows:
    """Return tokens `first` to `last` of the text with its sentences shuffled, each in reverse order if `reverse`."""
    starts, lengths = sentences_in(text)
    order = rng.permutation(len(starts))
    ends = np.cumsum(lengths[order])
    some = slice(int(np.searchsorted(ends, first, side="right")), int(np.searchsorted(ends, last, side="left")) + 1)
    lengths, starts, ends = lengths[order[some]], starts[order[some]], ends[some]
    before = int(ends[0] - lengths[0]) if len(ends) else first
    return end_to_end(text, starts, lengths, reverse)[first - before : last - before]
