"""Files of word vectors that are compressed, in another encoding, or damaged."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from elmo.errors import DataError
from elmo.tasks import word_vectors

TEXT = "the 1 2.5\ncafé -3 4e-1\n"


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".zst", zstandard.ZstdCompressor().compress),
        ("", lambda data: b"\xef\xbb\xbf" + data),
        ("", lambda data: data.replace(b"\n", b"\r\n")),
    ],
)
def test_a_file_may_be_compressed(ending: str, compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / f"glove.txt{ending}"
    path.write_bytes(compress(TEXT.encode()))
    read = word_vectors.read(path, 10)
    assert read.words == ["the", "café"]
    np.testing.assert_array_equal(read.matrix, np.array([[1, 2.5], [-3, 0.4]], dtype=np.float32))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", TEXT.encode("latin-1"), "v.txt: line 2 is not UTF-8 (byte 4 is 0xe9)"),
        ("v.bin", b"2 3\nthe \x00\x00\x80\x3f\xff\xff\xff\xff\xcd\xcc\x4c\x3d\n", "v.bin: line 2 is not UTF-8"),
        ("v.bin", b"2 2\nthe \x00\x00\x00\x3f \x00\x00\x00\x3f\n", "v.bin:2: "),
        ("v.txt.gz", TEXT.encode(), "v.txt.gz: damaged, or not a .gz file"),
        ("v.txt.gz", gzip.compress(TEXT.encode() * 99, mtime=0)[:60], "v.txt.gz: is cut short"),
        ("v.txt.zst", TEXT.encode(), "v.txt.zst: damaged, or not a .zst file"),
        ("v.txt", b"a 1 2\nb nan 2\n", "v.txt:2: the vector of 'b' contains nan; expected finite numbers"),
        ("v.txt", b"a 1 2\nb 1 -inf\n", "v.txt:2: the vector of 'b' contains -inf; expected finite numbers"),
        ("v.txt", b"a 1 2\nb 1 1e39\n", "v.txt:2: the vector of 'b' contains 1e39; expected finite numbers"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_file_that_cannot_be_used_is_one_line(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as refused:
        word_vectors.read(tmp_path / name, 10)
    assert str(refused.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(refused.value)
