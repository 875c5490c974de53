"""TEXT ─▶ CORPUS FOLDER: raw text of any size, on all cores, in bounded memory; `corpus.py` says what is in the folder.

    read     text in blocks of some megabytes ─▶ a sorted part per block             (parts.py, blocks side by side)
    merge    parts ─▶ shards: shuffled, without duplicates, a part of them held out  (merge.py, shards side by side)
    write    words by falling count ─▶ words.txt, vocabulary.txt, shards, corpus.json

In memory are the table of distinct words and, per process, one block or some million tokens of a shard. Everything else
is in `OUT.part/`, where a step that is done stays done: an interrupted run, called again, continues there. Nothing that
is written depends on the number of processes, nor on where a run was interrupted.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmo.errors import DataError
from elmo.files import replacing, write_array, write_error
from elmo.pretrain.corpus import FORMAT, MANIFEST, VOCABULARY, WORDS
from elmo.pretrain.jobs import Jobs
from elmo.pretrain.merge import Counts, Cut, Merged, merge, number_words, write_shard
from elmo.pretrain.parts import BLOCK_KEYS, KEYS, Block, Part, Reader, blocks, write_part
from elmo.pretrain.work import Settings, work_folder
from elmo.text import reader
from elmo.text.vocabulary import SPECIAL, Vocabulary

SHARD_TOKENS = 10_000_000
LONGEST_WORD = 48  # bytes: the character CNN sees 50 with the two marks

Progress = Callable[[str, int, int | None, int], None]  # the step, how far it is, of what, tokens until now

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
    jobs: int = 1,
    block_bytes: int = reader.PIECE_BYTES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Turn texts into a corpus folder; gives what its corpus.json says.

    `tokenizer` is moses, whitespace or PATH:FUNC; `sentences` split or lines; `heldout` a share of the sentences or a
    text file. The words that are predicted are the `vocab_size` most frequent, those that occur `min_count` times (2),
    or those of a `vocabulary` file. Without `shuffle` the text keeps its order; then duplicates stay, too.

    Called again after an interruption with the same arguments (`jobs` aside), it continues where it was. With several
    `jobs`, a script that calls this needs the usual `if __name__ == "__main__":`.
    """
    settings = Settings(
        tokenizer=tokenizer,
        sentences=sentences,
        heldout=f"{heldout:f}" if isinstance(heldout, float) else str(heldout),
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
    held = reader.files([settings.heldout]) if settings.share is None else []
    known = None if settings.vocabulary is None else _read_vocabulary(Path(settings.vocabulary))
    target = Path(out)
    with work_folder(target, settings) as work, Jobs(jobs) as pool:
        run = _Run(work, settings, pool, progress or (lambda *_: None))
        manifest = run.prepare(names, held, known)
        try:
            (work / "corpus").rename(target)
        except OSError as error:
            raise write_error(target, error) from error
        shutil.rmtree(work, ignore_errors=True)
    return manifest


class _Text(NamedTuple):
    """Parts, and what is in them."""

    parts: tuple[Part, ...]
    sentences: int
    tokens: int


@dataclass(frozen=True)
class _Run:
    """One preparation, step by step."""

    work: Path
    settings: Settings
    jobs: Jobs
    progress: Progress

    def prepare(self, names: list[str], held: list[str], known: Vocabulary | None) -> dict[str, Any]:
        text = self.read(names, self.work / "parts", "reading")
        if held:
            other = self.read(held, self.work / "heldout", "reading held-out text")
            self.compare(text, other)
            cuts = [self.cut("train", text), self.cut("heldout", other)]
        else:
            bound = self.bound(text)
            cuts = [self.cut("train", text, low=bound), self.cut("heldout", text, high=bound)]
            other = _Text((), 0, 0)
        words = number_words(text.parts + other.parts, known.words if known else SPECIAL)
        shards, counts = self.merge(cuts, len(words))
        order = _order(words, counts, len(known) if known else len(SPECIAL))
        size = len(known) if known else self.vocabulary_size(counts[order])
        if known:
            _check_order(str(self.settings.vocabulary), counts[: len(known)])
        return self.write(shards, [words[k] for k in order], order, counts, size)

    def read(self, names: list[str], folder: Path, step: str) -> _Text:
        """Turn text into parts, those that an earlier run left aside."""
        total = reader.total_bytes(names)
        make = partial(_make_part, folder=folder, reader=self.settings.reader())
        pieces = reader.pieces(
            names,
            field=self.settings.field,
            longest=self.settings.longest_line,
            size=self.settings.block_bytes,
        )
        n = sentences = tokens = 0
        for note, read in self.jobs.map(make, self.missing(blocks(pieces, self.settings.block_bytes), folder)):
            n += 1
            sentences += note["sentences"]
            tokens += note["tokens"]
            self.progress(step, read, total, tokens)
        if not sentences:
            shutil.rmtree(folder, ignore_errors=True)  # nothing to continue from
            raise DataError(f"{', '.join(names)}: no sentence in it; expected text")
        return _Text(tuple(Part(folder, number) for number in range(n)), sentences, tokens)

    def missing(self, found: Iterator[Block], folder: Path) -> Iterator[Block]:
        """The blocks, without the text of those that are parts already."""
        for block in found:
            note = Part(folder, block.number).note()
            if note is None:
                yield block
                continue
            if note["crc32"] != block.crc32:
                first = block.pieces[0]
                raise DataError(
                    f"{reader.place(first.name, first.first)} or some lines after it have changed since this run "
                    f"began. Remove {self.work} to start over"
                )
            yield Block(block.number, (), block.pieces[-1].read)

    def bound(self, text: _Text) -> int:
        """The key from which on sentences are trained on: one at least on each side, unless none are to be held out."""
        if not self.settings.bound:
            return 0
        ends = [part.array("keys")[[0, -1]].tolist() for part in text.parts if len(part.array("keys"))]
        first, last = min(end[0] for end in ends), max(end[1] for end in ends)
        if first == last:
            raise DataError("one distinct sentence in all, none to hold out; give more text, or --heldout 0")
        return min(max(self.settings.bound, int(first) + 1), int(last))

    def cut(self, name: str, text: _Text, low: int = 0, high: int | None = None) -> Cut:
        """The shard that a range of keys would be."""
        keys = KEYS if self.settings.shuffle else len(text.parts) * BLOCK_KEYS
        high = keys if high is None else high
        return Cut(name, text.parts, low, high, text.tokens * (high - low) // keys)

    def compare(self, text: _Text, held: _Text) -> None:
        """Refuse a held-out text that is the training text; say how much of it is."""
        what = "keys" if self.settings.deduplicate else "contents"
        keys = np.concatenate([part.array(what) for part in held.parts])
        found = np.zeros(len(keys), dtype=bool)
        for part in text.parts:
            found |= np.isin(keys, part.array(what))
        number, name = int(found.sum()), self.settings.heldout
        if number == len(keys):
            raise DataError(
                f"{name}: this held-out text is the training text: each of its {number:,} sentences is trained on; "
                "hold out another, or a share such as 0.5%"
            )
        if number:
            log.warning("%s: %d of its %d sentences are in the training text too", name, number, len(keys))

    def merge(self, cuts: list[Cut], n_words: int) -> tuple[list[Merged], Counts]:
        """All shards, and how often each word is in the training part."""
        folder = self._shards()
        asked = self.settings.shards
        pieces = [
            piece
            for cut in cuts
            if cut.low < cut.high
            for piece in cut.pieces((asked if cut.name == "train" else None) or round(cut.tokens / SHARD_TOKENS) or 1)
        ]
        make = partial(merge, folder=folder, deduplicate=self.settings.deduplicate, n_words=n_words)
        counts = np.zeros(n_words, dtype=np.int64)
        shards = []
        tokens = 0
        for merged, held in self.jobs.map(make, iter(pieces)):
            if not merged.sentences:
                raise DataError(f"--shards {asked}: too many for this text, one would be empty; ask for fewer")
            if merged.name.startswith("train"):
                counts += held
            shards.append(merged)
            tokens += merged.tokens
            self.progress("merging", len(shards), len(pieces), tokens)
        return shards, counts

    def _shards(self) -> Path:
        """Where merged shards are; those of other settings are removed, merging them again takes little."""
        folder = self.work / "shards"
        note = folder / "settings.json"
        settings = json.dumps(self.settings.merging())
        if not note.exists() or note.read_text(encoding="utf-8") != settings:
            shutil.rmtree(folder, ignore_errors=True)
            with replacing(note) as path:
                path.write_text(settings, encoding="utf-8")
        return folder

    def vocabulary_size(self, counts: Counts) -> int:
        """How many words are predicted; the counts fall from the first that is not special."""
        least = self.settings.min_count or (1 if self.settings.vocab_size else 2)
        enough = int((counts[len(SPECIAL) :] >= least).sum())
        if not enough:
            raise DataError(f"no word is in the training text {least} times; give more text, or a lower --min-count")
        return min(len(SPECIAL) + enough, self.settings.vocab_size or len(counts))

    def write(self, shards: list[Merged], words: list[str], order: Counts, counts: Counts, size: int) -> dict[str, Any]:
        """The folder's files, corpus.json last."""
        folder, table = self.work / "corpus", self.work / "rows.npy"
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
        for shard in self.jobs.map(make, iter(shards)):
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


def _make_part(block: Block, folder: Path, reader: Reader) -> tuple[dict[str, int], int]:
    part = Part(folder, block.number)
    return part.note() or write_part(block, part, reader), block.read


def _order(words: list[str], counts: Counts, head: int) -> Counts:
    """The words' numbers: the first `head` as they are, then by falling count; equal ones by code points."""
    falling = counts.tolist()
    rest = sorted(range(head, len(words)), key=lambda k: (-falling[k], words[k]))
    return np.array([*range(head), *rest], dtype=np.int64)


def _read_vocabulary(path: Path) -> Vocabulary:
    vocabulary = Vocabulary.read(path)
    if tuple(vocabulary.words[: len(SPECIAL)]) != SPECIAL:
        raise DataError(
            f"{path}: begins with {', '.join(vocabulary.words[: len(SPECIAL)])}; expected {', '.join(SPECIAL)}, then "
            "words by falling count: the log-uniform sampler draws early lines most"
        )
    return vocabulary


def _check_order(name: str, counts: Counts) -> None:
    """Refuse a vocabulary whose later half is the more frequent one."""
    falling = counts[len(SPECIAL) :]
    half = (len(falling) + 1) // 2
    early, late = int(falling[:half].sum()), int(falling[half:].sum())
    if late > early:
        raise DataError(
            f"{name}: not in the order of falling counts: the first half of its words is {early:,} training tokens, "
            f"the second {late:,}; sort it, because the log-uniform sampler draws early lines most"
        )
