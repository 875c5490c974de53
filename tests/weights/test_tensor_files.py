"""Safetensors files in the layout of Hugging Face: shards, their index, matrices in int8, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from elmo.errors import WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig
from elmo.weights import folder
from elmo.weights.folder import Pretrained
from elmo.weights.tensor_files import read_tensors, write_tensors
from models import ids_of

TENSORS = {name: torch.arange(10.0) + k for k, name in enumerate("abcd")}  # 40 bytes each
SHAPES = dict.fromkeys(TENSORS, (10,))


def shards(path: Path) -> dict[str, list[str]]:
    return {file.name: sorted(load_file(file)) for file in sorted(path.parent.glob("*.safetensors"))}


def test_shards_hold_what_fits_and_the_index_says_where(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, TENSORS, max_bytes=100)
    assert shards(path) == {
        "model-00001-of-00002.safetensors": ["a", "b"],
        "model-00002-of-00002.safetensors": ["c", "d"],
    }
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 160}
    assert index["weight_map"]["c"] == "model-00002-of-00002.safetensors"
    found = read_tensors(path, SHAPES, "config.json")
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def test_one_file_where_all_fits(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, TENSORS, max_bytes=160)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_tensor_that_no_shard_can_hold(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"'a' has 40 bytes; expected at most 39"):
        write_tensors(tmp_path / "model.safetensors", TENSORS, max_bytes=39)


def test_hugging_face_reads_the_shards(tmp_path: Path) -> None:
    """Its own reader of sharded files finds every tensor."""
    hub = pytest.importorskip("huggingface_hub")
    write_tensors(tmp_path / "model.safetensors", TENSORS, max_bytes=100)
    model = torch.nn.Module()
    for name in TENSORS:
        model.register_buffer(name, torch.zeros(10))
    hub.load_torch_model(model, tmp_path)
    assert all(torch.equal(getattr(model, name), TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "has no 'weight_map'; expected the file of each tensor"),
        ({"weight_map": {"a": "x.safetensors"}}, "no tensor 'b'; config.json asks for it. Are they from one model?"),
        (
            {"weight_map": dict.fromkeys("abcd", "../x.safetensors")},
            "'a' is in '../x.safetensors'; expected the name of a file beside the index",
        ),
    ],
)
def test_an_index_that_cannot_be_used(tmp_path: Path, index: dict[str, Any], message: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    with pytest.raises(WeightsError) as error:
        read_tensors(tmp_path / "model.safetensors", SHAPES, "config.json")
    assert str(error.value) == f"{path}: {message}"


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", TENSORS, max_bytes=100)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"model-00002-of-00002\.safetensors: no such file"):
        read_tensors(tmp_path / "model.safetensors", SHAPES, "config.json")


# A model in int8


def a_model(n_words: int | None = None) -> BiLM:
    torch.manual_seed(0)
    cnn = None if n_words else CharCNNConfig(filters=((1, 3), (2, 40)))
    return BiLM(BiLMConfig(LSTMConfig(90, 40), cnn, n_words=n_words, n_softmax=n_words or 11)).eval()


@pytest.mark.parametrize("n_words", [None, 11])
def test_a_model_in_int8_is_nearly_the_same(tmp_path: Path, n_words: int | None) -> None:
    bilm = a_model(n_words)
    folder.write(Pretrained(bilm), tmp_path / "int8", torch.int8)
    folder.write(Pretrained(bilm), tmp_path / "float32")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("int8", "float32")]
    assert sizes[0] < 0.4 * sizes[1]
    again = folder.read(tmp_path / "int8", softmax=True).bilm
    for (name, ours), theirs in zip(again.state_dict().items(), bilm.state_dict().values(), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() <= 0.01 * theirs.norm(), name
    ids = torch.tensor([[1, 5, 9, 2]]) if n_words else ids_of(bilm, [["some", "words"]])
    with torch.no_grad():
        ours, theirs = (model(ids)[0].activations.numpy() for model in (again, bilm))
    cosine = (ours * theirs).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(theirs, axis=-1)
    assert cosine.min() > 0.999


def test_vectors_and_the_table_of_characters_stay_exact(tmp_path: Path) -> None:
    bilm = a_model()
    stored = folder.stored(bilm, torch.int8)
    exact = {name for name, tensor in stored.items() if tensor.dtype == torch.float32 and not name.endswith(".scale")}
    assert exact == {name for name in bilm.state_dict() if "bias" in name or "embedding" in name}
    assert all(torch.equal(stored[name], bilm.state_dict()[name]) for name in exact)


def test_scales_are_in_the_shard_of_their_matrix(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, folder.stored(a_model(), torch.int8), max_bytes=40_000)
    assert len(shards(path)) > 2
    for names in shards(path).values():
        assert all(name.removesuffix(".scale") in names for name in names)


@pytest.mark.parametrize("shape", [(1,), (1, 2, 360), (2, 40, 1, 1)])
def test_scales_that_do_not_belong_to_their_matrix(tmp_path: Path, shape: tuple[int, ...]) -> None:
    folder.write(Pretrained(a_model()), tmp_path / "model", torch.int8)
    path = tmp_path / "model" / "model.safetensors"
    save_file({**load_file(path), "lstms.0.weight_input.scale": torch.ones(shape)}, path)
    message = f"'lstms.0.weight_input' has shape (2, 40, 360) and scales of shape {shape}; expected one for each output"
    with pytest.raises(WeightsError, match=re.escape(message)):
        folder.read(tmp_path / "model")
