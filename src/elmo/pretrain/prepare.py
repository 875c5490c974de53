"""TEXT ─▶ CORPUS FOLDER: text of any size, on all cores, in bounded memory. `corpus.py` describes the folder.

    read     text in blocks of a few megabytes ─▶ one sorted part per block         (sorted_parts.py, in parallel)
    merge    parts ─▶ shards: shuffled, without duplicates, some of them held out   (merge.py, in parallel)
    write    words by descending count ─▶ words.txt, vocabulary.txt, shards, corpus.json

In memory are the table of distinct words and, per process, one block or a few million tokens of a shard. Everything
else is in `OUT.part/`, and finished stages are kept there: an interrupted run continues when it is called again. The
result depends neither on the number of processes nor on interruptions.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmo.errors import DataError
from elmo.files import replacing, write_array
from elmo.pretrain.corpus import FORMAT, MANIFEST, VOCABULARY, WORDS
from elmo.pretrain.merge import Counts, KeyRange, Merged, merge, number_words, write_shard
from elmo.pretrain.prepare_settings import CORPUS, PrepareSettings, finish, work_folder
from elmo.pretrain.sorted_parts import BLOCK_KEYS, KEYS, Block, Part, SentenceReader, blocks, write_part
from elmo.text import reader
from elmo.text.vocabulary import SPECIAL, Vocabulary
from elmo.training.processes import ProcessPool, cores

SHARD_TOKENS = 10_000_000
LONGEST_WORD = 48  # bytes: the character CNN reads 50, with the marks for the beginning and the end of a word

ProgressCallback = Callable[[str, int, int | None, int], None]  # stage, done, total (if known), tokens so far

log = logging.getLogger("elmo")


def prepare(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    tokenizer: str = "moses",
    sentences: str = "split",
    heldout: str | float | Path = "0.5%",
    vocabulary: str | Path | None = None,
    vocab_size: int | None = None,
    min_count: int | None = None,
    shards: int | None = None,
    deduplicate: bool = True,
    shuffle: bool = True,
    field: str = "text",
    seed: int = 0,
    longest_line: int = reader.LONGEST_LINE,
    jobs: int | None = 1,
    block_bytes: int = reader.PIECE_BYTES,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Turn texts into a corpus folder; returns the content of its corpus.json.

    `tokenizer` is "moses", "whitespace" or "PATH:FUNC". `sentences` is "split" (find the sentences) or "lines" (one per
    line). `heldout` is a share of the sentences or a text file. The vocabulary is the `vocab_size` most frequent words,
    the words that occur at least `min_count` times (2 by default), or the words of a `vocabulary` file. Without
    `shuffle` the text keeps its order and its duplicates. A token `<S>` or `</S>` is counted as `<UNK>`.

    `jobs` is the number of processes; None means one per core. With more than one, a script that calls this needs the
    usual `if __name__ == "__main__":`. Call it again with the same arguments to continue after an interruption; only
    `jobs` may differ.
    """
    settings = PrepareSettings(
        tokenizer=tokenizer,
        sentences=sentences,
        heldout=f"{Decimal(str(heldout)):f}" if isinstance(heldout, float) else str(heldout),
        vocabulary=None if vocabulary is None else str(vocabulary),
        vocab_size=vocab_size,
        min_count=min_count,
        shards=shards,
        deduplicate=deduplicate,
        shuffle=shuffle,
        field=field,
        seed=seed,
        longest_line=longest_line,
        block_bytes=block_bytes,
    )
    names = reader.files([texts] if isinstance(texts, str | Path) else texts)
    heldout_names = reader.files([settings.heldout]) if settings.share is None else []
    vocabulary_words = None if settings.vocabulary is None else _read_vocabulary(Path(settings.vocabulary).expanduser())
    target = Path(out).expanduser()
    with work_folder(target, settings) as work, ProcessPool(jobs or cores()) as pool:
        preparation = _Preparation(work, settings, pool, progress or (lambda *_: None))
        manifest = preparation.run(names, heldout_names, vocabulary_words)
        finish(work, target)
    return manifest


class _Parts(NamedTuple):
    """The parts of a text, and their total size."""

    parts: tuple[Part, ...]
    sentences: int
    tokens: int


@dataclass(frozen=True)
class _Preparation:
    """The stages of one call of `prepare`."""

    work: Path
    settings: PrepareSettings
    pool: ProcessPool
    progress: ProgressCallback

    def run(self, names: list[str], heldout_names: list[str], known: Vocabulary | None) -> dict[str, Any]:
        """Run all stages; returns the content of corpus.json."""
        text = self.read(names, self.work / "parts", "reading")
        if heldout_names:
            heldout = self.read(heldout_names, self.work / "heldout", "reading held-out text")
            self.compare(text, heldout)
            ranges = [self.key_range("train", text), self.key_range("heldout", heldout)]
        else:
            bound = self.bound(text)
            ranges = [self.key_range("train", text, low=bound), self.key_range("heldout", text, high=bound)]
            heldout = _Parts((), 0, 0)
        words = number_words(text.parts + heldout.parts, known.words if known else SPECIAL)
        shards, counts = self.merge(ranges, len(words), [len(text.parts), len(heldout.parts)])
        order = _order(words, counts, len(known) if known else len(SPECIAL))
        size = len(known) if known else self.vocabulary_size(counts[order])
        if known:
            _check_order(str(self.settings.vocabulary), counts[: len(known)])
        return self.write(shards, [words[k] for k in order], order, counts, size)

    def read(self, names: list[str], folder: Path, stage: str) -> _Parts:
        """Turn text into parts, except for those that an earlier run completed."""
        total = reader.total_bytes(names)
        make = partial(_make_part, folder=folder, reader=self.settings.reader())
        pieces = reader.pieces(
            names,
            field=self.settings.field,
            longest=self.settings.longest_line,
            size=self.settings.block_bytes,
        )
        n = sentences = tokens = 0
        for summary, read in self.pool.map(make, self.missing(blocks(pieces, self.settings.block_bytes), folder)):
            n += 1
            sentences += summary["sentences"]
            tokens += summary["tokens"]
            self.progress(stage, read, total, tokens)
        if not sentences:
            shutil.rmtree(folder, ignore_errors=True)  # nothing to continue from
            raise DataError(f"{', '.join(names)}: no sentence in it; expected text")
        return _Parts(tuple(Part(folder, number) for number in range(n)), sentences, tokens)

    def missing(self, found: Iterator[Block], folder: Path) -> Iterator[Block]:
        """Yield all blocks; those whose part is complete come without their text."""
        for block in found:
            summary = Part(folder, block.number).summary()
            if summary is None:
                yield block
                continue
            if summary["crc32"] != block.crc32:
                first = block.pieces[0]
                raise DataError(
                    f"{reader.place(first.name, first.first)} or some lines after it have changed since this run "
                    f"began. Remove {self.work} to start over"
                )
            yield Block(block.number, (), block.pieces[-1].read)

    def bound(self, text: _Parts) -> int:
        """Return the lowest key of the training part, so that at least one sentence is on each side of it.

        It is 0 if nothing is held out.
        """
        if not self.settings.bound:
            return 0
        ends = [part.array("keys")[[0, -1]].tolist() for part in text.parts if len(part.array("keys"))]
        first, last = min(end[0] for end in ends), max(end[1] for end in ends)
        if first == last:
            raise DataError("only one distinct sentence, so none can be held out; give more text, or --heldout 0")
        return min(max(self.settings.bound, int(first) + 1), int(last))

    def key_range(self, name: str, text: _Parts, low: int = 0, high: int | None = None) -> KeyRange:
        """Return the range of keys from `low` to `high`, by default to the highest key."""
        keys = KEYS if self.settings.shuffle else len(text.parts) * BLOCK_KEYS
        high = keys if high is None else high
        return KeyRange(name, text.parts, low, high, text.tokens * (high - low) // keys)

    def compare(self, text: _Parts, heldout: _Parts) -> None:
        """Refuse a held-out text that is the training text; warn if they share some sentences."""
        what = "keys" if self.settings.deduplicate else "contents"
        keys = np.concatenate([part.array(what) for part in heldout.parts])
        found = np.zeros(len(keys), dtype=bool)
        for part in text.parts:
            found |= np.isin(keys, part.array(what))
        number, name = int(found.sum()), self.settings.heldout
        if number == len(keys):
            raise DataError(
                f"{name}: all of its {number:,} sentences are in the training text too. Hold out another text, or a "
                "share such as 0.5%"
            )
        if number:
            log.warning("%s: %d of its %d sentences are in the training text too", name, number, len(keys))

    def merge(self, ranges: list[KeyRange], n_words: int, parts: list[int]) -> tuple[list[Merged], Counts]:
        """Merge all shards; count how often each word occurs in the training part. `parts`: how many of each text."""
        folder = self._shards(parts)
        asked = self.settings.shards
        pieces = [
            piece
            for one in ranges
            if one.low < one.high
            for piece in one.pieces((asked if one.name == "train" else None) or round(one.tokens / SHARD_TOKENS) or 1)
        ]
        make = partial(merge, folder=folder, deduplicate=self.settings.deduplicate, n_words=n_words)
        counts = np.zeros(n_words, dtype=np.int64)
        shards = []
        tokens = 0
        for done, (merged, counted) in enumerate(self.pool.map(make, iter(pieces)), 1):
            train = merged.name.startswith("train")
            if not merged.sentences and asked is not None and train:
                raise DataError(f"--shards {asked}: too many for this text, because one would be empty; expected fewer")
            if train:
                counts += counted
            if merged.sentences:  # there are fewer shards if nearly all sentences are the same
                shards.append(merged)
            tokens += merged.tokens
            self.progress("merging", done, len(pieces), tokens)
        return shards, counts

    def _shards(self, parts: list[int]) -> Path:
        """Return the folder of merged shards; shards of other settings or parts are removed: merging is quick."""
        folder = self.work / "shards"
        file = folder / "settings.json"
        settings = json.dumps({**self.settings.merging(), "parts": parts})
        if not file.exists() or file.read_text(encoding="utf-8") != settings:
            shutil.rmtree(folder, ignore_errors=True)
            with replacing(file) as path:
                path.write_text(settings, encoding="utf-8")
        return folder

    def vocabulary_size(self, counts: Counts) -> int:
        """Return the size of the vocabulary; the counts are those of the special words, then descending."""
        least = self.settings.min_count or (1 if self.settings.vocab_size else 2)
        enough = int((counts[len(SPECIAL) :] >= least).sum())
        if not enough and least == 1:
            raise DataError(f"the training text has no word except {', '.join(SPECIAL)}; give more text")
        if not enough:
            raise DataError(f"no word occurs {least} times in the training text; give more text or lower --min-count")
        return min(len(SPECIAL) + enough, self.settings.vocab_size or len(counts))

    def write(self, shards: list[Merged], words: list[str], order: Counts, counts: Counts, size: int) -> dict[str, Any]:
        """Write the files of the corpus folder, corpus.json last."""
        folder, table = self.work / CORPUS, self.work / "rows.npy"
        shutil.rmtree(folder, ignore_errors=True)
        rows = np.empty(len(order), dtype=np.uint32)
        rows[order] = np.arange(len(order), dtype=np.uint32)
        write_array(table, rows)
        for name, some in ((WORDS, words), (VOCABULARY, words[:size])):
            with replacing(folder / name) as path, path.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{word}\n" for word in some)
        make = partial(write_shard, folder=self.work / "shards", corpus=folder, rows=table)
        written = []
        tokens = 0
        for shard in self.pool.map(make, iter(shards)):
            written.append(asdict(shard))
            tokens += shard.tokens
            self.progress("writing", len(written), len(shards), tokens)
        manifest = {
            "format": FORMAT,
            "tokenizer": self.settings.tokenizer,
            "sentences": self.settings.sentences,
            "deduplicated": self.settings.deduplicate,
            "seed": self.settings.seed,
            "vocabulary": size,
            "words": len(words),
            "counts": {
                "sentences": sum(shard.sentences for shard in shards),
                "tokens": tokens,
                "duplicates": sum(shard.duplicates for shard in shards),
                "unknown": int(counts[order[size:]].sum()),
                "truncated": sum(len(word.encode("utf-8")) > LONGEST_WORD for word in words),
            },
            "train": [shard for shard in written if shard["file"].startswith("train")],
            "heldout": [shard for shard in written if shard["file"].startswith("heldout")],
        }
        with replacing(folder / MANIFEST) as path:
            path.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        return manifest


def _make_part(block: Block, folder: Path, reader: SentenceReader) -> tuple[dict[str, int], int]:
    part = Part(folder, block.number)
    return part.summary() or write_part(block, part, reader), block.read


def _order(words: list[str], counts: Counts, head: int) -> Counts:
    """Order the word numbers: the first `head` stay first, the others follow by descending count, then code points."""
    occurs = counts.tolist()
    rest = sorted(range(head, len(words)), key=lambda k: (-occurs[k], words[k]))
    return np.array([*range(head), *rest], dtype=np.int64)


def _read_vocabulary(path: Path) -> Vocabulary:
    vocabulary = Vocabulary.read(path)
    if tuple(vocabulary.words[: len(SPECIAL)]) != SPECIAL:
        raise DataError(
            f"{path}: begins with {', '.join(vocabulary.words[: len(SPECIAL)])}; expected {', '.join(SPECIAL)}, then "
            "words by descending count, because the log-uniform sampler draws early lines most often"
        )
    return vocabulary


def _check_order(name: str, counts: Counts) -> None:
    """Refuse a vocabulary whose second half is more frequent than its first."""
    occurs = counts[len(SPECIAL) :]
    half = (len(occurs) + 1) // 2
    early, late = int(occurs[:half].sum()), int(occurs[half:].sum())
    if late > early:
        raise DataError(
            f"{name}: not sorted by descending count: the first half of its words occurs {early:,} times in the "
            f"training text, the second half {late:,} times. Sort it, because the log-uniform sampler draws early "
            f"lines most often"
        )
