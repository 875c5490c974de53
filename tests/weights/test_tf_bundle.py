"""TensorFlow's checkpoint files: what TensorFlow wrote is read bit by bit, and no damage does more than one line."""

import re
import shutil
import struct
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tf_writer
from elmo.errors import WeightsError
from elmo.weights import tf_table
from elmo.weights.tf_bundle import Bundle
from elmo.weights.tf_table import MalformedError, entries
from reference_files import reference

ARRAYS = {
    "lm/a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "lm/a/Adagrad": np.ones((2, 3), dtype=np.float32),
    "lm/b": np.array([np.pi, -0.0, 1e-40], dtype=np.float64),
    "lm/c": np.array([[[0.5]]], dtype=np.float16),
    "step": np.array(7, dtype=np.float32),
    **{f"lm/layer_{k}/kernel": np.full((1, k + 1), k, dtype=np.float32) for k in range(12)},
}


def formula(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The values of tests/reference/tensorflow, as its make.py describes them, number by number."""
    start = crc32(name.encode())
    numbers = [((k * 40503 + start) % 65536) / 65536 - 0.5 for k in range(int(np.prod(shape)))]
    return np.array(numbers, dtype=np.float32).reshape(shape)


def same(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    return ours.dtype == np.float32 and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


# What is read

@pytest.mark.parametrize(("folder", "n_variables"), [("sharded", 25), ("old", 19)])
def test_every_bit_that_tensorflow_wrote(folder: str, n_variables: int) -> None:
    bundle = Bundle(reference(f"tensorflow/{folder}") / "model.ckpt-7")
    names = [name for name in bundle.names if name.startswith("lm/") and "Adagrad" not in name]
    assert len(names) == n_variables
    for name in names:
        assert same(bundle.array(name), formula(name.removeprefix("lm/"), bundle.shape(name))), name
    assert bundle.array("global_step") == 7


def test_the_files_of_tensorflow_have_parts_shards_and_slots() -> None:
    prefix = reference("tensorflow/sharded") / "model.ckpt-7"
    bundle = Bundle(prefix)
    assert bundle.shape("lm/softmax/W") == (130, 4)
    keys = [key for key, _ in entries(bundle.index.read_bytes())]
    assert sum(key.startswith(b"\0lm/softmax/W\0") for key in keys) == 4
    assert sum(path.stat().st_size > 1000 for path in prefix.parent.glob("*.data-*-of-00003")) == 2
    assert same(bundle.array("lm/CNN/W_cnn_0/Adagrad"), np.ones((1, 1, 2, 2), dtype=np.float32))


@pytest.mark.parametrize("snappy", [False, True])
@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_what_the_second_implementation_writes(shards: int, big_endian: bool, snappy: bool, tmp_path: Path) -> None:
    tf_writer.write_checkpoint(tmp_path / "x", ARRAYS, shards=shards, big_endian=big_endian, snappy=snappy)
    bundle = Bundle(tmp_path / "x")
    assert sorted(bundle.names) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        assert bundle.shape(name) == array.shape
        assert same(bundle.array(name), array.astype(np.float32)), name


def test_parts_along_any_axis(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((3, 8300)).astype(np.float16).astype(np.float32)
    cuts = [0, 5, 64, 8191, 8192, 8299, 8300]  # starts and lengths of one, two and three bytes
    columns = [(slice(None), slice(a, b)) for a, b in pairwise(cuts)]
    quarters = [(slice(a, b), slice(c, d)) for a, b in ((0, 1), (1, 3)) for c, d in ((0, 70), (70, 8300))]
    for places in (columns, quarters, [(slice(None), slice(None))]):
        arrays = {"lm/w": array.astype(np.float16), "b": array[0, :3]}
        tf_writer.write_checkpoint(tmp_path / "x", arrays, parts={"lm/w": places}, shards=2)
        bundle = Bundle(tmp_path / "x")
        assert bundle.names == ["b", "lm/w"]
        assert same(bundle.array("lm/w"), array)


def test_snappy_copies() -> None:
    # "abcd", a copy of 3 from 4 back, of 10 from 2 back (into itself), of 5 from 17 back with a distance of 4 bytes
    stream = (
        tf_writer.varint(22) + b"\x0cabcd" + bytes([2 << 2 | 2, 4, 0])
        + bytes([(10 - 4) << 2 | 1, 2]) + bytes([4 << 2 | 3]) + struct.pack("<I", 17)
    )  # fmt: skip
    assert tf_table._snappy(stream) == b"abcdabc" + b"bc" * 5 + b"abcda"
    long = bytes(range(256)) * 2
    assert tf_table._snappy(tf_writer.varint(512) + bytes([61 << 2]) + struct.pack("<H", 511) + long) == long


# What is refused

def assert_refused(prefix: Path, message: str, name: str = "lm/a") -> None:
    with pytest.raises(WeightsError, match=message) as error:
        Bundle(prefix).array(name)
    assert "\n" not in str(error.value)


def test_missing_files(tmp_path: Path) -> None:
    assert_refused(tmp_path / "x", r"x\.index: cannot be read \(No such file")
    tf_writer.write_checkpoint(tmp_path / "x", ARRAYS, shards=2)
    (tmp_path / "x.data-00000-of-00002").unlink()
    assert_refused(tmp_path / "x", r"x\.data-00000-of-00002: cannot be read \(No such file")


def test_values_that_were_changed_or_cut_off(tmp_path: Path) -> None:
    tf_writer.write_checkpoint(tmp_path / "x", ARRAYS)
    data = tmp_path / "x.data-00000-of-00001"
    whole = data.read_bytes()
    data.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert_refused(tmp_path / "x", r"00001: 'lm/a' has a wrong checksum; the file is damaged")
    assert Bundle(tmp_path / "x").array("step") == 7
    data.write_bytes(whole[:20])
    assert_refused(tmp_path / "x", r"00001: is cut short; it ends before 'lm/a' does")


def entry_of(**changed: Any) -> bytes:
    values: dict[str, Any] = {"dtype": 1, "shape": [2, 3], "size": 24, "checksum": tf_writer.masked(bytes(24))}
    return tf_writer.entry(**(values | changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dtype": 7}, "'lm/a' has TensorFlow's type 7; expected floats"),
        ({"shape": [2, 4]}, r"'lm/a' has 24 bytes for the shape \(2, 4\)"),
        ({"shape": [2**62, 2**62], "size": 2**63 - 1}, "bytes for the shape"),
        ({"shape": [2**40], "size": 2**42}, "is cut short"),
        ({"shape": [0, 2**62], "size": 0}, r"has the shape \(0, "),
        ({"shape": [-2, -3]}, r"has the shape \(-2, -3\)"),
        ({"shape": [1] * 30}, "has the shape"),
        ({"shard": 1}, "bytes for the shape"),
        ({"shard": -1}, "bytes for the shape"),
        ({"offset": -1}, "bytes for the shape"),
        ({"offset": 2**62}, "is cut short"),
        ({"size": -24}, "has -24 bytes"),
        ({"checksum": 1}, "has a wrong checksum"),
        ({"parts": [(slice(None),)]}, "a part with another number of axes"),
        ({"parts": [(slice(0, 3), slice(None))]}, "not inside the whole"),
        ({"parts": [(slice(-1, 2), slice(None))]}, "not inside the whole"),
        ({"parts": [(slice(0, 2), slice(None))]}, "is not there, or not all of it"),
        ({"parts": [(slice(None), slice(None))]}, "parts of other shapes"),  # the part's entry: see below
        ({"parts": [(slice(None), slice(None))] * 2}, "do not make up the whole"),
        ({"shape": [2**30, 2**30], "parts": [(slice(None), slice(None))]}, "parts of other shapes"),
    ],
)
def test_an_entry_that_is_wrong_although_its_checksum_is_right(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    part = tf_writer.part_key("lm/a", (slice(None), slice(None)))
    pairs = {b"": tf_writer.header(), b"lm/a": entry_of(**changed), part: entry_of(shape=[3, 2])}
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(24))
    tf_writer.write_index(tmp_path / "x.index", pairs)
    assert_refused(tmp_path / "x", message)


def test_parts_that_claim_more_than_the_files_are_not_allocated(tmp_path: Path) -> None:
    whole = (slice(None), slice(None))
    pairs = {
        b"": tf_writer.header(),
        b"lm/a": entry_of(shape=[2**20, 2**20], parts=[whole]),
        tf_writer.part_key("lm/a", whole): entry_of(shape=[2**20, 2**20]),
    }
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(24))
    tf_writer.write_index(tmp_path / "x.index", pairs)
    assert_refused(tmp_path / "x", "has more values than the files")


@pytest.mark.parametrize(
    "head", [b"", tf_writer.header(0), tf_writer.header(10**6), tf_writer.field(1, 1) + tf_writer.field(2, 5)]
)
def test_a_header_that_is_missing_or_wrong(head: bytes, tmp_path: Path) -> None:
    tf_writer.write_index(tmp_path / "x.index", {b"": head, b"lm/a": entry_of()})
    assert_refused(tmp_path / "x", "does not say in how many files the values are")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80" * 11 + bytes(4), "a number that does not end"),
        (b"\x00\x05\x00ab" + bytes(4), "an entry that does not fit its block"),
        (b"\x01\x01\x00a" + bytes(4), "an entry that does not fit its block"),
        (b"\x00\x00\xff\xff\xff\xff\x0f" + bytes(4), "an entry that does not fit its block"),
        (b"", "a block that is cut short"),
        (b"\xff\xff\xff\xff", "a block that does not end where it says"),
        (b"\x00" + tf_writer.varint(5000) + b"\x00" + b"k" * 5000 + bytes(4), "an entry that does not fit its block"),
    ],
)
def test_a_block_that_is_wrong_although_its_checksum_is_right(content: bytes, message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        list(entries(tf_writer.table([content], [b"z"])))


def test_a_table_that_would_never_end_or_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf_table, "MAX_ENTRIES", 1000)
    content = tf_writer.block([(b"%06d" % k, b"") for k in range(300)])
    many = tf_writer.table([content] * 4, [b"a", b"b", b"c", b"d"])
    with pytest.raises(MalformedError, match="more than 1,000 entries"):
        list(entries(many))
    with pytest.raises(MalformedError, match="cannot be uncompressed"):
        list(entries(compressed(tf_writer.varint(1 << 20) + b"\x00a" + b"\xfe\x01\x00" * 9)))
    with pytest.raises(MalformedError, match="a block of 4,294,967,295 bytes"):
        list(entries(compressed(tf_writer.varint(2**32 - 1) + b"\x00a")))
    with pytest.raises(MalformedError, match="unknown compression 9"):
        list(entries(compressed(b"a", kind=9)))


def compressed(content: bytes, kind: int = 1) -> bytes:
    """A table whose first block has this content, already compressed."""
    stored = content + bytes([kind])
    first = stored + struct.pack("<I", tf_writer.masked(stored))
    index = tf_writer.block([(b"z", tf_writer.varint(0) + tf_writer.varint(len(content)))]) + b"\x00"
    second = index + struct.pack("<I", tf_writer.masked(index))
    handle = tf_writer.varint(len(first)) + tf_writer.varint(len(index) - 1)
    return first + second + (b"\x00\x00" + handle).ljust(40, b"\x00") + struct.pack("<Q", 0xDB4775248B80FB57)


def test_blocks_that_are_named_twice_are_not_read_twice() -> None:
    content = tf_writer.block([(b"k", bytes(200))]) + b"\x00"
    file = content + struct.pack("<I", tf_writer.masked(content))
    handle = tf_writer.varint(0) + tf_writer.varint(len(content) - 1)
    index = tf_writer.block([(b"%04d" % k, handle) for k in range(1000)]) + b"\x00"
    where = tf_writer.varint(len(file)) + tf_writer.varint(len(index) - 1)
    file += index + struct.pack("<I", tf_writer.masked(index))
    with pytest.raises(MalformedError, match="blocks that overlap"):
        list(entries(file + (b"\x00\x00" + where).ljust(40, b"\x00") + struct.pack("<Q", 0xDB4775248B80FB57)))


# Damage of every kind

def outcome(prefix: Path) -> dict[str, NDArray[np.float32]] | str:
    """Every array, or the error of one line."""
    try:
        bundle = Bundle(prefix)
        return {name: bundle.array(name) for name in bundle.names}
    except WeightsError as error:
        assert "\n" not in str(error)
        return str(error)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    shutil.copytree(reference("tensorflow/sharded"), folder, dirs_exist_ok=True)
    return folder / "model.ckpt-7"


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> dict[str, NDArray[np.float32]]:
    arrays = outcome(checkpoint)
    assert not isinstance(arrays, str)
    return arrays


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_files_give_the_same_arrays_or_one_line(
    data: st.DataObject, checkpoint: Path, expected: dict[str, NDArray[np.float32]]
) -> None:
    files = sorted(checkpoint.parent.glob("model.ckpt-7.*"))
    path = data.draw(st.sampled_from(files))
    before = path.read_bytes()
    kind = data.draw(st.sampled_from(["cut", "flip", "insert", "overwrite"]))
    at = data.draw(st.integers(0, len(before) - 1))
    extra = data.draw(st.binary(min_size=1, max_size=9))
    changed = {
        "cut": before[:at],
        "flip": before[:at] + bytes([before[at] ^ 1 << extra[0] % 8]) + before[at + 1 :],
        "insert": before[:at] + extra + before[at:],
        "overwrite": before[:at] + extra + before[at + len(extra) :],
    }[kind]
    path.write_bytes(changed)
    try:
        found = outcome(checkpoint)
    finally:
        path.write_bytes(before)
    if not isinstance(found, str):
        assert found.keys() == expected.keys()
        assert all(same(array, expected[name]) for name, array in found.items())


def test_memory_does_not_grow_with_what_a_damaged_file_claims(tmp_path: Path) -> None:
    huge = entry_of(shape=[2**31], size=2**33)
    tf_writer.write_index(tmp_path / "x.index", {b"": tf_writer.header(), b"lm/a": huge})
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(24))
    tracemalloc.start()
    try:
        assert_refused(tmp_path / "x", "is cut short")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60), st.booleans())
def test_any_bytes_behind_a_right_checksum(first: bytes, second: bytes, snappy: bool) -> None:
    for content in (first, first + bytes(4), first + struct.pack("<II", 0, 1)):
        for blocks in ([content], [content, tf_writer.block([(b"k", second)])]):
            try:
                list(entries(tf_writer.table(blocks, [b"x", b"y"][: len(blocks)], snappy)))
            except MalformedError as error:
                assert "\n" not in str(error)
    try:
        list(entries(compressed(first)))
    except MalformedError as error:
        assert "\n" not in str(error)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.binary(max_size=60), head=st.none() | st.binary(max_size=20))
def test_any_bytes_as_an_entry(value: bytes, head: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(1000))
    tf_writer.write_index(tmp_path / "x.index", {b"": tf_writer.header() if head is None else head, b"lm/a": value})
    found = outcome(tmp_path / "x")
    if not isinstance(found, str):
        assert found["lm/a"].nbytes <= 2000
        assert re.fullmatch(r"lm/a", *found)
