"""TensorFlow's checkpoint format a second time, for writing: from its description, sharing no code with the reader."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Place = tuple[slice, ...]  # a part of an array; slice(None) is a whole axis

FLOAT_TYPES = {"f4": 1, "f8": 2, "f2": 19}


def crc32c(data: bytes) -> int:
    """Bit by bit, as a division of polynomials is done by hand."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15) + (crc << 17) % 2**32 + 0xA282EAD8) % 2**32


def varint(number: int) -> bytes:
    number %= 2**64
    groups = [number & 127]
    while number := number >> 7:
        groups.append(number & 127)
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: a varint, or bytes."""
    if isinstance(value, int):
        return varint(number * 8) + varint(value)
    return varint(number * 8 + 2) + varint(len(value)) + value


def header(shards: int = 1, big_endian: bool = False) -> bytes:
    return field(1, shards) + (field(2, 1) if big_endian else b"") + field(3, field(1, 1))


def entry(
    dtype: int,
    shape: Sequence[int],
    shard: int = 0,
    offset: int = 0,
    size: int = 0,
    checksum: int = 0,
    parts: Sequence[Place] = (),
) -> bytes:
    axes = b"".join(field(2, field(1, axis)) for axis in shape)
    message = field(1, dtype) + field(2, axes) + field(3, shard) + field(4, offset) + field(5, size)
    message += varint(6 * 8 + 5) + struct.pack("<I", checksum)
    for place in parts:
        extents = [field(1, axis.start) + field(2, axis.stop - axis.start) if axis.stop else b"" for axis in place]
        message += field(7, b"".join(field(1, extent) for extent in extents))
    return message


def ordered(number: int) -> bytes:
    """A signed number in the order-preserving code: n bytes hold 7n bits; the first n bits are ones, then a zero."""
    n = next(n for n in range(1, 9) if -(2 ** (7 * n - 1)) <= number < 2 ** (7 * n - 1))
    bits = format(number % 2 ** (8 * n), f"0{8 * n}b")
    flipped = "".join("10"[int(bit)] for bit in bits[:n]) + bits[n:]
    return int(flipped, 2).to_bytes(n, "big")


def part_key(name: str, place: Place) -> bytes:
    key = b"\x00" + name.encode() + b"\x00\x01" + b"\x01" + bytes([len(place)])
    for axis in place:
        key += ordered(axis.start or 0) + ordered(axis.stop - axis.start if axis.stop else -1)
    return key


def block(pairs: Sequence[tuple[bytes, bytes]], restart: int = 3) -> bytes:
    data, before, restarts = b"", b"", []
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % restart == 0:
            restarts.append(len(data))
        else:
            while shared < min(len(before), len(key)) and before[shared] == key[shared]:
                shared += 1
        data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    restarts = restarts or [0]
    return data + b"".join(struct.pack("<I", at) for at in [*restarts, len(restarts)])


def snappy_literals(data: bytes) -> bytes:
    """Valid Snappy without any copy: literals of up to 60 bytes."""
    pieces = [data[at : at + 60] for at in range(0, len(data), 60)]
    return varint(len(data)) + b"".join(bytes([len(piece) - 1 << 2]) + piece for piece in pieces)


def table(blocks: Sequence[bytes], last_keys: Sequence[bytes], snappy: bool = False) -> bytes:
    """A table file of these blocks, with right checksums, whatever is in the blocks."""
    file = b""

    def put(content: bytes) -> bytes:
        nonlocal file
        stored = snappy_literals(content) + b"\x01" if snappy else content + b"\x00"
        handle = varint(len(file)) + varint(len(stored) - 1)
        file += stored + struct.pack("<I", masked(stored))
        return handle

    handles = [put(content) for content in blocks]
    ends = put(block([])) + put(block(list(zip(last_keys, handles, strict=True)), restart=1))
    return file + ends.ljust(40, b"\x00") + struct.pack("<Q", 0xDB4775248B80FB57)


def write_index(path: Path, pairs: Mapping[bytes, bytes], per_block: int = 5, snappy: bool = False) -> None:
    rows = sorted(pairs.items())
    groups = [rows[at : at + per_block] for at in range(0, len(rows), per_block)]
    path.write_bytes(table([block(group) for group in groups], [group[-1][0] for group in groups], snappy))


def write_checkpoint(
    prefix: Path,
    arrays: Mapping[str, NDArray[np.floating]],
    *,
    shards: int = 1,
    parts: Mapping[str, Sequence[Place]] | None = None,
    big_endian: bool = False,
    snappy: bool = False,
) -> dict[bytes, bytes]:
    """Write a checkpoint; arrays, and parts of them, go to the shards in turn. Returns the pairs of its index."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    files = [b""] * shards
    pairs = {b"": header(shards, big_endian)}
    stored = 0

    def store(key: bytes, array: NDArray[np.floating]) -> None:
        nonlocal stored
        shard, stored = stored % shards, stored + 1
        data = array.astype(array.dtype.newbyteorder(">" if big_endian else "<")).tobytes()
        kind = FLOAT_TYPES[array.dtype.str[1:]]
        pairs[key] = entry(kind, array.shape, shard, len(files[shard]), len(data), masked(data))
        files[shard] += data

    for name, array in arrays.items():
        places = (parts or {}).get(name, ())
        if places:
            pairs[name.encode()] = entry(FLOAT_TYPES[array.dtype.str[1:]], array.shape, parts=places)
            for place in places:
                store(part_key(name, place), array[place])
        else:
            store(name.encode(), array)
    for shard, data in enumerate(files):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(data)
    write_index(prefix.with_name(prefix.name + ".index"), pairs, snappy=snappy)
    return pairs
