"""Poolings by name: which layers they read, whose words they know, and sentence heads against NumPy."""

import json
import re
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

import elmo
from elmo.embed.embed_file import embed_file
from elmo.embed.embedder import Embedder
from elmo.embed.pooling import POOLINGS, pooling, sif
from elmo.embed.sentence_vectors import SentencePooling, sentence_pooling
from elmo.errors import ConfigError, WeightsError
from elmo.model.layers import Layers
from elmo.weights import sentence_head
from embedders import (
    DIM,
    LINES,
    N_LAYERS,
    assert_close,
    assert_refused,
    assert_same_bits,
    embedder,
    fresh,
    read_arrays,
    write_model,
)
from embedders import elmo as command
from tasks.small_sentences import train_head
from weights.test_sif import STATISTICS

MODEL = embedder()
X = np.random.default_rng(0).standard_normal((4, DIM)).astype(np.float32)
TOKENS = ["The", "naïve", "cat", "!"]
UNKNOWN = "pooling is 'sum'; expected one of mean, max, first-last, sif; or a sentence head: the folder of one, or the "


def chosen(name: str, layers: Any = None, statistics: Any = None, default: str = "average") -> SentencePooling:
    return sentence_pooling(name, layers, MODEL.config, statistics, MODEL.fingerprint, default)


@pytest.mark.parametrize("name", POOLINGS)
def test_the_layers_of_a_plain_pooling_are_those_that_are_asked_for(name: str) -> None:
    found = chosen(name, "top")
    assert (found.layers, found.dim, found.name, found.identity) == ("top", DIM, name, name)
    assert np.array_equal(found.pool(X, TOKENS), pooling(name)(X))
    assert chosen(name, None, STATISTICS, "all").layers == "all"


def test_the_layers_of_sif_are_those_of_its_statistics() -> None:
    found = chosen("sif", None, STATISTICS)
    assert found.layers == STATISTICS.layers and len(STATISTICS.layers) == N_LAYERS
    assert np.array_equal(found.pool(X, TOKENS), sif(X, TOKENS, STATISTICS))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(UNKNOWN)}name of an installed one"):
        chosen("sum")


# Sentence heads


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def head(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_head(model, tmp_path_factory.mktemp("head"), "inputs.elmo.mix=learned")


def in_numpy(head: Path, layers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The vector of a sentence by its layers, (L+1, T, 2D): layer norm, mix, hidden layer, attention, projection."""
    w = {name: tensor.astype(np.float64) for name, tensor in load_file(head / "model.safetensors").items()}
    normed = (layers - layers.mean(axis=2, keepdims=True)) / layers.std(axis=2, keepdims=True)
    scalars = np.exp(w["inputs.mix_input.scalars"])
    x = w["inputs.mix_input.gamma"] * np.tensordot(scalars / scalars.sum(), normed, axes=1)
    before = x @ w["head.hidden.weight"].T + w["head.hidden.bias"]
    hidden = before * np.vectorize(NormalDist().cdf)(before)  # GELU
    scores = hidden @ w["head.score.weight"][0]
    shares = np.exp(scores) / np.exp(scores).sum()
    vector = w["head.projection.weight"] @ (shares @ hidden) + w["head.projection.bias"]
    return vector / np.linalg.norm(vector)


def test_encode_with_a_head_is_what_numpy_computes(model: Path, head: Path) -> None:
    sentences = [["The", "cat", "sat", "."], [], ["x"], ["naïve", "日本語"]]
    loaded = elmo.load(model, device="cpu")
    vectors = loaded.encode(sentences, pooling=str(head))
    assert vectors.shape == (4, 6) and vectors.dtype == np.float32
    assert not vectors[1].any()  # a sentence without tokens
    for row in (0, 2, 3):
        assert_close(vectors[row], in_numpy(head, fresh(sentences[row])))
    assert loaded.encode([], pooling=str(head)).shape == (0, 6)
    assert_close(loaded.encode(sentences, pooling=str(head), batch_tokens=1), vectors, 1e-6)


@pytest.mark.parametrize(("mix", "layers"), [("layer:0", 0), ("layer:1", 1), ("last", 2), ("average", "all")])
def test_a_head_asks_for_the_layers_that_it_reads(mix: str, layers: int | str, model: Path, tmp_path: Path) -> None:
    head, loaded = train_head(model, tmp_path, f"inputs.elmo.mix={mix}"), elmo.load(model, device="cpu")
    found = loaded.pooling(str(head))
    assert found.layers == layers
    trained = sentence_head.read(head, N_LAYERS, DIM, loaded.fingerprint())
    every = torch.from_numpy(next(loaded.embed([TOKENS])))
    with torch.no_grad():
        mixed = trained.mix(Layers(every[:, None], torch.ones(1, len(TOKENS), dtype=torch.bool)))
        expected = trained.head(mixed, torch.ones(1, len(TOKENS), dtype=torch.bool))
    assert_close(loaded.encode([TOKENS, []], pooling=str(head)), np.stack([expected[0].numpy(), np.zeros(6)]), 1e-6)


def test_a_head_also_reads_a_model_with_its_softmax_and_computes_the_same_anywhere(head: Path) -> None:
    """Its softmax: that of the English model. Anywhere: under autocast, and where another device is the default."""
    plain, whole = elmo.load(device="cpu"), elmo.load(device="cpu", softmax=True)
    assert plain.fingerprint() == whole.fingerprint()
    with torch.autocast("cpu"), torch.device("meta"):
        found = MODEL.encode([TOKENS], pooling=str(head))
    assert_same_bits([found], [MODEL.encode([TOKENS], pooling=str(head))])


def test_the_model_is_not_read_again_for_every_call(model: Path, head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, calls = elmo.load(model, device="cpu"), []
    whole = Embedder.fingerprint
    monkeypatch.setattr(Embedder, "fingerprint", lambda self: calls.append(1) or whole(self))
    for _ in range(3):
        loaded.encode(["The cat"], pooling=str(head))
    assert len(calls) == 1
    loaded.bilm.lstms.get_parameter(next(name for name, _ in loaded.bilm.lstms.named_parameters())).add_(1)
    with pytest.raises(WeightsError, match="this sentence head reads the layers of"):
        loaded.encode(["The cat"], pooling=str(head))
    assert len(calls) == 2


def test_another_model_and_other_layers_are_refused(model: Path, head: Path) -> None:
    message = f"{head}: this sentence head reads the layers of {head / 'elmo'}; the model is another one, or was loaded"
    for other in (elmo.load(device="cpu"), elmo.load(model, device="cpu", precision="bfloat16")):
        with pytest.raises(WeightsError, match=f"^{re.escape(message)}"):
            other.encode(["The cat"], pooling=str(head))
    with pytest.raises(ConfigError, match=r"^layers is 'top', but pooling '.*' has its own: leave layers out$"):
        elmo.load(model, device="cpu").encode(["The cat"], pooling=str(head), layers="top")
    with pytest.raises(WeightsError, match=r"is a model of 'elmo'; expected a trained task 'sentences'$"):
        elmo.load(model, device="cpu").encode(["The cat"], pooling=str(model))


def test_elmo_embed_pools_with_a_head(model: Path, head: Path, tmp_path: Path) -> None:
    text, output = tmp_path / "in.txt", tmp_path / "out.npz"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    ended = command("embed", text, output, "--model", model, "--pool", head, "--device", "cpu")
    assert ended.code == 0, ended.err
    expected = elmo.load(model, device="cpu").encode(LINES, pooling=str(head))
    assert_close(np.stack(read_arrays(output)[0]), expected, 1e-6)
    ended = command("embed", text, tmp_path / "other.npz", "--model", model, "--pool", "sum")
    assert_refused(ended, UNKNOWN)
    assert not (tmp_path / "other.npz").exists()


def test_a_run_is_not_resumed_with_another_head(model: Path, head: Path, tmp_path: Path) -> None:
    text, output = tmp_path / "in.txt", tmp_path / "out.npz"
    text.write_bytes(b"One .\n" * 3 + b"\xff\n")
    with pytest.raises(elmo.errors.DataError, match="use --resume to continue"):
        embed_file(text, output, model, pool=str(head), device="cpu", batch_tokens=1)
    text.write_bytes(b"One .\n" * 3)
    other = train_head(model, tmp_path, "inputs.elmo.mix=learned", "train.seed=1")
    with pytest.raises(ConfigError, match=r"pool is '\w{16}', but the run to resume has '\w{16}'$"):
        embed_file(text, output, model, pool=str(other), device="cpu", batch_tokens=1, resume=True)
    moved = tmp_path / "moved"
    head.rename(moved)  # the content counts, not the place
    try:
        resumed = embed_file(text, output, model, pool=str(moved), device="cpu", batch_tokens=1, resume=True)
        assert resumed.sentences == 3
    finally:
        moved.rename(head)


def test_the_config_of_a_head_names_its_model(head: Path, model: Path) -> None:
    facts = json.loads((head / "config.json").read_text())["elmo"]
    assert facts["fingerprint"] == elmo.load(model, device="cpu").fingerprint()
