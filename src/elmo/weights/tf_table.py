"""A TABLE FILE ─▶ ITS KEYS AND VALUES: the index of a TensorFlow checkpoint, in the table format of LevelDB.

    block │ … │ block │ meta index block │ index block │ footer (48 bytes)

The footer tells where the index block is; the index block tells where the blocks of entries are. An entry is
`shared, unshared, size` (varints), the key without the `shared` first bytes of the key before it, and the value. A
block ends with the places where `shared` is 0, then follow its compression (a byte) and its checksum.

The file may come from anywhere: every number in it is checked, and memory is limited whatever it claims.
"""

import struct
from collections.abc import Iterator

from elmo.weights.crc32c import masked_crc32c

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER = 48  # bytes
TRAILER = 5  # bytes after a block: compression and checksum
MAX_KEY = 4096  # bytes
MAX_ENTRIES = 100_000
MAX_BLOCK = 16 << 20  # bytes, uncompressed


class MalformedError(ValueError):
    """The bytes are not what the format allows."""


def entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table, in its order."""
    if len(data) < FOOTER or not data.endswith(MAGIC):
        raise MalformedError("does not end as the index of a checkpoint does")
    footer = data[-FOOTER:]
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    count = left = 0
    for _, handle in _block_entries(_block(data, index)):
        where, _ = _handle(handle, 0)
        left += where[1]
        if left > len(data):  # else one block, named again and again, would be read again and again
            raise MalformedError("has blocks that overlap")
        for entry in _block_entries(_block(data, where)):
            count += 1
            if count > MAX_ENTRIES:
                raise MalformedError(f"has more than {MAX_ENTRIES:,} entries")
            yield entry


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned number of 7 bits a byte, lowest first; return it, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise MalformedError("has a number that does not end")


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Read the offset and the size of a block; return them, and where they end."""
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return (offset, size), at


def _block(data: bytes, where: tuple[int, int]) -> bytes:
    offset, size = where
    end = offset + size
    if end + TRAILER > len(data):
        raise MalformedError("is cut short")
    if masked_crc32c(data[offset : end + 1]) != int.from_bytes(data[end + 1 : end + TRAILER], "little"):
        raise MalformedError("has a block with a wrong checksum")
    compression = data[end]
    if compression == 0:
        return data[offset:end]
    if compression == 1:
        return _snappy(data[offset:end])
    raise MalformedError(f"has a block with the unknown compression {compression}")


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise MalformedError("has a block that is cut short")
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or shared + unshared > MAX_KEY or at + unshared + size > end:
            raise MalformedError("has an entry that does not fit its block")
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + size]
        at += size
    if at != end:
        raise MalformedError("has a block that does not end where it says")


def _snappy(data: bytes) -> bytes:
    """Decompress Snappy: the size, then literals and copies of what is already there. Some old versions wrote it."""
    size, at = varint(data, 0)
    if size > MAX_BLOCK:
        raise MalformedError(f"has a block of {size:,} bytes, uncompressed")
    result = bytearray()
    while at < len(data) and len(result) <= size:
        tag = data[at]
        kind, number = tag & 3, tag >> 2
        at += 1
        if kind == 0:  # a literal; a long one has its length in the next 1 to 4 bytes
            extra = max(number - 59, 0)
            length = 1 + (int.from_bytes(data[at : at + extra], "little") if extra else number)
            at += extra
            if at + length > len(data):
                raise MalformedError("has a block that cannot be uncompressed")
            result += data[at : at + length]
            at += length
            continue
        width = (1, 2, 4)[kind - 1]
        offset = int.from_bytes(data[at : at + width], "little")
        length = 1 + number
        if kind == 1:
            offset, length = offset | number >> 3 << 8, 4 + (number & 7)
        at += width
        if not 1 <= offset <= len(result) or at > len(data):
            raise MalformedError("has a block that cannot be uncompressed")
        piece = result[-offset:][:length]
        result += (piece * (-(-length // len(piece))))[:length]  # a copy may reach into itself
    if len(result) != size or at != len(data):
        raise MalformedError("has a block that cannot be uncompressed")
    return bytes(result)
