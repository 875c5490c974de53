"""CRC-32C against the values of RFC 3720, and against the division of polynomials bit by bit."""

import numpy as np
import pytest

import tf_writer
from elmo.weights.crc32c import crc32c, masked_crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_the_values_of_the_standard(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected == tf_writer.crc32c(data)


@pytest.mark.parametrize("size", [4 * 5275, 4 * 5275 + 4, 4 * 5275 + 7, 4 * 6042, 50_001, 99_999])
def test_large_data_is_shortened_without_changing_its_crc(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    expected = tf_writer.crc32c(data)
    assert crc32c(data) == expected
    assert crc32c(memoryview(data)[size // 3 :], crc32c(data[: size // 3])) == expected


def test_a_changed_bit_of_large_data_changes_the_crc() -> None:
    data = bytearray(1 << 20)
    before = crc32c(bytes(data))
    for place in (0, 1, 767 * 4, 2524 * 4, 5275 * 4, 1 << 19, (1 << 20) - 1):
        data[place] ^= 16
        assert crc32c(bytes(data)) != before
        data[place] ^= 16


def test_the_mask_rotates_and_adds() -> None:
    # 0xE3069283 rotated right by 15 is 0x2507C60D; plus 0xA282EAD8 it is 0xC78AB0E5.
    assert masked_crc32c(b"123456789") == 0xC78AB0E5 == tf_writer.masked(b"123456789")
