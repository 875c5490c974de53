"""HDF5 files of strangers: what refers to other files, or claims more than it has, is refused before it is read."""

import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmo.errors import WeightsError
from elmo.weights import hdf5
from elmo.weights.hdf5 import HDF5File
from models import write_datasets

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def written(path: Path, write: Callable[[h5py.File], object]) -> Path:
    with h5py.File(path, "w") as file:
        write(file)
    return path


def read(path: Path, *shape: int) -> np.ndarray:
    with HDF5File(path) as file:
        return file.array("a/b", *shape)


@pytest.mark.parametrize(
    "settings", [{}, {"compression": "gzip"}, {"chunks": (1, 2)}, {"dtype": "f2"}, {"dtype": "i4"}]
)
def test_values_however_they_are_stored(settings: dict[str, object], tmp_path: Path) -> None:
    path = written(tmp_path / "x.hdf5", lambda file: file.create_dataset("a/b", data=VALUES, **settings))
    assert read(path, 2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read(path, 2, 3).dtype == np.float32


@pytest.mark.parametrize("name", ["a", "a/b"])
@pytest.mark.parametrize("link", [h5py.SoftLink("/a/b"), h5py.SoftLink("/c"), h5py.ExternalLink("other.hdf5", "/b")])
def test_a_link(link: object, name: str, tmp_path: Path) -> None:
    write_datasets(tmp_path / "other.hdf5", {"b": VALUES})
    path = written(tmp_path / "x.hdf5", lambda file: file.update({name: link}))
    with pytest.raises(WeightsError, match="'a/b' is a link, which could lead to another file; refused"):
        read(path, 2, 3)


def test_values_in_another_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(VALUES.tobytes())
    external = written(
        tmp_path / "x.hdf5", lambda file: file.create_dataset("a/b", (2, 3), "f4", external=[(str(secret), 0, 24)])
    )
    layout = h5py.VirtualLayout((2, 3), "f4")
    layout[:] = h5py.VirtualSource(write_datasets(tmp_path / "other.hdf5", {"b": VALUES}), "b", (2, 3))
    virtual = written(tmp_path / "y.hdf5", lambda file: file.create_virtual_dataset("a/b", layout))
    for path in (external, virtual):
        with h5py.File(path) as file:
            assert file["a/b"][...].tolist() == VALUES.tolist()  # HDF5 reads the other file
        with pytest.raises(WeightsError, match="'a/b' has its values in another file; refused"):
            read(path, 2, 3)


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((1 << 12, 1 << 13), {}),  # never written: the file has no values
        ((1 << 20, 1 << 20), {"chunks": (1, 1)}),
        ((1000, 1000), {"chunks": (1, 1)}),  # small, but a million pieces to look for
        ((4097, 4096), {"compression": "gzip", "fillvalue": 1, "chunks": (4097, 4096)}),
    ],
)
def test_a_claim_of_more_values_than_the_file_has(
    shape: tuple[int, ...], settings: dict[str, object], tmp_path: Path
) -> None:
    def write(file: h5py.File) -> None:
        dataset = file.create_dataset("a/b", shape, "f4", **settings)
        if "fillvalue" in settings:
            dataset[0, 0] = 1  # 64 MiB of ones, compressed to 64 KiB

    path = written(tmp_path / "x.hdf5", write)
    message = f"'a/b' has shape {shape}, which is too much for a file of {path.stat().st_size:,} bytes; it is damaged"
    with pytest.raises(WeightsError, match=re.escape(message)):
        read(path, *shape)


def test_claims_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "UNSUSPICIOUS", 0)
    monkeypatch.setattr(hdf5, "MAX_RATIO", 1)
    path = write_datasets(tmp_path / "x.hdf5", {"a": np.ones(1000, np.float32)})
    with HDF5File(path) as file:
        assert file.array("a", 1000).sum() == 1000
        with pytest.raises(WeightsError, match="too much for a file of"):  # one array of the file, under many names
            file.array("a", 1000)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", "has shape ()"),
        (h5py.Empty("f4"), "has shape None"),
        (np.zeros((2, 3), "S3"), "cannot be read; the file is damaged"),
        (np.zeros((2, 3), "c8"), "cannot be read; the file is damaged"),
        (np.full((2, 3), np.inf), "contains NaN or infinity"),
    ],
)
def test_values_that_are_no_weights(value: object, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.hdf5", lambda file: file.create_dataset("a/b", data=value))
    with pytest.raises(WeightsError, match=re.escape(f"'a/b' {message}")):
        read(path, 2, 3)


def test_a_group_where_an_array_should_be(tmp_path: Path) -> None:
    path = written(tmp_path / "x.hdf5", lambda file: file.create_group("a/b/c"))
    with pytest.raises(WeightsError, match=r"no dataset 'a/b'; options\.json asks for it"):
        read(path, 2, 3)
