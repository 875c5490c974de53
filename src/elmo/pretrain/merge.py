"""SORTED PARTS ─▶ SHARDS: the sentences of all parts in the order of their keys, with one number per distinct word.

A shard is a range of keys. Every part is sorted, so a range is one slice of each part. The slices are joined, sorted
and deduplicated, a few million tokens at a time. Words are first numbered in the order in which they are found; when
all are counted, these numbers are replaced by the rows of words.txt.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.files import replacing, write_array, write_array_pieces
from elmo.pretrain.corpus import BEGIN, END, Rows, Shard
from elmo.pretrain.sorted_parts import Ids, Keys, Lengths, Part, reading, rearranged
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmo.text.vocabulary import UNKNOWN

RANGE_TOKENS = 4_000_000  # sorted together in memory
_CHUNK = 1 << 20

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyRange:
    """The keys from `low` to `high` of some parts, which become one shard or several."""

    name: str
    parts: tuple[Part, ...]
    low: int
    high: int
    tokens: int  # approximately

    def pieces(self, n: int) -> list["KeyRange"]:
        """Split it into `n` equal ranges."""
        ends = [self.low + (self.high - self.low) * k // n for k in range(n + 1)]
        return [
            KeyRange(f"{self.name}-{k:05d}", self.parts, ends[k], ends[k + 1], self.tokens // n)
            for k in range(n)
            if ends[k] < ends[k + 1]
        ]


@dataclass(frozen=True)
class Merged:
    """A merged shard, whose words do not have their final rows yet."""

    name: str
    sentences: int
    tokens: int
    duplicates: int  # sentences that were removed


def number_words(parts: Sequence[Part], first: Sequence[str]) -> list[str]:
    """Number all distinct words, beginning with `first`; write each part's numbers beside it, and return the words.

    A token of the text that looks like a sentence boundary is counted as `<UNK>`: it must not end the sentence.
    """
    table: defaultdict[str, int] = defaultdict()
    table.default_factory = table.__len__
    for word in first:
        table[word]
    for part in parts:
        words = (UNKNOWN if word in (BEGIN_SENTENCE, END_SENTENCE) else word for word in part.words())
        write_array(part.path("numbers.npy"), np.fromiter(map(table.__getitem__, words), np.uint32))
    return list(table)


def merge(keys: KeyRange, folder: Path, deduplicate: bool, n_words: int) -> tuple[Merged, Counts]:
    """Write a shard as word numbers, unless an earlier run did; count how often each word occurs in it."""
    path, summary = folder / f"{keys.name}.bin", folder / f"{keys.name}.json"
    if not summary.exists():
        total = np.zeros(3, dtype=np.int64)
        with replacing(path) as temporary, temporary.open("wb") as file:
            for some in keys.pieces(-(-keys.tokens // RANGE_TOKENS) or 1):
                numbers, counted = _merged(some, deduplicate)
                file.write(numbers.data)
                total += counted
        with replacing(summary) as temporary:
            temporary.write_text(json.dumps(total.tolist()), encoding="utf-8")
    counts = np.zeros(n_words, dtype=np.int64)
    with reading(summary, folder.parent):
        merged = Merged(keys.name, *map(int, json.loads(summary.read_text(encoding="utf-8"))))
    with reading(path, folder.parent):
        for chunk in _chunks(path):
            counts += np.bincount(chunk, minlength=n_words)
        if counts.sum() != merged.tokens + 2 * merged.sentences:
            raise ValueError("a shard of another size")
    return merged, counts


def write_shard(merged: Merged, folder: Path, corpus: Path, rows: Path) -> Shard:
    """Write a shard as rows of words.txt; the file `rows` maps word numbers to them."""
    table = np.load(rows, mmap_mode="r", allow_pickle=False)
    name = f"{merged.name}.npy"
    size = merged.tokens + 2 * merged.sentences
    crc = 0

    def pieces() -> Iterator[Rows]:
        nonlocal crc
        for chunk in _chunks(folder / f"{merged.name}.bin"):
            rows_of_chunk = table[chunk].astype("<u4")
            crc = zlib.crc32(rows_of_chunk.data, crc)
            yield rows_of_chunk

    write_array_pieces(corpus / name, "<u4", (size,), pieces())
    return Shard(name, merged.tokens, merged.sentences, crc)


def _merged(wanted: KeyRange, deduplicate: bool) -> tuple[Rows, tuple[int, int, int]]:
    """Sort the sentences of a range of keys; returns them with boundaries, and counts sentences, tokens, duplicates."""
    keys, lengths, ids = _slices(wanted)
    order = np.argsort(keys, kind="stable")
    keys, ids, lengths = keys[order], rearranged(ids, lengths, order), lengths[order]
    duplicates = 0
    if deduplicate:
        kept = np.flatnonzero(~_repeats(keys, ids, lengths))
        duplicates = len(keys) - len(kept)
        ids, lengths = rearranged(ids, lengths, kept), lengths[kept]
    return _bounded(ids, lengths), (len(lengths), len(ids), duplicates)


def _slices(wanted: KeyRange) -> tuple[Keys, Lengths, Ids]:
    """Collect the sentences of a range of keys, part after part."""
    keys, lengths, ids = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], [np.zeros(0, np.uint32)]
    for part in wanted.parts:
        all_keys = part.array("keys")
        first = int(np.searchsorted(all_keys, np.uint64(wanted.low), side="left"))
        last = int(np.searchsorted(all_keys, np.uint64(wanted.high - 1), side="right"))
        if first < last:
            ends = part.array("ends")
            start = int(ends[first - 1]) if first else 0
            keys.append(np.array(all_keys[first:last]))
            lengths.append(np.diff(ends[first:last], prepend=start))
            ids.append(part.array("numbers")[part.array("ids")[start : int(ends[last - 1])]])
    return np.concatenate(keys), np.concatenate(lengths), np.concatenate(ids)


def _repeats(keys: Keys, ids: Ids, lengths: Lengths) -> npt.NDArray[np.bool_]:
    """Find the sentences that repeat the first one with their key. Ids are compared, because a key is only a hash."""
    new = np.diff(keys, prepend=~keys[:1]) != 0
    leader = np.maximum.accumulate(np.where(new, np.arange(len(keys)), 0))
    repeats: npt.NDArray[np.bool_] = ~new & (lengths == lengths[leader])
    some = np.flatnonzero(repeats)
    differ = rearranged(ids, lengths, some) != rearranged(ids, lengths, leader[some])
    ends = np.cumsum(lengths[some])
    found = np.diff(np.concatenate([[0], np.cumsum(differ)])[ends], prepend=0)
    repeats[some] = found == 0
    return repeats


def _bounded(ids: Ids, lengths: Lengths) -> Rows:
    """Put `<S>` and `</S>` around each sentence."""
    ends = np.cumsum(lengths + 2)
    rows = np.empty(len(ids) + 2 * len(lengths), dtype=np.uint32)
    words = np.ones(len(rows), dtype=bool)
    words[ends - lengths - 2] = words[ends - 1] = False
    rows[words] = ids
    rows[ends - lengths - 2], rows[ends - 1] = BEGIN, END
    return rows


def _chunks(path: Path) -> Iterator[Rows]:
    with path.open("rb") as file:
        while len(chunk := np.fromfile(file, dtype=np.uint32, count=_CHUNK)):
            yield chunk
