"""BLOCKS OF TEXT ─▶ PARTS: a block's sentences as numbers, sorted by a key that is a hash of the sentence.

To sort a corpus by that key is to shuffle it, to bring equal sentences together, and to choose a held-out part at
random. A part is four files in the work folder, and a fifth, written last: a part without it does not count.

    000007.keys.npy     a key per sentence, rising
    000007.ends.npy     where each sentence ends among the ids
    000007.ids.npy      a number per token: the line of its word in 000007.words.txt
    000007.json         the checksum of the block it was made of, and what is in it
"""

import hashlib
import json
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
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
    """Consecutive pieces of text: what one process turns into a part."""

    number: int
    pieces: tuple[Piece, ...]
    read: int  # bytes of all files until its end

    @property
    def crc32(self) -> int:
        """The checksum of its bytes."""
        crc = 0
        for piece in self.pieces:
            crc = zlib.crc32(piece.data, crc)
        return crc


def blocks(pieces: Iterable[Piece], size: int) -> Iterator[Block]:
    """Pieces together up to `size` bytes, so that a thousand small files are not a thousand parts."""
    number = held = 0
    block: list[Piece] = []
    for piece in pieces:
        if block and held + len(piece.data) > size:
            yield Block(number, tuple(block), block[-1].read)
            number, held, block = number + 1, 0, []
        block.append(piece)
        held += len(piece.data)
    if block:
        yield Block(number, tuple(block), block[-1].read)


@dataclass(frozen=True)
class Reader:
    """How text becomes sentences, and sentences keys."""

    tokenizer: str
    split: bool
    deduplicate: bool
    shuffle: bool
    heldout: int  # keys below this one are held out
    seed: int
    longest_line: int

    def sentences(self, block: Block) -> Iterator[tuple[list[str], bytes]]:
        """The tokens of each sentence, and its text: they with a space between."""
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
        """What sentences are sorted by: the hash of the content, or, so that duplicates scatter, of the place as well.

        Either way the content alone decides whether a sentence is held out: no copy of it is trained on. The place
        itself where the text is to keep its order.
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
        """64 bits that are random, but always the same for the same text and seed."""
        seed = b"%d " % self.seed
        digests = [hashlib.blake2b(seed + text, digest_size=8).digest() for text in texts]
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


@dataclass(frozen=True)
class Part:
    """A block's sentences on the disk."""

    folder: Path
    number: int

    def path(self, what: str) -> Path:
        """One of its files."""
        return self.folder / f"{self.number:06d}.{what}"

    def array(self, what: str) -> npt.NDArray[Any]:
        """One of its arrays, memory-mapped."""
        return np.load(self.path(f"{what}.npy"), mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]

    def words(self) -> list[str]:
        """Its distinct words."""
        text = self.path("words.txt").read_bytes().decode("utf-8")
        return text.split("\n")[:-1]

    def note(self) -> dict[str, int] | None:
        """What is in it; None if it was never finished."""
        try:
            found: dict[str, int] = json.loads(self.path("json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found


def write_part(block: Block, part: Part, reader: Reader) -> dict[str, int]:
    """Turn a block into a part; gives its note."""
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
    note = {"crc32": block.crc32, "sentences": len(counts), "tokens": len(numbers)}
    with replacing(part.path("json")) as path:
        path.write_text(json.dumps(note), encoding="utf-8")
    return note


def rearranged(ids: Ids, lengths: Lengths, order: npt.NDArray[np.int64]) -> Ids:
    """The sentences, laid end to end in `ids`, in another order."""
    starts = np.cumsum(lengths) - lengths
    return end_to_end(ids, starts[order], lengths[order])


def _check_words(words: Iterable[str], name: str) -> None:
    """A word is a line of words.txt, and tokens joined by spaces tell sentences apart."""
    for word in words:
        if not isinstance(word, str) or word.split() != [word]:
            raise DataError(f"tokenizer {name}: gave the token {word!r}; expected text without white space")
