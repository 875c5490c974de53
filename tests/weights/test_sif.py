"""The statistics of `pooling="sif"`: the files give them back; what is refused."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from elmo.errors import WeightsError
from elmo.weights import folder, sif
from elmo.weights.sif import Sif
from embedders import DIM, N_LAYERS, pretrained

STATISTICS = Sif(
    a=0.01,
    layers=(0.25, 0.0, 0.75),
    counts={"the": 90, "naïve": 7, '"': 3},
    total=200,
    mean=np.arange(DIM, dtype=np.float32),
    components=np.eye(DIM, dtype=np.float32)[:2],
)


def test_a_weight_is_a_by_a_plus_the_share_of_the_word() -> None:
    assert STATISTICS.weight("The") == pytest.approx(0.01 / (0.01 + 0.45))
    assert STATISTICS.weight("NAÏVE") == pytest.approx(0.01 / (0.01 + 0.035))
    assert STATISTICS.weight("unheard") == 1


def test_a_folder_gives_them_back(tmp_path: Path) -> None:
    folder.write(dataclasses.replace(pretrained(), sif=STATISTICS), tmp_path / "model")
    read = folder.read(tmp_path / "model").sif
    assert read is not None
    assert (read.a, read.layers, read.counts, read.total) == (0.01, (0.25, 0.0, 0.75), STATISTICS.counts, 200)
    assert np.array_equal(read.mean, STATISTICS.mean) and np.array_equal(read.components, STATISTICS.components)
    assert (tmp_path / "model" / sif.WORDS).read_text("utf-8").splitlines()[:2] == ["<total>\t200", "the\t90"]


def test_a_folder_without_them_has_none(tmp_path: Path) -> None:
    assert sif.read(tmp_path, N_LAYERS, DIM) is None


def damaged(tmp_path: Path, what: str) -> Path:
    sif.write(tmp_path, STATISTICS)
    arrays = load_file(tmp_path / sif.STATISTICS)
    if what == "no file":
        (tmp_path / sif.STATISTICS).write_bytes(b"nothing")
    elif what == "tensor":
        save_file({name: array for name, array in arrays.items() if name != "mean"}, tmp_path / sif.STATISTICS)
    elif what == "shape":
        save_file({**arrays, "mean": np.zeros(DIM + 1, np.float32)}, tmp_path / sif.STATISTICS)
    elif what == "total":
        (tmp_path / sif.WORDS).write_text("the\t90\n")
    elif what == "words":
        (tmp_path / sif.WORDS).write_text("<total>\t200\nthe 90\n")
    return tmp_path


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no file", "sif.safetensors: cannot be read ("),
        ("tensor", "sif.safetensors: has no tensor 'mean'; make the statistics again with elmo sif"),
        ("shape", "sif.safetensors: is of another model, of 3 layers of 11; this one has 3 of 10. Make the statistics"),
        ("total", "sif_words.txt: does not begin with <total> and a number; make it again with elmo sif"),
        ("words", "sif_words.txt:2: 'the 90'; expected a word, a tab and its count"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, what: str, message: str) -> None:
    with pytest.raises(WeightsError, match=re.escape(message)):
        sif.read(damaged(tmp_path, what), N_LAYERS, DIM)
