"""Safetensors files in the layout of Hugging Face: shards, their index, matrices in int8, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig
from elmo.weights import folder
from elmo.weights.folder import Pretrained
from elmo.weights.tensor_files import read_tensors, stored_dtypes, write_tensors
from models import ids_of

TENSORS = {name: torch.arange(1000.0) + k for k, name in enumerate("abcd")}  # 4,000 bytes each
SHAPES = dict.fromkeys(TENSORS, (1000,))


def shards(path: Path) -> dict[str, list[str]]:
    return {file.name: sorted(load_file(file)) for file in sorted(path.parent.glob("*.safetensors"))}


def test_shards_hold_what_fits_and_the_index_says_where(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, TENSORS, max_bytes=10_000)
    assert shards(path) == {
        "model-00001-of-00002.safetensors": ["a", "b"],
        "model-00002-of-00002.safetensors": ["c", "d"],
    }
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 16_000}
    assert index["weight_map"]["c"] == "model-00002-of-00002.safetensors"
    found = read_tensors(path, SHAPES, "config.json")
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def test_one_file_where_all_fits(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, TENSORS, max_bytes=18_000)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("max_bytes", [4_256, 8_100, 8_300, 12_500, 14_000, 16_100])
def test_no_file_is_larger_than_asked_for(tmp_path: Path, max_bytes: int) -> None:
    """With its header, whose size depends on the number of tensors."""
    write_tensors(tmp_path / "model.safetensors", TENSORS, max_bytes)
    assert max(file.stat().st_size for file in tmp_path.glob("*.safetensors")) <= max_bytes


def test_a_tensor_larger_than_a_shard_has_one_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"small": torch.ones(9), **TENSORS, "last": torch.ones(9)}, max_bytes=2000)
    assert list(shards(path).values()) == [["small"], ["a"], ["b"], ["c"], ["d"], ["last"]]


def test_hugging_face_reads_the_shards(tmp_path: Path) -> None:
    """Its own reader of sharded files finds every tensor."""
    hub = pytest.importorskip("huggingface_hub")
    write_tensors(tmp_path / "model.safetensors", TENSORS, max_bytes=10_000)
    model = torch.nn.Module()
    for name in TENSORS:
        model.register_buffer(name, torch.zeros(1000))
    hub.load_torch_model(model, tmp_path)
    assert all(torch.equal(getattr(model, name), TENSORS[name]) for name in TENSORS)


def test_the_types_that_are_stored(tmp_path: Path) -> None:
    """First the one with most bytes: 4,000 of float32 and 1,000 of int8; with 10,000 of it, int8."""
    path = tmp_path / "model.safetensors"
    save_file({"a": TENSORS["a"], "b": torch.ones(1000, dtype=torch.int8)}, path)
    assert stored_dtypes(path) == ["float32", "int8"]
    path.unlink()
    write_tensors(path, {"a": TENSORS["a"], "b": torch.ones(10_000, dtype=torch.int8)}, max_bytes=11_000)
    assert len(shards(path)) == 2
    assert stored_dtypes(path) == ["int8", "float32"]


# Files that do not belong together, each one line


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(WeightsError) as error:
        read_tensors(path, SHAPES, "config.json")
    assert str(error.value) == message


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "model.safetensors", TENSORS, max_bytes=10_000)
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "has no 'weight_map'; expected the file of each tensor"),
        ({"weight_map": {}}, "has no 'weight_map'; expected the file of each tensor"),
        ({"weight_map": ["a"]}, "has no 'weight_map'; expected the file of each tensor"),
        (
            {"weight_map": {name: f"model-0000{k}-of-00002.safetensors" for name, k in (("a", 1), ("c", 2))}},
            "no tensor 'b'; config.json asks for it. Are they from one model?",
        ),
        (
            {"weight_map": dict.fromkeys("abcd", "../x.safetensors")},
            "'a' is in '../x.safetensors'; expected the name of a file beside the index",
        ),
        ({"weight_map": {"a": 1}}, "'a' is in 1; expected the name of a file beside the index"),
    ],
)
def test_an_index_that_cannot_be_used(sharded: Path, index: dict[str, Any], message: str) -> None:
    path = sharded.with_name("model.safetensors.index.json")
    path.write_text(json.dumps(index))
    assert_refused(sharded, f"{path}: {message}")


def test_a_shard_that_is_missing(sharded: Path) -> None:
    gone = sharded.with_name("model-00002-of-00002.safetensors")
    gone.unlink()
    message = "no such file; model.safetensors.index.json names 2 shards, 1 of them missing. Get the files again"
    assert_refused(sharded, f"{gone}: {message}")
    with pytest.raises(WeightsError, match="names 2 shards"):  # also if nothing of it is needed
        read_tensors(sharded, {"a": (1000,)}, "config.json")


def test_a_shard_that_belongs_to_another_model(sharded: Path) -> None:
    other = sharded.with_name("model-00001-of-00009.safetensors")
    save_file({"x": torch.ones(1)}, other)
    message = "a shard that model.safetensors.index.json does not name. Are the files from one model?"
    assert_refused(sharded, f"{other}: {message}")


def test_an_index_that_is_missing(sharded: Path) -> None:
    index = sharded.with_name("model.safetensors.index.json")
    index.unlink()
    shard = "model-00001-of-00002.safetensors"
    assert_refused(sharded, f"{index}: no such file, but there are shards such as {shard}. Get it, too")


def test_one_file_beside_shards(sharded: Path) -> None:
    save_file(TENSORS, sharded)
    message = "is there beside model.safetensors.index.json; expected one file, or shards with an index"
    assert_refused(sharded, f"{sharded}: {message}")


@pytest.mark.parametrize("damage", ["cut", "overwritten", "empty"])
def test_a_shard_that_is_damaged(sharded: Path, damage: str) -> None:
    shard = sharded.with_name("model-00002-of-00002.safetensors")
    whole = shard.read_bytes()
    shard.write_bytes({"cut": whole[:-100], "overwritten": b"x" * len(whole), "empty": b""}[damage])
    with pytest.raises(WeightsError) as error:
        read_tensors(sharded, SHAPES, "config.json")
    assert str(error.value).startswith(f"{shard}: damaged, or not safetensors (")
    assert str(error.value).endswith("). Get the file again")
    assert "\n" not in str(error.value)


def test_a_tensor_that_is_in_another_shard_than_the_index_says(sharded: Path) -> None:
    first, second = (sharded.with_name(f"model-0000{k}-of-00002.safetensors") for k in (1, 2))
    save_file({"a": TENSORS["a"]}, first)
    save_file({name: TENSORS[name] for name in "bcd"}, second)
    assert_refused(sharded, f"{first}: no tensor 'b'; config.json asks for it. Are they from one model?")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_no_model_has(tmp_path: Path, value: float) -> None:
    path = tmp_path / "model.safetensors"
    save_file({**TENSORS, "c": TENSORS["c"].index_fill(0, torch.tensor([500]), value)}, path)
    assert_refused(path, f"{path}: 'c' contains NaN or infinity; the weights are damaged")


# A model in int8


def a_model(n_words: int | None = None) -> BiLM:
    torch.manual_seed(0)
    cnn = None if n_words else CharCNNConfig(filters=((1, 3), (2, 40)))
    return BiLM(BiLMConfig(LSTMConfig(90, 40), cnn, n_words=n_words, n_softmax=n_words or 11)).eval()


def by_hand(matrix: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """A matrix as int8 keeps it: one scale for each output, max |w| / 127; halves round to even."""
    scale = np.abs(matrix).max(axis=axis, keepdims=True) / np.float32(127)
    return np.rint(np.divide(matrix, scale, where=scale > 0, out=np.zeros_like(matrix))) * scale


@pytest.mark.parametrize("n_words", [None, 11])
def test_a_folder_in_int8_is_what_the_formula_gives(tmp_path: Path, n_words: int | None) -> None:
    """Each output of a matrix by itself: columns of matrices, rows of a word table and of the softmax."""
    bilm = a_model(n_words)
    folder.write(Pretrained(bilm), tmp_path / "int8", torch.int8)
    again = folder.read(tmp_path / "int8", softmax=True).bilm.state_dict()
    in_int8 = folder.rounded(bilm, torch.int8).state_dict()
    rounded = 0
    for name, tensor in bilm.state_dict().items():
        ours, exact = again[name].numpy(), tensor.numpy()
        assert torch.equal(again[name], in_int8[name]), name
        if exact.ndim == 1 or name.endswith("bias") or (name == "token_encoder.embedding" and not n_words):
            np.testing.assert_array_equal(ours, exact)
            continue
        axis = 1 if name in ("softmax.weight", "token_encoder.embedding") else exact.ndim - 2
        np.testing.assert_array_equal(ours, by_hand(exact, axis), err_msg=name)
        step = np.abs(exact).max(axis=axis, keepdims=True) / 127
        assert (np.abs(ours - exact) <= 0.5001 * step).all(), name
        rounded += 1
    assert rounded >= 6


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what is mapped into memory")
def test_no_file_in_int8_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for its few tensors in float32: loading needs the weights in float32 and one shard, no more."""
    monkeypatch.setattr(folder, "MAX_SHARD_BYTES", 40_000)
    folder.write(Pretrained(a_model()), tmp_path / "int8", torch.int8)
    assert len(shards(tmp_path / "int8" / "model.safetensors")) > 2
    bilm = folder.read(tmp_path / "int8", softmax=True).bilm
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    assert bilm.n_parameters() > 0  # still there


def test_int8_of_int8_is_the_same(tmp_path: Path) -> None:
    """To the last bit of a scale: 127 q / 127 may not be q in float32."""
    once = folder.rounded(a_model(), torch.int8)
    twice = folder.rounded(once, torch.int8).state_dict()
    for name, tensor in once.state_dict().items():
        torch.testing.assert_close(twice[name], tensor, rtol=3e-7, atol=0)


def test_weights_are_floats_or_int8() -> None:
    with pytest.raises(ConfigError, match=r"cannot be stored in torch\.int32; expected float16, float32 or int8$"):
        folder.stored(a_model(), torch.int32)


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


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_scales_that_are_no_floats(tmp_path: Path, dtype: torch.dtype) -> None:
    folder.write(Pretrained(a_model()), tmp_path / "model", torch.int8)
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    name = "lstms.0.weight_input"
    save_file({**tensors, f"{name}.scale": tensors[f"{name}.scale"].to(dtype)}, path)
    with pytest.raises(WeightsError) as error:
        folder.read(tmp_path / "model")
    kind = str(dtype).removeprefix("torch.")
    assert str(error.value) == f"{path}: {name!r} has scales of type {kind}; expected float32"


def test_a_header_that_would_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((17 << 20).to_bytes(8, "little") + b" " * 100)
    with pytest.raises(WeightsError, match=r"damaged, or not safetensors \(a header of 17,825,792 bytes; expected at"):
        read_tensors(path, SHAPES, "config.json")


def test_a_shard_of_a_name_that_no_file_can_have(sharded: Path) -> None:
    index = sharded.with_name("model.safetensors.index.json")
    for name in ("x" * 300, "é" * 200, ""):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(WeightsError, match=r"'a' is in .*; expected the name of a file beside the index"):
            read_tensors(sharded, SHAPES, "config.json")
