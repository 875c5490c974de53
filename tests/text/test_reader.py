"""Files of every kind give the same lines, whatever the size of the pieces; what cannot be read says where."""

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DataError, ElmoError
from elmo.text import reader
from elmo.text.reader import Lines, Piece, lines, pieces, read_lines, total_bytes

LINES = ["The cat sat.", "", "naïve 日本語 🙂", "x" * 300, "a\u2028b\x0bc", "last"]
PLAIN = "\n".join(LINES).encode() + b"\n"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def read(*names: object, size: int = 64, longest: int = 1000, field: str = "text") -> list[str]:
    """The lines, without the empty one after the last line end of each piece."""
    found = []
    for piece in pieces([str(name) for name in names], field=field, longest=longest, size=size):
        got = [line for _, line in lines(piece, longest)]
        found += got[:-1] if piece.field is None and piece.data.endswith(b"\n") else got
    return found


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def jsonl(field: str = "text") -> bytes:
    return b"".join(json.dumps({"id": k, field: line}).encode() + b"\n" for k, line in enumerate(LINES))


# What is read


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("name", ["text.txt", "text", "text.en"])
def test_plain_text(name: str, size: int, tmp_path: Path) -> None:
    assert read(write(tmp_path / name, PLAIN), size=size) == LINES
    assert read(write(tmp_path / name, PLAIN[:-1]), size=size) == LINES


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_compressed_text_and_several_of_them_end_to_end(suffix: str, size: int, tmp_path: Path) -> None:
    once = COMPRESS[suffix](PLAIN)
    assert read(write(tmp_path / f"text.txt{suffix}", once), size=size) == LINES
    assert read(write(tmp_path / f"text{suffix}", once + COMPRESS[suffix](PLAIN)), size=size) == LINES * 2
    assert read(write(tmp_path / f"text.jsonl{suffix}", COMPRESS[suffix](jsonl())), size=size) == LINES


def test_json_lines_and_parquet_hold_documents_of_several_lines(tmp_path: Path) -> None:
    documents = ["one\ntwo", "", None, 'three "quoted"\r\nfour', "日本"]
    expected = ["one", "two", "", "", 'three "quoted"\r', "four", "日本"]
    rows = b"\n".join(json.dumps({"body": text}).encode() for text in documents) + b"\n\n  \n"
    assert read(write(tmp_path / "a.jsonl", rows), field="body") == expected
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"id": range(5), "body": pa.array(documents).cast(kind)})
        parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
        assert read(tmp_path / "a.parquet", field="body") == expected


def test_half_a_surrogate_pair_is_left_out(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.jsonl", rb'{"text": "a\ud800b \ud83d\ude42"}')) == ["ab 🙂"]


@pytest.mark.parametrize("size", [1, 64, 1000])
def test_standard_input(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(PLAIN)))
    assert read("-", size=size) == LINES


def test_a_mark_of_byte_order_is_no_part_of_the_text(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")) == ["one", "\ufefftwo"]


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/c.txt", ".hidden", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert read(*reader.files([tmp_path, tmp_path / "a.txt"])) == ["a.txt", "b.txt", "deep/c.txt", "a.txt"]


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    """Their texts would be missing, and nobody would notice."""
    for name in ("text/a.txt", "text/deep/b.txt", "elsewhere/c.txt", "elsewhere/.hidden/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "text" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "text" / "deep" / "up").symlink_to(tmp_path / "text")
    (tmp_path / "text" / "self").symlink_to(".")
    (tmp_path / "text" / "broken").symlink_to("nowhere")
    (tmp_path / "text" / ".git").symlink_to(tmp_path / "elsewhere")
    found = [str(Path(name).relative_to(tmp_path / "text")) for name in reader.files([tmp_path / "text"])]
    assert found == ["a.txt", "deep/b.txt", "link/c.txt"]


@given(st.lists(st.text(st.sampled_from("ab\r é")), max_size=30), st.integers(1, 50), st.booleans())
@settings(deadline=None)
def test_pieces_are_whole_lines_of_about_the_size(
    tmp_path_factory: pytest.TempPathFactory, text: list[str], size: int, ends: bool
) -> None:
    data = ("\n".join(text) + ("\n" if ends else "")).encode()
    path = write(tmp_path_factory.mktemp("files") / "a.txt", data)
    found = list(pieces([str(path)], size=size))
    assert b"".join(piece.data for piece in found) == data
    number = 1
    for k, piece in enumerate(found):
        assert piece.first == number
        number += piece.data.count(b"\n")
        assert piece.data.endswith(b"\n") or k == len(found) - 1
        assert len(piece.data) <= size or b"\n" not in piece.data[:-1][size:]
        if k + 1 < len(found):  # the next line would not have fitted
            assert len(piece.data + found[k + 1].data.split(b"\n")[0]) >= size


def test_how_far_it_has_read_ends_at_the_size_of_all(tmp_path: Path) -> None:
    names = [str(write(tmp_path / "a.txt", PLAIN * 9)), str(write(tmp_path / "b.gz", gzip.compress(PLAIN)))]
    total = total_bytes(names)
    assert total == sum(Path(name).stat().st_size for name in names)
    positions = [piece.read for piece in pieces(names, size=100)]
    assert positions == sorted(positions)
    assert positions[-1] == total
    assert total_bytes(["-"]) is None


# What is refused


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_truncated_file(suffix: str, tmp_path: Path) -> None:
    data = COMPRESS[suffix](PLAIN * 50)
    path = write(tmp_path / f"a{suffix}", data[:-12])
    with pytest.raises(DataError, match=rf"a\{suffix}: is cut short; fetch the file again"):
        read(path)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_that_is_not_what_its_name_says(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", b"this is plain text\n" * 10)
    with pytest.raises(DataError, match=rf"a\{suffix}: damaged, or not a {suffix} file \(.+\); fetch the file again"):
        read(path)


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet \(.+\); fetch the file again"):
        read(write(tmp_path / "a.parquet", b"nothing of the sort" * 10))


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("zstandard", "a.zst", r"a\.zst: \.zst files need zstandard: pip install 'elmo-torch\[zstd\]'"),
        ("pyarrow", "a.parquet", r"a\.parquet: Parquet needs pyarrow: pip install 'elmo-torch\[parquet\]'"),
    ],
)
def test_a_missing_library_is_named(
    module: str, name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ElmoError, match=message):
        read(write(tmp_path / name, PLAIN))


@pytest.mark.parametrize("size", [8, 1 << 20])
def test_bytes_that_are_not_utf8(size: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"good\n\nalso good\nbad \xe9 here\n")
    with pytest.raises(DataError, match=r"a\.txt: line 4 is not UTF-8 \(byte 5 is 0xe9\); convert the file first"):
        read(path, size=size)


@pytest.mark.parametrize("size", [64, 1 << 20, 16 << 20])
def test_a_line_of_ten_megabytes(size: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntwo\n" + b"x" * 10_000_000 + b"\nlast\n")
    message = (
        r"a\.txt: line 3 has 10,000,000 bytes, more than 1,000,000; is it text\? Use --longest-line 10000000 to "
        r"accept it, an option of `elmo prepare`$"  # `elmo pretrain`, which reads text too, has no such option
    )
    with pytest.raises(DataError, match=message):
        read(path, longest=1_000_000, size=size)
    assert [len(line) for line in read(path, longest=10_000_000, size=size)] == [3, 3, 10_000_000, 4]


def test_a_long_row_of_parquet(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"text": ["short", "x" * 2000]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: row 2 has 2,0\d\d bytes, more than 1,000;"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": 1, "body": "x"}', r"line 2 has no field 'text'; found id, body\. Name it with --field"),
        ("{}", r"line 2 has no field 'text'; found none\."),
        ('{"text": "x"', r"line 2 is not JSON \(.+\); expected an object with the field 'text'"),
        ('["x"]', r"line 2 contains list; expected an object with the field 'text'"),
        ('{"text": 3}', r"line 2: the field 'text' contains int; expected text"),
    ],
)
def test_json_without_the_text(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"a\.jsonl: {message}"):
        read(write(tmp_path / "a.jsonl", b'{"text": "fine"}\n' + line.encode()))


def test_parquet_without_the_text(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1], "body": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: no column 'text'; found id, body\. Name it with --field"):
        read(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: the column 'id' contains int64; expected text"):
        read(tmp_path / "a.parquet", field="id")


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: not found; expected a text file, a folder of them, or - for"):
        reader.files([tmp_path / "none.txt"])
    with pytest.raises(DataError, match=r"no file in this folder; expected text files"):
        reader.files([tmp_path])


def test_a_name_that_no_file_can_have_is_one_line() -> None:
    name = "x" * 300
    for use in (lambda: reader.files([name]), lambda: read_lines(name)):
        with pytest.raises(DataError, match=rf"^{name}: cannot be read \(File name too long\); expected a text file$"):
            use()


def test_a_folder_that_may_not_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of the text is in it would be missing."""
    (tmp_path / "text" / "closed").mkdir(parents=True)
    write(tmp_path / "text" / "a.txt", PLAIN)
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"text/closed: cannot be read \(Permission denied\); expected a text file$"):
        reader.files([tmp_path / "text"])


def test_a_disk_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Failing()))
    with pytest.raises(DataError, match=r"standard input: cannot be read \(Input/output error\)"):
        read("-")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    path = write(tmp_path / "a.txt", PLAIN)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"a\.txt: cannot be read \(Permission denied\); expected a text file"):
        read(path)


def test_numbers_of_lines_go_on_from_piece_to_piece() -> None:
    assert list(lines(Piece("a", 7, b"x\ny"))) == [(7, "x"), (8, "y")]


# The reader of one text file


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("suffix", ["", ".txt", *COMPRESS])
def test_read_lines_is_the_same_for_every_kind_of_file(
    suffix: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_CHUNK", chunk)
    monkeypatch.setattr(reader, "_ZSTD_CHUNK", chunk)
    data = b"\xef\xbb\xbf" + PLAIN.replace(b"sat.\n", b"sat.\r\n")
    compress = COMPRESS.get(suffix, bytes)
    path = write(tmp_path / f"text{suffix}", compress(data))
    assert list(read_lines(path)) == list(enumerate(LINES, 1))
    assert list(read_lines(str(path))) == list(enumerate(LINES, 1))
    path = write(tmp_path / f"text{suffix}", compress(data[:-1]))
    assert list(read_lines(path)) == list(enumerate(LINES, 1))
    assert list(read_lines(write(tmp_path / f"empty{suffix}", compress(b"")))) == []
    assert list(read_lines(write(tmp_path / f"blank{suffix}", compress(b"\n\n")))) == [(1, ""), (2, "")]


def test_read_lines_of_standard_input_and_of_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(PLAIN)))
    assert list(read_lines("-")) == list(enumerate(LINES, 1))
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "a.txt", PLAIN)
    assert list(read_lines("~/a.txt")) == list(enumerate(LINES, 1))
    assert read(*reader.files(["~/a.txt"])) == LINES


@given(st.text(st.sampled_from("ab\r\n é")), st.integers(1, 9))
@settings(deadline=None)
def test_read_lines_splits_at_newlines_alone(
    tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int
) -> None:
    path = write(tmp_path_factory.mktemp("lines") / "a.txt", text.encode())
    expected = [line.removesuffix("\n").removesuffix("\r") for line in io.StringIO(text, newline="\n")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_CHUNK", chunk)
        assert list(read_lines(path)) == list(enumerate(expected, 1))


def test_the_position_is_that_of_the_line_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_CHUNK", 100)
    plain = Lines(write(tmp_path / "a.txt", PLAIN))
    assert plain.size == len(PLAIN)
    ends = [k + 1 for k, byte in enumerate(PLAIN) if byte == ord("\n")]
    assert [plain.position for _ in plain] == ends
    packed = Lines(write(tmp_path / "a.gz", gzip.compress(PLAIN * 1000)))
    positions = [packed.position for _ in packed]
    assert positions == sorted(positions)
    assert positions[-1] == packed.size == (tmp_path / "a.gz").stat().st_size
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(PLAIN)))
    stream = Lines("-")
    assert [stream.position for _ in stream] == [0] * len(LINES)
    assert stream.size is None


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_line_that_is_not_utf8_is_named(suffix: str, tmp_path: Path) -> None:
    compress = COMPRESS.get(suffix, bytes)
    path = write(tmp_path / f"a{suffix}", compress(b"good\r\n\nbad \xe9 here\n"))
    message = r"line 3 is not UTF-8 \(byte 5 is 0xe9\); convert the file first, e\.g\. with iconv$"
    with pytest.raises(DataError, match=message):
        list(read_lines(path))
    path = write(tmp_path / "b", b"\xef\xbb\xbfbad \xe9 here\n")
    with pytest.raises(DataError, match=r"line 1 is not UTF-8 \(byte 8 is 0xe9\)"):
        list(read_lines(path))


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", data)
    return file.getvalue()


def in_parquet(data: bytes) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"text": [data.decode()]}), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (gzip.compress, r"is compressed with gzip, not UTF-8 text; decompress the file first, or give .* \.gz$"),
        (lzma.compress, r"is compressed with xz, not UTF-8 text; decompress the file first, or give .* \.xz$"),
        (bz2.compress, r"is compressed with bzip2, not UTF-8 text; decompress the file first, or give .* \.bz2$"),
        (COMPRESS[".zst"], r"is compressed with zstd, not UTF-8 text; decompress the file first, or .* \.zst$"),
        (zipped, r"is a zip archive, not UTF-8 text; unpack it first$"),
        (in_parquet, r"is a Parquet file, not UTF-8 text; give its name the ending .parquet for `prepare` or"),
        (lambda data: data.decode().encode("utf-16"), r"is UTF-16, .*; convert the file first, e\.g\. with iconv -f"),
        (lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"), r"is UTF-16, not UTF-8 text; convert"),
        (lambda data: data.decode().encode("utf-32"), r"is UTF-32, not UTF-8 text; convert"),
    ],
)
def test_other_formats_under_the_name_of_text(
    make: Callable[[bytes], bytes], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.txt", make(PLAIN))
    with pytest.raises(DataError, match=r"a\.txt: " + message):
        list(read_lines(path))
    with pytest.raises(DataError, match=r"a\.txt: " + message):
        read(path)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(make(PLAIN))))
    with pytest.raises(DataError, match="standard input: " + message):
        list(read_lines("-"))


def test_text_that_looks_a_little_like_bzip2(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a.txt", b"BZh9 is a word"))) == [(1, "BZh9 is a word")]


def test_what_cannot_be_opened_is_refused_before_the_first_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: cannot be read \(No such file or directory\); expected a text"):
        read_lines(tmp_path / "none.txt")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\); expected a text file"):
        read_lines(tmp_path)


def test_a_line_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "LONGEST_READ", 1000)
    monkeypatch.setattr(reader, "_CHUNK", 100)
    with pytest.raises(DataError, match=r"a\.txt: line 2 has more than 1,000 bytes; is it text\?"):
        list(read_lines(write(tmp_path / "a.txt", b"one\n" + b"x" * 5000)))


def test_a_zstd_file_that_unpacks_to_much_more_is_read_in_pieces(tmp_path: Path) -> None:
    # 4,000 blocks of 4 bytes, each of which repeats a byte 131,072 times: 500 MiB in 16 kB
    block = (131_072 << 3 | 2).to_bytes(3, "little") + b"x"
    (tmp_path / "x.zst").write_bytes(b"\x28\xb5\x2f\xfd\0\x58" + block * 4000 + b"\x01\0\0")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"x\.zst: line 1 has more than 67,108,864 bytes; is it text\?"):
            next(read_lines(tmp_path / "x.zst"))
        assert tracemalloc.get_traced_memory()[1] < 400 << 20
    finally:
        tracemalloc.stop()


def test_an_xz_file_that_needs_more_memory_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> object:
        raise MemoryError

    (tmp_path / "x.xz").write_bytes(lzma.compress(b"text"))
    monkeypatch.setitem(reader.COMPRESSED, ".xz", refuse)
    with pytest.raises(DataError, match=r"x\.xz: needs more memory to be decompressed than there is$"):
        next(read_lines(tmp_path / "x.xz"))
