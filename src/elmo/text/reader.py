"""FILES ─▶ LINES: plain and compressed text, JSON lines and Parquet, cut into pieces of whole lines.

One process reads the files (`pieces`), any process decodes what was read (`lines`): so the work can be shared, and a
file of any size passes through a few megabytes of memory. Where the cuts fall depends on the bytes alone.
"""

import bz2
import gzip
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from elmo.errors import DataError, ElmoError

PIECE_BYTES = 8 << 20
LONGEST_LINE = 1_000_000
STDIN = "-"
COMPRESSED = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".zst": None}

_CHUNK = 1 << 20
_ZSTD_CHUNK = 1 << 16  # each is decompressed whole


@dataclass(frozen=True)
class Piece:
    """Whole lines of a file, as bytes."""

    name: str
    first: int  # the number of its first line, from 1
    data: bytes
    field: str | None = None  # where each line is a JSON object: what holds its text
    read: int = 0  # bytes of all files read so far, as they lie on the disk


def files(names: Iterable[str | Path]) -> list[str]:
    """The files that the names mean; a folder stands for all files in it, sorted, save hidden ones."""
    found = []
    for name in map(str, names):
        path = Path(name)
        if path.is_dir():
            inside = [file.relative_to(path) for file in path.rglob("*") if file.is_file()]
            shown = [file for file in inside if not any(part.startswith(".") for part in file.parts)]
            if not shown:
                raise DataError(f"{name}: no file in this folder; expected text files")
            found += [str(path / file) for file in sorted(shown)]
        elif name == STDIN or path.exists():
            found.append(name)
        else:
            raise DataError(f"{name}: not found; expected a text file, a folder of them, or {STDIN} for standard input")
    return found


def total_bytes(names: Sequence[str]) -> int | None:
    """What the files hold in all, as they lie on the disk; None where that cannot be known before."""
    if not all(Path(name).is_file() for name in names):
        return None
    return sum(Path(name).stat().st_size for name in names)


def pieces(
    names: Sequence[str], *, field: str = "text", longest: int = LONGEST_LINE, size: int = PIECE_BYTES
) -> Iterator[Piece]:
    """The files in pieces of about `size` bytes."""
    before = 0
    for name in names:
        kind = _kind(name)
        with _opened(name) as file:
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
    """The lines of a piece and their numbers; of a JSON object, the lines of its text."""
    for number, line in enumerate(piece.data.split(b"\n"), piece.first):
        if len(line) > longest:
            raise _too_long(place(piece.name, number), len(line), longest)
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            found = f"{place(piece.name, number)} is not UTF-8 (byte {error.start + 1} is 0x{line[error.start]:02x})"
            raise DataError(f"{found}; convert the file first, e.g. with iconv") from None
        if piece.field is None:
            yield number, text
        elif text.strip():
            document = _text_of(text, piece.field, place(piece.name, number))
            yield from ((number, part) for part in document.split("\n"))


def place(name: str, number: int) -> str:
    """A line of a file, or a row, for a message."""
    return f"{name}: {'row' if _kind(name) == '.parquet' else 'line'} {number}"


def _kind(name: str) -> str:
    """The ending that tells how to read a file, that of a compression aside."""
    path = Path(name)
    return path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == STDIN:
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}); expected a text file") from None
    with file:
        yield file


def _chunks(name: str, file: IO[bytes]) -> Iterator[bytes]:
    """The bytes of a file, decompressed."""
    suffix = Path(name).suffix
    try:
        if suffix == ".zst":
            yield from _zstd(name, file)
        else:
            opened = COMPRESSED.get(suffix)
            stream: Any = opened(file) if opened else file
            yield from iter(lambda: stream.read(_CHUNK), b"")
    except EOFError:
        raise DataError(f"{name}: ends in the middle; fetch the file again") from None
    except (OSError, zlib.error, lzma.LZMAError) as error:
        if getattr(error, "errno", None) is not None:
            raise DataError(f"{name}: cannot be read ({error.strerror})") from None  # type: ignore[union-attr]
        raise DataError(f"{name}: damaged, or no {suffix} file ({error}); fetch the file again") from None


def _zstd(name: str, file: IO[bytes]) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise ElmoError(f"{name}: .zst files need zstandard: pip install 'elmo-torch[zstd]'") from None
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)  # what `zstd --long=31` may write
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
    """Pieces that end with a line: the last that ends within `size` bytes, or the first one of all."""
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
        f"{where} has {size:,} bytes, more than {longest:,}; is it text? --longest-line {size} lets it pass"
    )


def _text_of(line: str, field: str, where: str) -> str:
    """The text that a JSON object holds; none where it is null."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error}); expected an object with the field {field!r}") from None
    if not isinstance(found, dict):
        raise DataError(f"{where} holds {type(found).__name__}; expected an object with the field {field!r}")
    if field not in found:
        raise DataError(f"{where} has no field {field!r}; found {', '.join(found) or 'none'}. --field names the text's")
    text = found[field]
    if not isinstance(text, str | None):
        raise DataError(f"{where}: the field {field!r} holds {type(text).__name__}; expected text")
    return (text or "").encode("utf-8", "ignore").decode("utf-8")  # half a surrogate pair is no character


def _rows(name: str, file: IO[bytes], field: str, size: int) -> Iterator[bytes]:
    """The rows of a Parquet file as JSON lines: one way to read documents, and they may hold line ends."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise ElmoError(f"{name}: Parquet needs pyarrow: pip install 'elmo-torch[parquet]'") from None
    buffer = bytearray()
    try:
        table = parquet.ParquetFile(file)
        columns = table.schema_arrow.names
        if field not in columns:
            raise DataError(f"{name}: no column {field!r}; found {', '.join(columns)}. --field names the text's")
        kind = table.schema_arrow.field(field).type
        if "string" not in str(kind):
            raise DataError(f"{name}: the column {field!r} holds {kind}; expected text")
        for batch in table.iter_batches(batch_size=256, columns=[field]):
            for text in batch.column(0).to_pylist():
                buffer += json.dumps({field: text}, ensure_ascii=False).encode() + b"\n"
                if len(buffer) >= size:
                    yield bytes(buffer)
                    buffer.clear()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: cannot be read as Parquet ({error}); fetch the file again") from None
    if buffer:
        yield bytes(buffer)
