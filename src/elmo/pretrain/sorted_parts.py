"""BLOCKS OF TEXT ─▶ SORTED PARTS: the sentences of one block as integers, sorted by a key, a hash of the sentence.

Sorting a corpus by that key shuffles it, puts equal sentences side by side, and selects a random held-out part. A part
is five files in the work folder. The JSON file is written last: without it the part is not complete.

    000007.keys.npy     one key per sentence, ascending
    000007.ends.npy     where each sentence ends in the ids
    000007.ids.npy      one integer per token: the line of its word in words.txt
    000007.words.txt    the distinct words of the block
    000007.json         the checksum of the block, and the number of sentences and tokens
"""

import hashlib
import json
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.errors import DataError
from elmo.files import replacing, write_array
from elmo.pretrain.corpus import end_to_end
from elmo.text.reader import Piece, lines, place
from elmo.text.sentences import split
from elmo.text.tokenizers import tokenizer

KEYS = 1 << 64
BLOCK_KEYS = 1 << 32  # more than the sentences of any block

Keys = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.uint32]
Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Consecutive pieces of text that one process turns into a part."""

    number: int
    pieces: tuple[Piece, ...]
    read: int  # bytes of all files up to its end

    @property
    def crc32(self) -> int:
        """The checksum of its bytes."""
        crc = 0
        for piece in self.pieces:
            crc = zlib.crc32(piece.data, crc)
        return crc


def blocks(pieces: Iterable[Piece], size: int) -> Iterator[Block]:
    """Join pieces into blocks of up to `size` bytes, so that a thousand small files do not make a thousand parts."""
    number = n_bytes = 0
    block: list[Piece] = []
    for piece in pieces:
        if block and n_bytes + len(piece.data) > size:
            yield Block(number, tuple(block), block[-1].read)
            number, n_bytes, block = number + 1, 0, []
        block.append(piece)
        n_bytes += len(piece.data)
    if block:
        yield Block(number, tuple(block), block[-1].read)


@dataclass(frozen=True)
class SentenceReader:
    """Splits blocks into tokenized sentences, and computes the keys that sentences are sorted by."""

    tokenizer: str
    split: bool
    deduplicate: bool
    shuffle: bool
    heldout: int  # sentences with a lower key are held out
    seed: int
    longest_line: int

    def sentences(self, block: Block) -> Iterator[tuple[list[str], bytes]]:
        """Yield the tokens of each sentence, and the same tokens joined by spaces, as UTF-8."""
        tokens_of = tokenizer(self.tokenizer)
        for piece in block.pieces:
            for number, line in lines(piece, self.longest_line):
                for sentence in split(line) if self.split else (line,):
                    try:
                        tokens = list(tokens_of(sentence))
                        text = " ".join(tokens).encode("utf-8")
                    except Exception as error:
                        reason = f"{type(error).__name__}: {error}"
                        where = place(piece.name, number)
                        raise DataError(f"{where}: the tokenizer {self.tokenizer} fails ({reason})") from error
                    if tokens:
                        yield tokens, text

    def keys(self, contents: Keys, block: int) -> Keys:
        """Compute the sorting key of each sentence from the hash of its content.

        Without shuffling the key is the position in the text. With deduplication it is the hash itself. Otherwise the
        position is hashed too, so that duplicates are scattered; but whether a sentence is held out depends on its
        content alone, so that no copy of a held-out sentence is trained on.
        """
        if not self.shuffle:
            return np.arange(len(contents), dtype=np.uint64) + np.uint64(block * BLOCK_KEYS)
        if self.deduplicate:
            return contents
        scattered = self.hashes(b"%d %d %d" % (block, row, key) for row, key in enumerate(contents.tolist()))
        if not self.heldout:
            return scattered
        bound, rest = np.uint64(self.heldout), np.uint64(KEYS - self.heldout)
        return np.where(contents < bound, scattered % bound, bound + scattered % rest)

    def hashes(self, texts: Iterable[bytes]) -> Keys:
        """Hash texts to 64 bits each: random, but always the same for the same text and seed."""
        seed = b"%d " % self.seed
        digests = [hashlib.blake2b(seed + text, digest_size=8).digest() for text in texts]
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


@dataclass(frozen=True)
class Part:
    """The files of one sorted block."""

    folder: Path
    number: int

    def path(self, what: str) -> Path:
        """Return the path of one of its files."""
        return self.folder / f"{self.number:06d}.{what}"

    def array(self, what: str) -> npt.NDArray[Any]:
        """Open one of its arrays, memory-mapped."""
        path = self.path(f"{what}.npy")
        with reading(path, self.folder.parent):
            return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]

    def words(self) -> list[str]:
        """Read its distinct words."""
        path = self.path("words.txt")
        with reading(path, self.folder.parent):
            return path.read_bytes().decode("utf-8").split("\n")[:-1]

    def summary(self) -> dict[str, int] | None:
        """Read its JSON file; None if the part is not complete."""
        path = self.path("json")
        if not path.exists():
            return None
        with reading(path, self.folder.parent):
            found = json.loads(path.read_text(encoding="utf-8"))
            return {name: int(found[name]) for name in ("crc32", "sentences", "tokens")}


@contextmanager
def reading(path: Path, work: Path) -> Iterator[None]:
    """Read a file of the work folder, which an earlier run may have written: a damaged one is a DataError."""
    try:
        yield
    except (FileNotFoundError, EOFError, ValueError, KeyError, TypeError):
        raise DataError(f"{path}: missing or damaged. Remove the folder {work} to start over") from None


def write_part(block: Block, part: Part, reader: SentenceReader) -> dict[str, int]:
    """Turn a block into a part; returns its summary."""
    table: defaultdict[str, int] = defaultdict()
    table.default_factory = table.__len__
    numbers, counts = array("I"), []
    texts = []
    for tokens, text in reader.sentences(block):
        numbers.extend(map(table.__getitem__, tokens))
        counts.append(len(tokens))
        texts.append(text)
    _check_words(table, reader.tokenizer)
    contents = reader.hashes(texts)
    keys = reader.keys(contents, block.number)
    order = np.argsort(keys, kind="stable")
    lengths = np.array(counts, dtype=np.int64)
    write_array(part.path("keys.npy"), keys[order])
    write_array(part.path("ends.npy"), np.cumsum(lengths[order]))
    write_array(part.path("ids.npy"), rearranged(np.array(numbers, dtype=np.uint32), lengths, order))
    if not reader.deduplicate:
        write_array(part.path("contents.npy"), contents)
    with replacing(part.path("words.txt")) as path:
        path.write_bytes("".join(f"{word}\n" for word in table).encode("utf-8"))
    summary = {"crc32": block.crc32, "sentences": len(counts), "tokens": len(numbers)}
    with replacing(part.path("json")) as path:
        path.write_text(json.dumps(summary), encoding="utf-8")
    return summary


def rearranged(ids: Ids, lengths: Lengths, order: npt.NDArray[np.int64]) -> Ids:
    """Reorder sentences that are stored one after another in `ids`."""
    starts = np.cumsum(lengths) - lengths
    return end_to_end(ids, starts[order], lengths[order])


def _check_words(words: Iterable[str], name: str) -> None:
    """Refuse tokens with white space: a word is a line of words.txt, and a sentence is its tokens joined by spaces."""
    for word in words:
        if not isinstance(word, str) or word.split() != [word]:
            raise DataError(f"tokenizer {name}: returned the token {word!r}; expected a string without white space")
