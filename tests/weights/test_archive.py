"""A zip of a model in shards. Other zips, and what is refused of them, are tested in test_source.py."""

import zipfile
from pathlib import Path

import pytest
import torch

from elmo.errors import WeightsError
from elmo.weights import archive, folder, source
from elmo.weights.folder import Pretrained
from elmo.weights.info import model_info
from embedders import pretrained


@pytest.fixture
def sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folder, "MAX_SHARD_BYTES", 4_000)
    folder.write(Pretrained(pretrained().bilm), tmp_path / "model", torch.int8)
    assert len(list((tmp_path / "model").glob("model-*-of-*.safetensors"))) > 2
    return tmp_path / "model"


def zipped(place: Path) -> Path:
    path = place.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for member in sorted(place.iterdir()):
            file.write(member, f"inside/{member.name}")
    return path


def test_shards_in_a_zip(sharded: Path) -> None:
    ours, theirs = (source.read(path).bilm.state_dict() for path in (zipped(sharded), sharded))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_facts_of_a_zip(sharded: Path) -> None:
    path = zipped(sharded)
    facts = model_info(path)
    assert facts.dtypes == model_info(sharded).dtypes
    assert set(facts.dtypes) == {"int8", "float32"}
    assert facts.files == {path: path.stat().st_size}


def test_a_missing_shard_is_that_of_the_zip(sharded: Path) -> None:
    gone = min(sharded.glob("model-*-of-*.safetensors"))
    gone.unlink()
    path = zipped(sharded)
    with pytest.raises(WeightsError) as error:
        source.read(path)
    assert str(error.value).startswith(f"{path / gone.name}: no such file; model.safetensors.index.json names ")


def test_many_small_files_that_compress_too_well(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is suspicious alone."""
    for k in range(200):
        (sharded / f"model-{k:05d}-of-00200.safetensors").write_bytes(bytes(20_000))
    monkeypatch.setattr(archive, "UNSUSPICIOUS", 30_000)
    path = zipped(sharded)
    with pytest.raises(WeightsError, match=r"zip: 2\d\d files have 4,0\d\d,\d\d\d bytes, compressed to [\d,]+; no "):
        source.read(path)


def test_files_that_are_too_large_together(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [file.stat().st_size for file in sharded.iterdir()]
    monkeypatch.setattr(archive, "MAX_WEIGHTS", sum(sizes) - 1)
    path = zipped(sharded)
    with pytest.raises(WeightsError, match=rf"zip: {len(sizes)} files have {sum(sizes):,} bytes; expected at most"):
        source.read(path)
