"""WORD VECTORS ON DISK: below the word cache in memory, for processes that come and go.

A folder has one SQLite file for each model, kind of device and version. A transaction is whole or not there, and any
number of processes may read and write at once. Whatever is wrong with a file costs time, never a result: every vector
has a checksum, and a file whose first vectors are not what this machine computes, to the bit, is started over. It may
be deleted at any time. When it is full, the words that were stored first make room.

Results are equal to the bit because a word has the same bits in any batch. That holds for widths that are multiples of
16, as the English model and the original size have; with others, the last bit may depend on the batch, with and without
a store.
"""

import hashlib
import logging
import platform
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from elmo.embed.words import LONGEST
from elmo.errors import ConfigError
from elmo.files import write_error
from elmo.text import batches

log = logging.getLogger("elmo")

MAX_BYTES = 256 << 20  # of one file
WORD_BYTES = 100  # what a word needs beside its vector, about
PROBES = 4  # words whose vectors are computed again when a file is first read
WAIT = 2.0  # seconds to wait for another process; after that, the words are encoded
AT_ONCE = 500  # words per query: SQLite limits their number

TABLE = (
    "CREATE TABLE IF NOT EXISTS words (number INTEGER PRIMARY KEY, word BLOB UNIQUE, vector BLOB, checksum INTEGER)"
)
FIRST = f"SELECT word, vector, checksum FROM words ORDER BY number LIMIT {PROBES}"
FIND = "SELECT word, vector, checksum FROM words WHERE word IN ({})"
ADD = "INSERT OR IGNORE INTO words (word, vector, checksum) VALUES (?, ?, ?)"
# Words are removed from the lower end alone, so that their numbers have no gaps.
BOUND = "DELETE FROM words WHERE number <= (SELECT max(number) FROM words) - ?"

# Errors that say nothing about the content of a file.
IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
UNUSABLE = (
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOLFS),
)

Encode = Callable[[Sequence[str]], Tensor]
Row = tuple[bytes, bytes, int]


class WordStore:
    """Word vectors (D,) of one model in a folder. `model` is a hash of everything that they depend on but the machine.

    Any number of threads and processes may use it.
    """

    def __init__(self, folder: str | Path, model: str, like: Tensor, dim: int, max_bytes: int = MAX_BYTES) -> None:
        """Make the folder. `like` has the device and the dtype of the vectors."""
        self.folder = Path(folder).expanduser()
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"{self.folder}: is a file; word_cache is a folder: choose another name")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(self.folder, error) from error
        self.path = self.folder / f"{_key(model, like)}.sqlite"
        self.dim, self.dtype, self.device = dim, like.dtype, like.device
        self.capacity = max_bytes // (dim * like.element_size() + WORD_BYTES)
        self._checked = False
        self._can_read = self._can_write = True  # until an error that would only come back

    def vectors(self, words: Sequence[str], encode: Encode) -> Tensor:
        """Return the vectors of distinct words, (N, D): those of the file, and `encode` for the others, now stored."""
        found = self._read(words, encode) if words and self._can_read else {}
        if words and len(found) == len(words):
            return self._tensor([found[word] for word in words])
        new = [word for word in words if word not in found]
        made = encode(new)
        if new and self._can_write:
            self._write(new, made)
        if not found:
            return made
        place = {word: number for number, word in enumerate([*found, *new])}
        every = torch.cat([self._tensor(list(found.values())), made])
        return every[torch.tensor([place[word] for word in words], device=made.device)]

    def _read(self, words: Sequence[str], encode: Encode) -> dict[str, bytes]:
        """Return the vectors that the file has, as bytes."""
        found: dict[str, bytes] = {}
        keys = {_bytes(word): word for word in words}
        with self._trouble("read"):
            if not self.path.exists():
                return found
            self._check(encode)
            with closing(self._open()) as file:
                for some in batches.consecutive(keys, AT_ONCE):
                    rows = file.execute(FIND.format(",".join("?" * len(some))), some)
                    found.update((keys[word], vector) for word, vector in self._whole(rows) if word in keys)
        return found

    def _check(self, encode: Encode) -> None:
        """Compute a few of the file's vectors again; remove the file if a bit differs."""
        if self._checked:
            return
        with closing(self._open()) as file:
            rows = dict(self._whole(file.execute(FIRST)))
        if rows and _rows(encode([_word(key) for key in rows])) != list(rows.values()):
            log.warning("%s: other last bits than computed here; starting it over", self.path)
            self._remove()
        self._checked = True

    def _whole(self, rows: Iterator[Row]) -> Iterator[tuple[bytes, bytes]]:
        """Yield words with their vectors, as bytes; refuse what is not as it was written."""
        size = self.dim * self.dtype.itemsize
        for word, vector, checksum in rows:
            both = isinstance(word, bytes) and isinstance(vector, bytes) and len(vector) == size
            if not both or _checksum(word, vector) != checksum:
                raise sqlite3.DatabaseError("a checksum is wrong")
            yield word, vector

    def _write(self, words: Sequence[str], vectors: Tensor) -> None:
        """Add words to the file, and remove the oldest ones of a full file."""
        pairs = zip(words, _rows(vectors), strict=True)
        keys = [(_bytes(word), vector) for word, vector in pairs if len(word) <= LONGEST]
        rows = [(key, vector, _checksum(key, vector)) for key, vector in keys[-self.capacity :]]
        with self._trouble("written"), closing(self._open()) as file, file:
            file.execute("PRAGMA synchronous = OFF")  # a crash of the machine may damage it; a killed process does not
            file.execute("BEGIN IMMEDIATE")
            file.execute(TABLE)
            file.executemany(ADD, rows)
            file.execute(BOUND, (self.capacity,))

    @contextmanager
    def _trouble(self, done: str) -> Iterator[None]:
        """Continue without the file: for now if it is in use, for good if it cannot be used; remove a damaged one."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code in IN_USE or "no such table" in str(error):  # the file is so new that it has nothing yet
                return
            if isinstance(error, OSError) or (code is not None and code & 0xFF in UNUSABLE):
                self._stop(done, str(error))
                return
            log.warning("%s: damaged (%s); starting it over", self.path, error)
            try:
                self._remove()
            except OSError as reason:
                self._stop(done, str(reason))

    def _stop(self, done: str, why: str) -> None:
        self._can_write = False
        self._can_read = self._can_read and done != "read"
        log.warning("%s: cannot be %s (%s); new word vectors are not kept", self.path, done, why)

    def _open(self) -> sqlite3.Connection:
        # A connection for each use: it must not be shared with a forked process, and a deleted file must be noticed.
        return sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)

    def _remove(self) -> None:
        for path in (self.path, self.path.with_name(f"{self.path.name}-journal")):
            path.unlink(missing_ok=True)

    def _tensor(self, vectors: list[bytes]) -> Tensor:
        values = torch.frombuffer(bytearray(b"".join(vectors)), dtype=self.dtype)
        return values.view(len(vectors), self.dim).to(self.device)


def _key(model: str, like: Tensor) -> str:
    """Return the name of a model's file: results differ in their last bits between devices and versions."""
    from elmo import __version__

    device = torch.cuda.get_device_name(like.device) if like.device.type == "cuda" else platform.machine()
    machine = (device, torch.backends.cpu.get_cpu_capability(), torch.__version__, __version__)
    return hashlib.sha256(repr((model, str(like.dtype), machine)).encode()).hexdigest()[:16]


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")


def _word(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def _checksum(word: bytes, vector: bytes) -> int:
    return crc32(vector, crc32(word))


def _rows(vectors: Tensor) -> list[bytes]:
    """Return the bytes of each row of (N, D)."""
    return [row.tobytes() for row in vectors.cpu().contiguous().view(torch.uint8).numpy()]
