"""CORPUS FOLDER ─▶ WORD ROWS: the files that `elmo prepare` wrote, memory-mapped. Training reads no text.

    corpus.json        counts, shards and their checksums
    words.txt          all distinct words, one per line: `<S>`, `</S>`, `<UNK>`, then by descending count
    vocabulary.txt     the first V lines of it: the words that the language model predicts
    train-00000.npy    rows of words.txt, each sentence as `<S>` words… `</S>`; heldout-00000.npy likewise
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.errors import DataError
from elmo.text.characters import word_ids, word_ids_from_bytes
from elmo.text.vocabulary import Vocabulary

FORMAT = 1
MANIFEST, WORDS, VOCABULARY = "corpus.json", "words.txt", "vocabulary.txt"
LARGEST = 1 << 48  # of any number in the manifest
BEGIN, END, UNKNOWN_ROW = 0, 1, 2  # rows of words.txt; BEGIN and END are around sentences, and nowhere else

Rows = npt.NDArray[np.uint32]

_FILE = re.compile(r"[\w-]{1,50}\.npy", re.ASCII)


@dataclass(frozen=True)
class Shard:
    """A file of word rows."""

    file: str
    tokens: int  # not counting the boundaries
    sentences: int
    crc32: int

    def __len__(self) -> int:
        return self.tokens + 2 * self.sentences


class Words:
    """The distinct words of a corpus, read from disk on demand."""

    def __init__(self, path: Path) -> None:
        self._bytes: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        ends = np.flatnonzero(self._bytes == ord("\n"))
        self._starts = np.concatenate([[0], ends[:-1] + 1])
        self._lengths = ends - self._starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> str:
        start = int(self._starts[row])
        return self._bytes[start : start + int(self._lengths[row])].tobytes().decode("utf-8")

    def begin_with(self, lines: bytes) -> bool:
        """Return whether the file begins with these lines."""
        return self._bytes[: len(lines)].tobytes() == lines

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def characters(self, rows: npt.NDArray[Any], max_characters: int) -> npt.NDArray[np.int16]:
        """Return the character ids of words, (N, C): the same as `text.characters.word_ids` of their strings."""
        ids = word_ids_from_bytes(self._bytes, self._starts[rows], self._lengths[rows], max_characters)
        for boundary in (BEGIN, END):
            ids[rows == boundary] = word_ids([self[boundary]], max_characters)[0]
        return ids


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus."""

    folder: Path
    manifest: dict[str, Any]
    train: tuple[Shard, ...]
    heldout: tuple[Shard, ...]

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Open a folder that `elmo prepare` wrote."""
        path = folder / MANIFEST
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            shards = {part: tuple(Shard(**shard) for shard in manifest[part]) for part in ("train", "heldout")}
            _check(manifest["words"], (*shards["train"], *shards["heldout"]))
        except FileNotFoundError:
            raise DataError(f"{folder}: no {MANIFEST} in it; expected a folder that `elmo prepare` wrote") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{path}: not the manifest of a corpus ({error}); prepare the text again") from None
        if manifest.get("format") != FORMAT:
            raise DataError(f"{path}: format {manifest.get('format')!r}; expected {FORMAT}. Prepare the text again")
        return cls(folder, manifest, **shards)

    @cached_property
    def words(self) -> Words:
        """All distinct words."""
        path = self._existing(WORDS)
        try:
            words = Words(path) if path.stat().st_size else ()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
        if not isinstance(words, Words) or len(words) != self.manifest["words"]:
            raise DataError(
                f"{self.folder / WORDS}: {len(words)} words; expected {self.manifest['words']}, the number in "
                f"{MANIFEST}. Prepare the text again"
            )
        return words

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words that the language model predicts: the first part of the table of all words."""
        path = self._existing(VOCABULARY)
        try:
            lines = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
        if not self.words.begin_with(lines):
            raise DataError(f"{path}: not the first lines of {WORDS}; it has changed. Prepare the text again")
        return Vocabulary.read(path)

    @cached_property
    def digest(self) -> str:
        """A hash of the content: the manifest contains the checksum of every shard."""
        return hashlib.sha256(json.dumps(self.manifest, sort_keys=True).encode()).hexdigest()[:16]

    def rows(self, shard: Shard) -> Rows:
        """Open a shard's word rows, memory-mapped, and compare them with their checksum."""
        path = self._existing(shard.file)
        try:
            rows: Rows = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError, SyntaxError, TokenError) as error:  # its header is read as Python
            raise DataError(f"{path}: damaged ({error}); prepare the text again") from None
        if rows.dtype != np.uint32 or rows.shape != (len(shard),) or zlib.crc32(rows.data) != shard.crc32:
            raise DataError(f"{path}: has changed since the corpus was prepared; prepare the text again")
        return rows

    def targets(self, vocabulary: Vocabulary) -> npt.NDArray[np.int32]:
        """Return the row of every distinct word in a vocabulary, (W,); unknown words have the row of `<UNK>`."""
        if vocabulary.words == self.vocabulary.words:  # the usual case: the vocabulary is the first part of the table
            rows = np.arange(len(self.words), dtype=np.int32)
            rows[len(vocabulary) :] = UNKNOWN_ROW
            return rows
        return (vocabulary.ids(list(self.words)) - 1).astype(np.int32)

    def _existing(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise DataError(f"{path}: not found, though it is part of the corpus. Prepare the text again")
        return path


def _check(words: Any, shards: Sequence[Shard]) -> None:
    """Raise a ValueError if a number of the manifest is out of range, or the name of a file is not one of a corpus."""
    for number in (words, *(n for shard in shards for n in (shard.tokens, shard.sentences, shard.crc32))):
        if type(number) is not int or not 0 <= number < LARGEST:
            raise ValueError(f"{number!r} is no number of words, tokens or sentences, nor a checksum")
    for shard in shards:
        if not isinstance(shard.file, str) or not _FILE.fullmatch(shard.file):
            raise ValueError(f"{shard.file!r} is no file of a corpus")


def sentences_in(text: Rows) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the start of each sentence in a text, and its length including the boundaries."""
    starts = np.flatnonzero(text == BEGIN)
    return starts, np.diff(starts, append=len(text))


def end_to_end(
    text: Rows, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reverse: bool = False
) -> Rows:
    """Copy the sentences with these starts and lengths one after another; each in reverse order if `reverse`."""
    offsets = np.cumsum(lengths) - lengths
    token = np.arange(int(lengths.sum()))
    if reverse:
        return text[np.repeat(starts + lengths - 1 + offsets, lengths) - token]
    return text[np.repeat(starts - offsets, lengths) + token]
