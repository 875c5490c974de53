"""A TENSORFLOW CHECKPOINT ─▶ ITS ARRAYS, without TensorFlow.

    model.ckpt-9.index                  a table: the name of a variable ─▶ its type, shape, place and checksum
    model.ckpt-9.data-00000-of-00002    the values, in the machine's byte order; one or more such files

A variable that was created in parts has an entry for the whole, which lists the parts, and an entry for each part.
Values are protocol buffers. The files may come from anywhere: an array is allocated only after its size was compared
with that of the files.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.errors import WeightsError
from elmo.weights.crc32c import crc32c, mask
from elmo.weights.tf_table import MalformedError, entries, varint

MAX_INDEX = 8 << 20  # bytes; the index of a biLM has a few thousand
PIECE = 1 << 24  # bytes read at a time
DTYPES = {1: "f4", 2: "f8", 19: "f2"}  # TensorFlow's numbers of the float types

Extent = tuple[int, int | None]  # start and length of a part along one axis; None: all of it


@dataclass(frozen=True)
class Entry:
    """What the index says about an array, or about a part of one."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int  # bytes
    checksum: int
    parts: tuple[tuple[Extent, ...], ...]


class Bundle:
    """The arrays of a checkpoint. `prefix` is its name: the path of its files without `.index` or `.data-…`."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.index = prefix.with_name(prefix.name + ".index")
        try:
            with self.index.open("rb") as file:
                data = file.read(MAX_INDEX + 1)
        except OSError as error:
            raise WeightsError(f"{self.index}: cannot be read ({error.strerror})") from None
        if len(data) > MAX_INDEX:
            raise WeightsError(f"{self.index}: has more than {MAX_INDEX:,} bytes; expected the index of a checkpoint")
        try:
            self._entries = dict(entries(data))
            self._shards, self._order = _header(self._entries.pop(b"", b""))
            self.names = [key.decode("utf-8") for key in self._entries if not key.startswith(b"\0")]
        except (MalformedError, UnicodeDecodeError) as error:
            what = error if isinstance(error, MalformedError) else "has names that are not UTF-8"
            raise WeightsError(f"{self.index}: {what}; the checkpoint is damaged. Get it again") from None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        return self._entry(name, name.encode()).shape

    def array(self, name: str) -> npt.NDArray[np.float32]:
        """Read an array, in float32; its checksum is verified."""
        entry = self._entry(name, name.encode())
        if not entry.parts:
            return self._read(name, entry)
        places = [self._place(name, entry, part) for part in entry.parts]
        stored = [self._entry(name, _part_key(name, part)) for part in entry.parts]
        sizes = [tuple(axis.stop - axis.start for axis in place) for place in places]
        if len(set(entry.parts)) < len(sizes) or sum(map(prod, sizes)) != prod(entry.shape):
            raise self._damaged(name, "has parts that do not make up the whole")
        if any(part.parts or part.shape != size for part, size in zip(stored, sizes, strict=True)):
            raise self._damaged(name, "has parts of other shapes than the whole says")
        if 2 * prod(entry.shape) > sum(
            map(self._bytes, {part.shard for part in stored})
        ):  # a float has 2 bytes or more
            raise self._damaged(name, "has more values than the files")
        whole = np.full(entry.shape, np.nan, dtype=np.float32)
        for place, part in zip(places, stored, strict=True):
            whole[place] = self._read(name, part)
        return whole

    def _entry(self, name: str, key: bytes) -> Entry:
        if key not in self._entries:
            raise self._damaged(name, "is not there, or not all of it")
        try:
            return _parsed(self._entries[key])
        except MalformedError as error:
            raise self._damaged(name, str(error)) from None

    def _place(self, name: str, entry: Entry, part: tuple[Extent, ...]) -> tuple[slice, ...]:
        """Return where a part is in the whole."""
        if len(part) != len(entry.shape):
            raise self._damaged(name, "has a part with another number of axes")
        place = tuple(
            slice(start, size if length is None else start + length)
            for (start, length), size in zip(part, entry.shape, strict=True)
        )
        if any(not 0 <= axis.start < axis.stop <= size for axis, size in zip(place, entry.shape, strict=True)):
            raise self._damaged(name, "has a part that is not inside the whole")
        return place

    def _read(self, name: str, entry: Entry) -> npt.NDArray[np.float32]:
        if entry.dtype not in DTYPES:
            raise WeightsError(f"{self.index}: {name!r} has TensorFlow's type {entry.dtype}; expected floats")
        dtype = np.dtype(self._order + DTYPES[entry.dtype])
        if entry.size != prod(entry.shape) * dtype.itemsize or not 0 <= entry.shard < self._shards or entry.offset < 0:
            raise self._damaged(name, f"has {entry.size:,} bytes for the shape {entry.shape}")
        path = self._file(entry.shard)
        if entry.offset + entry.size > self._bytes(entry.shard):
            raise WeightsError(f"{path}: is cut short; it ends before {name!r} does. Get the checkpoint again")
        array: npt.NDArray[Any] = np.empty(entry.shape, dtype)
        left = array.reshape(-1).view(np.uint8).data
        crc = 0
        try:
            with path.open("rb") as file:
                file.seek(entry.offset)
                while left and (count := file.readinto(left[:PIECE])):
                    crc = crc32c(left[:count], crc)
                    left = left[count:]
        except OSError as error:
            raise WeightsError(f"{path}: cannot be read ({error.strerror})") from None
        if left or mask(crc) != entry.checksum:
            raise WeightsError(f"{path}: {name!r} has a wrong checksum; the file is damaged. Get the checkpoint again")
        return array.astype(np.float32, copy=False)

    def _bytes(self, shard: int) -> int:
        try:
            return self._file(shard).stat().st_size
        except OSError as error:
            raise WeightsError(f"{self._file(shard)}: cannot be read ({error.strerror})") from None

    def _file(self, shard: int) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.data-{shard:05d}-of-{self._shards:05d}")

    def _damaged(self, name: str, what: str) -> WeightsError:
        return WeightsError(f"{self.index}: {name!r} {what}; the checkpoint is damaged. Get it again")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer: numbers as unsigned integers, all else as bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, at = varint(data, at)
        elif not size:
            raise MalformedError(f"has a field of the unknown kind {kind}")
        if at + size > len(data):
            raise MalformedError("has a field that is cut short")
        found = data[at : at + size]
        yield tag >> 3, found if kind == 2 else int.from_bytes(found, "little")
        at += size


def _numbers(data: bytes) -> dict[int, int]:
    return {number: value for number, value in _fields(data) if isinstance(value, int)}


def _messages(data: bytes, number: int) -> list[bytes]:
    return [value for found, value in _fields(data) if found == number and isinstance(value, bytes)]


def _header(data: bytes) -> tuple[int, str]:
    """Return the number of data files and the byte order."""
    fields = _numbers(data)
    shards, order = fields.get(1, 0), fields.get(2, 0)
    if not 1 <= shards <= 99_999 or order not in (0, 1):
        raise MalformedError("does not say in how many files the values are")
    return shards, "<>"[order]


def _parsed(data: bytes) -> Entry:
    fields = _numbers(data)
    shape = [_signed(_numbers(axis).get(1, 0)) for message in _messages(data, 2) for axis in _messages(message, 2)]
    if any(size < 1 for size in shape) or len(shape) > 8:
        raise MalformedError(f"has the shape {tuple(shape)}")
    parts = [tuple(map(_extent, _messages(message, 1))) for message in _messages(data, 7)]
    dtype, shard, checksum = (fields.get(number, 0) for number in (1, 3, 6))
    return Entry(
        dtype, tuple(shape), shard, _signed(fields.get(4, 0)), _signed(fields.get(5, 0)), checksum, tuple(parts)
    )


def _extent(data: bytes) -> Extent:
    fields = _numbers(data)
    length = fields.get(2)
    return _signed(fields.get(1, 0)), None if length is None else _signed(length)


def _signed(value: int) -> int:
    """Return the signed number of 64 bits that a varint means."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _part_key(name: str, part: tuple[Extent, ...]) -> bytes:
    """Return the key of a part: a zero, the name, the number of axes, and the start and length along each.

    The numbers are written so that their bytes have the order of the numbers. A length of −1 means the whole axis.
    """
    numbers = [number for start, length in part for number in (start, -1 if length is None else length)]
    return b"\0" + name.encode() + bytes([0, 1, 1, len(part)]) + b"".join(map(_ordered, numbers))


def _ordered(number: int) -> bytes:
    """Write a signed number: n bytes begin with n ones and a zero, as far as the first byte of small ones shows."""
    size = 1
    while not -(1 << 7 * size - 1) <= number < 1 << 7 * size - 1:
        size += 1
    header = ((1 << size) - 1) << 7 * size  # the first `size` of 8 · size bits
    return ((number ^ header) & (1 << 8 * size) - 1).to_bytes(size, "big")
