"""BYTES ─▶ THEIR CRC-32C, with NumPy: TensorFlow's checkpoints have one for every block and every tensor.

A CRC is the remainder of a polynomial division with coefficients 0 and 1, where adding is XOR. Let y stand for 32 zero
bits. CRC-32C's polynomial divides y^5275 + y^4508 + y^2751 + 1, so a word may be removed if it is added (XOR) to the
words 5275 − 4508 = 767, 5275 − 2751 = 2524 and 5275 places behind it. Squaring doubles the exponents: the same is true
for 2^k times these distances. So large data is shortened by XOR of large pieces, until 5275 words are left.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
DISTANCES = (767, 2524, 5275)  # words
MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: bytes | memoryview) -> int:
    """Return the checksum of some data as TensorFlow stores it: rotated, plus a constant."""
    return mask(crc32c(data))


def mask(crc: int) -> int:
    """Rotate a CRC and add a constant: a CRC of data that contains its own CRC would be useless."""
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def crc32c(data: bytes | memoryview, before: int = 0) -> int:
    """Return the CRC-32C of some data, or, with the CRC of what is before it, of both together."""
    register = before ^ 0xFFFFFFFF
    whole = len(data) // 4 * 4
    words = np.frombuffer(data[:whole], dtype="<u4")
    rest = bytes(data[whole:])
    if len(words) > DISTANCES[-1]:
        words = words.copy()
        words[0] ^= register
        rest = _shortened(words).tobytes() + rest
        register = 0
    else:
        rest = words.tobytes() + rest
    table = _table()
    for byte in rest:
        register = table[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFFFFFF


def _shortened(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return at most 5275 words that have the same CRC, from a register of zeros; changes its argument."""
    last = DISTANCES[-1]
    scale = 1 << (len(words) // last).bit_length()
    while len(words) > last:
        while len(words) <= last * scale:
            scale //= 2
        nearest, *_ = distances = [scale * distance for distance in DISTANCES]
        size = min(nearest, len(words) - distances[-1])  # what is removed is not changed by its own removal
        for distance in distances:
            words[distance : distance + size] ^= words[:size]
        words = words[size:]
    return words


@cache
def _table() -> list[int]:
    """Return what eight zero bits make of the registers 0 to 255."""
    table = []
    for register in range(256):
        for _ in range(8):
            register = register >> 1 ^ (POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return table
