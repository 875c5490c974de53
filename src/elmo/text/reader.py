"""FILES ─▶ LINES: plain and compressed text, JSON lines and Parquet.

`read_lines` yields the lines of one text file. `pieces` and `lines` are for corpora: one process reads the files in
pieces of complete lines, any process decodes a piece, and a file of any size needs a few megabytes of memory. Where a
piece ends depends only on the bytes.
"""

import bz2
import gzip
import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from elmo.errors import DataError, ElmoError

PIECE_BYTES = 8 << 20
LONGEST_LINE = 1_000_000
LONGEST_READ = 64 << 20  # bytes of a line for `read_lines`: a longer one would fill the memory before it is refused
STDIN = "-"
COMPRESSED = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".zst": None}

_CHUNK = 1 << 20
_ZSTD_CHUNK = 1 << 11  # compressed bytes per call of the decompressor, which can make 64 MiB of them
_UNPACK = "decompress the file first, or give its name the ending {}"
_CONVERT = "convert the file first, e.g. with iconv -f {} -t UTF-8"
_NOT_TEXT = {  # first bytes of a file: its format, and what to do
    b"\x1f\x8b": ("compressed with gzip", _UNPACK.format(".gz")),
    b"\xfd7zXZ\0": ("compressed with xz", _UNPACK.format(".xz")),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", _UNPACK.format(".zst")),
    b"PK\x03\x04": ("a zip archive", "unpack it first"),
    b"PAR1\x15": ("a Parquet file", "give its name the ending .parquet for `prepare` or for `embed --engine ray`"),
    b"\xff\xfe\0\0": ("UTF-32", _CONVERT.format("UTF-32")),
    b"\0\0\xfe\xff": ("UTF-32", _CONVERT.format("UTF-32")),
    b"\xff\xfe": ("UTF-16", _CONVERT.format("UTF-16")),
    b"\xfe\xff": ("UTF-16", _CONVERT.format("UTF-16")),
}
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # "BZh" alone could be text


def read_lines(name: str | Path) -> Iterator[tuple[int, str]]:
    """Read a text file; yield the number of each line, from 1, and its text without the line end.

    The file may be compressed (.gz, .xz, .bz2, .zst); "-" is standard input. It is opened at once, so that a file that
    cannot be read is refused here, not at the first line.
    """
    return iter(Lines(name))


class Lines:
    """The lines of one text file, as `read_lines` yields them, and the number of bytes read so far."""

    def __init__(self, name: str | Path) -> None:
        self.name = str(name)
        self.size = total_bytes([self.name]) or None  # bytes on the disk; None for a stream
        self.position = 0  # bytes on the disk up to the end of the latest line
        self._file = _open(self.name)

    @property
    def shown(self) -> str:
        """The name for a message."""
        return _shown(self.name)

    def close(self) -> None:
        """Close a file that is not read to its end."""
        self._file.close()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        with nullcontext(self._file) if self.name == STDIN else self._file as file:
            number, start, rest = 0, 0, bytearray()
            for chunk in _chunks(self.name, file):
                end = file.tell() if self.size else 0
                done = 0  # bytes of the chunk that have been yielded, decompressed
                *complete, last = chunk.split(b"\n")
                for line in complete:
                    number, done = number + 1, done + len(line) + 1
                    self.position = start + (end - start) * done // len(chunk)
                    yield number, _decode(self.name, number, bytes(rest) + line)
                    rest.clear()
                rest += last
                if len(rest) > LONGEST_READ:
                    where = place(self.name, number + 1)
                    raise DataError(f"{where} has more than {LONGEST_READ:,} bytes; is it text?")
                start = end
            if rest:
                self.position = start
                yield number + 1, _decode(self.name, number + 1, bytes(rest))


class TextColumn(Lines):
    """The texts in a column of a Parquet file, with the numbers of their rows from 1."""

    def __init__(self, name: str | Path, field: str) -> None:
        super().__init__(name)
        self.field = field

    def __iter__(self) -> Iterator[tuple[int, str]]:
        with self._file as file:
            for number, text in enumerate(_column(self.name, file, self.field), 1):
                if text is None:
                    raise DataError(f"{place(self.name, number)} has no text (null); remove the row, or give it text")
                self.position = file.tell()
                yield number, text


@dataclass(frozen=True)
class Piece:
    """Complete lines of a file, as bytes."""

    name: str
    first: int  # the number of its first line, from 1
    data: bytes
    field: str | None = None  # for lines that are JSON objects: the field with the text
    read: int = 0  # bytes of all files read so far, as stored on the disk


def files(names: Iterable[str | Path]) -> list[str]:
    """List the files that the names mean; a folder means all files in it, sorted, except hidden ones."""
    found = []
    for name in map(str, names):
        path = Path(name).expanduser()
        try:
            if path.is_dir():
                inside = _inside(path)
                if not inside:
                    raise DataError(f"{name}: no file in this folder; expected text files")
                found += inside
            elif name == STDIN or path.exists():
                found.append(name if name == STDIN else str(path))
            else:
                raise DataError(
                    f"{name}: not found; expected a text file, a folder of them, or {STDIN} for standard input"
                )
        except OSError as error:  # a folder that may not be read, a name that is too long
            raise _unreadable(error.filename or name, error) from None
    return found


def _inside(folder: Path) -> list[str]:
    """List the files in a folder, sorted, except hidden ones. Links to folders are followed, unless they are loops."""
    found: list[Path] = []
    above = {str(folder): [os.path.realpath(folder)]}  # of each folder: itself and those around it

    def fail(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        shown = [name for name in names if not name.startswith(".")]
        found += [path for path in (Path(place, name) for name in shown) if path.is_file()]
        inner = [(name, os.path.realpath(Path(place, name))) for name in folders if not name.startswith(".")]
        folders[:] = [name for name, real in inner if real not in above[place]]
        above |= {os.path.join(place, name): [*above[place], real] for name, real in inner}  # noqa: PTH118 (as os.walk)
    return [str(path) for path in sorted(found)]


def _unreadable(name: object, error: OSError) -> DataError:
    return DataError(f"{name}: cannot be read ({error.strerror}); expected a text file")


def total_bytes(names: Sequence[str]) -> int | None:
    """Add up the sizes of the files on the disk; None if one of them is not a file, so that its size is unknown."""
    paths = [Path(name).expanduser() for name in names]
    try:
        return sum(path.stat().st_size for path in paths) if all(path.is_file() for path in paths) else None
    except OSError:  # it may not be read: opening it says so
        return None


def pieces(
    names: Sequence[str], *, field: str = "text", longest: int = LONGEST_LINE, size: int = PIECE_BYTES
) -> Iterator[Piece]:
    """Read the files in pieces of about `size` bytes."""
    before = 0
    for name in names:
        kind = _kind(name)
        with nullcontext(_open(name)) if name == STDIN else _open(name) as file:
            if kind == ".parquet":
                cuts = _rows(name, file, field, size)
            else:
                cuts = _cut(name, _chunks(name, file), longest, size)
            first = 1
            for data in cuts:
                read = before + (file.tell() if file.seekable() else 0)
                yield Piece(name, first, data, field if kind in (".jsonl", ".parquet") else None, read)
                first += data.count(b"\n")
        before += total_bytes([name]) or 0


def lines(piece: Piece, longest: int = LONGEST_LINE) -> Iterator[tuple[int, str]]:
    """Decode a piece: the lines and their numbers; for JSON objects, the lines of their text."""
    for number, line in enumerate(piece.data.split(b"\n"), piece.first):
        if len(line) > longest:
            raise _too_long(place(piece.name, number), len(line), longest)
        text = _decode(piece.name, number, line)
        if piece.field is None:
            yield number, text
        elif text.strip():
            document = _text_of(text, piece.field, place(piece.name, number))
            yield from ((number, part) for part in document.split("\n"))


def place(name: str, number: int) -> str:
    """Name a line or a row of a file, for a message."""
    return f"{_shown(name)}: {'row' if _kind(name) == '.parquet' else 'line'} {number}"


def _decode(name: str, number: int, line: bytes) -> str:
    """Decode a line, without its line end, and without the byte-order mark of the first line."""
    line = line.removesuffix(b"\r")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        at = error.start + len(line) - len(error.object)  # which is without the byte-order mark
        found = f"{place(name, number)} is not UTF-8 (byte {at + 1} is 0x{line[at]:02x})"
        raise DataError(f"{found}; convert the file first, e.g. with iconv") from None


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name


def _kind(name: str) -> str:
    """Return the suffix that says how to read a file, without the suffix of a compression."""
    path = Path(name)
    return path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix


def _open(name: str) -> IO[bytes]:
    if name == STDIN:
        return sys.stdin.buffer
    try:
        return Path(name).expanduser().open("rb")
    except OSError as error:
        raise _unreadable(name, error) from None


def _chunks(name: str, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed."""
    suffix, shown = Path(name).suffix, _shown(name)
    try:
        if suffix == ".zst":
            yield from _zstd(name, file)
            return
        opened = COMPRESSED.get(suffix)
        # read1 returns the lines of a pipe as they come; a decompressor returns more at once with read.
        read: Any = opened(file).read if opened else getattr(file, "read1", file.read)
        chunk = read(_CHUNK)
        _refuse_other_formats(shown, chunk)
        while chunk:
            yield chunk
            chunk = read(_CHUNK)
    except EOFError:
        raise DataError(f"{shown}: is cut short; fetch the file again") from None
    except MemoryError:  # xz: the file says how much memory it needs
        raise DataError(f"{shown}: needs more memory to be decompressed than there is") from None
    except (OSError, zlib.error, lzma.LZMAError) as error:
        if getattr(error, "errno", None) is not None:
            raise DataError(f"{shown}: cannot be read ({error.strerror})") from None  # type: ignore[union-attr]
        raise DataError(f"{shown}: damaged, or not a {suffix} file ({error}); fetch the file again") from None


def _refuse_other_formats(shown: str, head: bytes) -> None:
    """Refuse a file of another format by its name; otherwise its first line would be reported as bad UTF-8."""
    found = next((what for magic, what in _NOT_TEXT.items() if head.startswith(magic)), None)
    if _BZIP2.match(head):
        found = ("compressed with bzip2", _UNPACK.format(".bz2"))
    if found:
        raise DataError(f"{shown}: is {found[0]}, not UTF-8 text; {found[1]}")


def _zstd(name: str, file: IO[bytes]) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise ElmoError(f"{name}: .zst files need zstandard: pip install 'elmo-torch[zstd]'") from None
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)  # the largest that `zstd --long=31` writes
    frame = None
    try:
        while chunk := file.read(_ZSTD_CHUNK):
            while chunk:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(chunk)
                chunk = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from error
    if frame is not None:
        raise EOFError


def _cut(name: str, chunks: Iterator[bytes], longest: int, size: int) -> Iterator[bytes]:
    """Cut into pieces of complete lines: up to the last line end within `size` bytes, else the first one after it."""
    buffer = bytearray()
    line = 1
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= size:
            end = buffer.rfind(b"\n", 0, size) + 1 or buffer.find(b"\n", size) + 1
            if not end:
                if len(buffer) <= longest:
                    break
                raise _too_long(place(name, line), len(buffer) + _rest_of_line(chunks), longest)
            piece = bytes(buffer[:end])
            del buffer[:end]
            line += piece.count(b"\n")
            yield piece
    if buffer:
        yield bytes(buffer)


def _rest_of_line(chunks: Iterator[bytes]) -> int:
    size = 0
    for chunk in chunks:
        end = chunk.find(b"\n")
        if end >= 0:
            return size + end
        size += len(chunk)
    return size


def _too_long(where: str, size: int, longest: int) -> DataError:
    return DataError(
        f"{where} has {size:,} bytes, more than {longest:,}; is it text? Use --longest-line {size} to accept "
        f"it, an option of `elmo prepare`"
    )


def _text_of(line: str, field: str, where: str) -> str:
    """Return the text in a JSON object; empty if it is null."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error}); expected an object with the field {field!r}") from None
    if not isinstance(found, dict):
        raise DataError(f"{where} contains {type(found).__name__}; expected an object with the field {field!r}")
    if field not in found:
        raise DataError(f"{where} has no field {field!r}; found {', '.join(found) or 'none'}. Name it with --field")
    text = found[field]
    if not isinstance(text, str | None):
        raise DataError(f"{where}: the field {field!r} contains {type(text).__name__}; expected text")
    return (text or "").encode("utf-8", "ignore").decode("utf-8")  # drop lone surrogates


def _rows(name: str, file: IO[bytes], field: str, size: int) -> Iterator[bytes]:
    """Yield the rows of a Parquet file as JSON lines, so that documents with line ends stay together."""
    buffer = bytearray()
    for text in _column(name, file, field):
        buffer += json.dumps({field: text}, ensure_ascii=False).encode() + b"\n"
        if len(buffer) >= size:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)


def _column(name: str, file: IO[bytes], field: str) -> Iterator[str | None]:
    """Yield the texts of a Parquet file, row by row."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise ElmoError(f"{name}: Parquet needs pyarrow: pip install 'elmo-torch[parquet]'") from None
    try:
        table = parquet.ParquetFile(file)
        columns = table.schema_arrow.names
        if field not in columns:
            raise DataError(f"{name}: no column {field!r}; found {', '.join(columns)}. Name it with --field")
        kind = table.schema_arrow.field(field).type
        if "string" not in str(kind):
            raise DataError(f"{name}: the column {field!r} contains {kind}; expected text")
        for batch in table.iter_batches(batch_size=256, columns=[field]):
            yield from batch.column(0).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: cannot be read as Parquet ({error}); fetch the file again") from None
