"""The unfinished run in `OUT.part/`, and the three files that it ends in, read back by the libraries they belong to."""

import errno
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as parquet
import pytest
from numpy.typing import NDArray

from elmo.embed import store as store_module
from elmo.embed.store import FORMATS, Store, format_of
from elmo.errors import ConfigError, DataError
from embedders import assert_same_bits, nothing_new_in, read_arrays

SETTINGS = {"model": "m", "layers": "all", "pool": None, "dtype": "float32"}
TOKENS = [["a", "b"], [], ["x/y", "naïve", "日本語"], ["a", "b"], ['"quoted"', "\\"], ["🙂"]]
KEYS = ["a b", "", "x/y naïve 日本語", "a b", '"quoted" \\', "🙂"]
RNG = np.random.default_rng(0)
ARRAYS = [RNG.standard_normal((3, len(tokens), 4)).astype(np.float32) for tokens in TOKENS]
VECTORS = [RNG.standard_normal(4).astype(np.float16) for _ in TOKENS]


class Killed(BaseException):
    """What ends a run without asking it."""


def fill(store: Store, arrays: list[NDArray[Any]] = ARRAYS, start: int = 0) -> None:
    for tokens, array in list(zip(TOKENS, arrays, strict=True))[start:]:
        store.add(tokens, array)


# The files


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("segment_bytes", [1, 100, 1 << 20])
def test_arrays_and_sentences_are_read_back(
    form: str, segment_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "SEGMENT_BYTES", segment_bytes)
    store = Store(tmp_path / f"out.{form}", SETTINGS)
    fill(store)
    store.finish(form)
    arrays, sentences = read_arrays(tmp_path / f"out.{form}")
    assert_same_bits(arrays, ARRAYS)
    first = {key: str(KEYS.index(key)) for key in KEYS}  # of duplicates, the first
    assert sentences == first
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"out.{form}"]


@pytest.mark.parametrize("form", FORMATS)
def test_pooled_vectors_are_read_back(form: str, tmp_path: Path) -> None:
    store = Store(tmp_path / f"out.{form}", {**SETTINGS, "pool": "mean", "dtype": "float16"})
    fill(store, VECTORS)
    store.finish(form, sentences=False)
    arrays, sentences = read_arrays(tmp_path / f"out.{form}")
    assert_same_bits(arrays, VECTORS)
    assert sentences is None


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_of_empty_sentences_is_read_back(form: str, tmp_path: Path) -> None:
    store = Store(tmp_path / f"out.{form}", SETTINGS)
    for _ in range(3):
        store.add([], np.zeros((3, 0, 4), np.float32))
    store.finish(form)
    arrays, sentences = read_arrays(tmp_path / f"out.{form}")
    assert [array.shape for array in arrays] == [(3, 0, 4)] * 3
    assert sentences == {"": "0"}


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_of_nothing_has_the_same_layout(form: str, tmp_path: Path) -> None:
    Store(tmp_path / f"out.{form}", SETTINGS).finish(form)
    assert read_arrays(tmp_path / f"out.{form}") == ([], {})


def test_hdf5_is_laid_out_as_allennlp_did(tmp_path: Path) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS)
    fill(store)
    store.finish("hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert sorted(file) == [*"012345", "sentence_to_index"]
        assert file["2"].shape == (3, 3, 4)
        assert h5py.check_string_dtype(file["sentence_to_index"].dtype).encoding == "utf-8"
        assert json.loads(file["sentence_to_index"][0])["x/y naïve 日本語"] == "2"


def test_parquet_has_a_row_per_sentence(tmp_path: Path) -> None:
    store = Store(tmp_path / "out.parquet", SETTINGS)
    fill(store)
    store.finish("parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["index", "tokens", "shape", "values"]
    assert [str(kind) for kind in table.schema.types] == [
        "int64",
        "list<element: string>",
        "list<element: int32>",
        "list<element: float>",
    ]
    assert table["tokens"].to_pylist() == TOKENS
    assert table["shape"].to_pylist() == [[3, len(tokens), 4] for tokens in TOKENS]
    assert table["values"].to_pylist() == [array.ravel().tolist() for array in ARRAYS]


def test_forgotten_sentences_leave_the_arrays_alone(tmp_path: Path) -> None:
    for form in FORMATS:
        store = Store(tmp_path / f"out.{form}", SETTINGS)
        fill(store)
        store.finish(form, sentences=False)
        arrays, sentences = read_arrays(tmp_path / f"out.{form}")
        assert_same_bits(arrays, ARRAYS)
        assert sentences is None


def test_npz_members_have_no_date(tmp_path: Path) -> None:
    store = Store(tmp_path / "out.npz", SETTINGS)
    fill(store)
    store.finish("npz")
    with zipfile.ZipFile(tmp_path / "out.npz") as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


# The format


@pytest.mark.parametrize(
    ("name", "asked", "form"),
    [
        ("x.hdf5", None, "hdf5"),
        ("x.h5", None, "hdf5"),
        ("x.parquet", None, "parquet"),
        ("x.npz", None, "npz"),
        ("x.bin", "npz", "npz"),
        ("x.npz", "hdf5", "hdf5"),
    ],
)
def test_the_ending_tells_the_format_unless_it_was_asked_for(name: str, asked: str | None, form: str) -> None:
    assert format_of(Path(name), asked) == form


@pytest.mark.parametrize(
    ("name", "asked", "found"), [("x.csv", None, "'.csv'"), ("x", None, "''"), ("x.hdf5", "csv", "'csv'")]
)
def test_an_unknown_format_is_refused(name: str, asked: str | None, found: str) -> None:
    with pytest.raises(ConfigError) as error:
        format_of(Path(name), asked)
    assert str(error.value) == f"{name}: format is {found}; expected one of hdf5, parquet, npz"


# The unfinished run


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("segment_bytes", [1, 100, 1 << 20])
def test_a_run_that_was_flushed_anywhere_ends_in_the_same_arrays(
    form: str, segment_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "SEGMENT_BYTES", segment_bytes)
    for after in range(len(TOKENS) + 1):
        stop_and_resume(tmp_path / f"{after}.{form}", after).finish(form)
        arrays, sentences = read_arrays(tmp_path / f"{after}.{form}")
        assert_same_bits(arrays, ARRAYS)
        assert sentences == {key: str(KEYS.index(key)) for key in KEYS}


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_that_was_flushed_midway_ends_in_the_same_bytes(form: str, tmp_path: Path) -> None:
    whole = Store(tmp_path / f"whole.{form}", SETTINGS)
    fill(whole)
    whole.finish(form)
    stop_and_resume(tmp_path / f"out.{form}", after=2).finish(form)
    assert (tmp_path / f"out.{form}").read_bytes() == (tmp_path / f"whole.{form}").read_bytes()


def stop_and_resume(output: Path, after: int) -> Store:
    stopped = Store(output, SETTINGS)
    for tokens, array in zip(TOKENS[:after], ARRAYS[:after], strict=True):
        stopped.add(tokens, array)
    stopped.flush()
    resumed = Store(output, SETTINGS, resume=True)
    assert list(resumed.tokens()) == TOKENS[:after]
    fill(resumed, start=after)
    return resumed


def test_what_was_not_flushed_is_not_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS)
    store.add(TOKENS[0], ARRAYS[0])
    store.flush()
    store.add(TOKENS[1], ARRAYS[1])
    assert Store(tmp_path / "out.hdf5", SETTINGS, resume=True).sentences == 1


def test_a_segment_killed_between_its_two_files_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS)
    store.add(TOKENS[0], ARRAYS[0])
    store.flush()
    fill(store, start=1)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Path, "write_text", raising(Killed()))
        store.flush()
    assert (tmp_path / "out.hdf5.part" / "1.npy").exists()
    resumed = Store(tmp_path / "out.hdf5", SETTINGS, resume=True)
    assert list(resumed.tokens()) == TOKENS[:1]
    fill(resumed, start=1)
    resumed.finish("hdf5")
    assert_same_bits(read_arrays(tmp_path / "out.hdf5")[0], ARRAYS)


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_killed_while_its_file_is_made_makes_it_again(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / f"out.{form}", SETTINGS)
    fill(store)
    store.flush()
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Path, "replace", raising(Killed()))
        store.finish(form)
    assert not store.output.exists()
    resumed = Store(tmp_path / f"out.{form}", SETTINGS, resume=True)
    assert list(resumed.tokens()) == TOKENS
    resumed.finish(form)
    assert_same_bits(read_arrays(tmp_path / f"out.{form}")[0], ARRAYS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"out.{form}"]


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_an_unfinished_run_is_not_overwritten(tmp_path: Path) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS)
    fill(store)
    store.flush()
    with pytest.raises(DataError) as error, nothing_new_in(tmp_path):
        Store(tmp_path / "out.hdf5", SETTINGS)
    part = tmp_path / "out.hdf5.part"
    assert str(error.value) == (
        f"{part}: contains an unfinished run. Use --resume to continue it, or remove it to start over"
    )


@pytest.mark.parametrize("resume", [False, True])
def test_an_output_that_exists_is_not_overwritten(resume: bool, tmp_path: Path) -> None:
    (tmp_path / "out.hdf5").write_text("mine")
    with pytest.raises(DataError) as error, nothing_new_in(tmp_path):
        Store(tmp_path / "out.hdf5", SETTINGS, resume)
    assert str(error.value) == f"{tmp_path / 'out.hdf5'}: exists already; give another name, or remove it first"
    assert (tmp_path / "out.hdf5").read_text() == "mine"


@pytest.mark.parametrize("change", [{"layers": "top"}, {"pool": "mean"}, {"new": 1}])
def test_other_settings_are_not_resumed(change: dict[str, Any], tmp_path: Path) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS)
    fill(store)
    store.flush()
    ((name, value),) = change.items()
    with pytest.raises(ConfigError) as error, nothing_new_in(tmp_path):
        Store(tmp_path / "out.hdf5", {**SETTINGS, **change}, resume=True)
    part, before = tmp_path / "out.hdf5.part", SETTINGS.get(name)
    assert str(error.value) == f"{part}: {name} is {value!r}, but the run to resume has {before!r}"


def test_resuming_nothing_is_starting(tmp_path: Path) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS, resume=True)
    assert store.sentences == 0
    fill(store)
    store.finish("hdf5")
    assert_same_bits(read_arrays(tmp_path / "out.hdf5")[0], ARRAYS)


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "b" / "out.npz", SETTINGS)
    fill(store)
    store.finish("npz")
    assert_same_bits(read_arrays(tmp_path / "a" / "b" / "out.npz")[0], ARRAYS)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match=r"cannot be written \((Not a directory|File exists)\)$"):
        Store(tmp_path / "file" / "out.npz", SETTINGS)


# A full disk


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_up_between_segments_loses_only_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS)
    store.add(TOKENS[0], ARRAYS[0])
    store.flush()
    fill(store, start=1)
    segment = tmp_path / "out.hdf5.part" / "1.npy"
    with monkeypatch.context() as patched, nothing_new_in(tmp_path), pytest.raises(DataError) as error:
        patched.setattr(os, "fsync", raising(FULL))
        store.flush()
    assert str(error.value).startswith(f"{segment}: the disk is full; nothing was written.")
    resumed = Store(tmp_path / "out.hdf5", SETTINGS, resume=True)
    assert list(resumed.tokens()) == TOKENS[:1]


@pytest.mark.parametrize(
    ("form", "module", "name", "error"),
    [
        ("hdf5", h5py.Group, "create_dataset", FULL),
        # HDF5 says it in the text of its own error.
        ("hdf5", h5py.Group, "create_dataset", OSError("Can't write data (errno = 28, 'No space left on device')")),
        ("npz", np.lib.format, "write_array", FULL),
        ("parquet", parquet.ParquetWriter, "write_table", FULL),
    ],
)
def test_a_disk_that_is_full_at_the_end_keeps_the_segments(
    form: str, module: Any, name: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / f"out.{form}", SETTINGS)
    fill(store)
    store.flush()
    with monkeypatch.context() as patched, nothing_new_in(tmp_path), pytest.raises(DataError) as refused:
        patched.setattr(module, name, raising(error))
        store.finish(form)
    assert str(refused.value).startswith(f"{tmp_path / f'out.{form}'}: the disk is full; nothing was written.")
    resumed = Store(tmp_path / f"out.{form}", SETTINGS, resume=True)
    assert list(resumed.tokens()) == TOKENS
    resumed.finish(form)
    assert_same_bits(read_arrays(tmp_path / f"out.{form}")[0], ARRAYS)


def test_another_error_of_the_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS)
    fill(store)
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(DataError, match=r"0\.npy: cannot be written \(Input/output error\)$"):
        store.flush()
    with pytest.raises(DataError, match=r"settings\.json: cannot be written \(Input/output error\)$"):
        Store(tmp_path / "other.hdf5", SETTINGS)  # before anything is computed


def test_a_removed_run_starts_anew(tmp_path: Path) -> None:
    store = Store(tmp_path / "out.hdf5", SETTINGS)
    fill(store)
    store.flush()
    shutil.rmtree(tmp_path / "out.hdf5.part")
    assert Store(tmp_path / "out.hdf5", SETTINGS).sentences == 0
