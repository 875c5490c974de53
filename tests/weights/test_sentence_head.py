"""Sentence heads in folders: read by path and by name, and one line for each thing that can be wrong."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from distributions import install, new_site
from elmo.errors import WeightsError
from elmo.tasks import folder as task_folder
from elmo.weights import sentence_head
from elmo.weights.installed import TASKS
from elmo.weights.sentence_head import TrainedHead
from embedders import DIM, N_LAYERS, embedder, write_model
from tasks.small_sentences import train_head

MODEL = embedder()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    return train_head(write_model(folder / "elmo"), folder)


def read(folder: Path) -> TrainedHead:
    return sentence_head.read(folder, N_LAYERS, DIM, MODEL.fingerprint())


@pytest.fixture
def head(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "head"))


def test_the_head_is_that_of_the_task(trained: Path) -> None:
    found, task = read(trained), task_folder.load(trained, "cpu").model
    torch.manual_seed(0)
    layers = torch.randn(N_LAYERS, 5, DIM)
    mixed = task.inputs.mix_input(sentence_head.Layers(layers[:, None], torch.ones(1, 5, dtype=torch.bool)))  # type: ignore[misc]
    with torch.no_grad():
        expected = task.head(mixed, torch.ones(1, 5, dtype=torch.bool))[0]  # type: ignore[operator]
    assert torch.equal(found.encode(layers), expected)
    assert (found.dim, found.bilm) == (6, str(trained / "elmo"))
    assert found.encode(layers).norm().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("mix", ["average", "layer:1"])
def test_a_mix_that_is_not_learned(mix: str, tmp_path: Path) -> None:
    found = read(train_head(write_model(tmp_path / "elmo"), tmp_path, f"inputs.elmo.mix={mix}"))
    weights = {"average": [1 / 3] * 3, "layer:1": [0.0, 1.0, 0.0]}
    assert found.mix.weights.tolist() == pytest.approx(weights[mix])


def test_the_fingerprint_is_that_of_the_content(head: Path, trained: Path) -> None:
    before = read(trained).fingerprint
    assert read(head).fingerprint == before
    change(head, weights={"head.score.bias": torch.tensor([0.25])})
    assert read(head).fingerprint != before


def change(head: Path, weights: dict[str, torch.Tensor | None] | None = None, **record: Any) -> None:
    path = head / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **record}))
    state = {**load_file(head / "model.safetensors"), **(weights or {})}
    save_file({name: tensor for name, tensor in state.items() if tensor is not None}, head / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "ner"}, "is a model of 'ner'; expected a trained task 'sentences'"),
        ({"model_type": "elmo", "task": None}, "is a model of None; expected a trained task 'sentences'"),
        ({"config": {}}, "config.json: lacks 'hidden'; expected what `elmo train sentences` writes there"),
        ({"elmo": None}, "config.json: lacks "),
        ({"elmo": {"name": "x"}}, "config.json: lacks 'fingerprint'; expected what"),
        ({"elmo": {"name": "x", "fingerprint": "y"}}, "this sentence head reads the layers of x; the model is another"),
        ({"settings": {"dim": 10**20}}, "config.json: hidden is 4, dim is 100000000000000000000; expected positive"),
        ({"settings": {"dim": True}}, "config.json: hidden is 4, dim is True; expected positive integers"),
        ({"settings": {"dim": 10**9}}, "'head.projection.weight' has shape (6, 4); config.json needs (1000000000,"),
        ({"settings": {"inputs": {"elmo": {"mix": "x", "layer_norm": None}}}}, "config.json: mix is 'x'; expected"),
        ({"weights": {"head.projection.weight": None}}, "no tensor 'head.projection.weight'; config.json asks for it"),
        ({"weights": {"head.score.bias": torch.zeros(2)}}, "'head.score.bias' has shape (2,); config.json needs (1,)"),
        ({"weights": {"head.score.bias": torch.tensor([torch.nan])}}, "'head.score.bias' "),
    ],
)
def test_what_is_no_head_is_refused(changes: dict[str, Any], message: str, head: Path) -> None:
    if "settings" in changes:
        config = json.loads((head / "config.json").read_text())["config"]
        changes = {"config": {**config, **changes["settings"]}}
    change(head, **changes)
    with pytest.raises(WeightsError, match=f"^{re.escape(str(head))}.*{re.escape(message)}") as error:
        read(head)
    assert "\n" not in str(error.value)


def test_damaged_and_missing_weights(head: Path) -> None:
    (head / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(WeightsError, match=r"model\.safetensors: damaged, or not safetensors \("):
        read(head)
    (head / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"model\.safetensors: no such file; "):
        read(head)
    (head / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json"):
        read(head)


def test_reading_draws_no_random_numbers(trained: Path) -> None:
    before = torch.get_rng_state()
    read(trained)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_installed_head_is_found_by_its_name(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site(tmp_path, monkeypatch)
    found = install(site, "elmo-torch-my-sentence", TASKS, "my-sentence", "elmo_my_sentence", trained)
    install(site, "elmo-broken", TASKS, "broken", "elmo_broken")
    Path("my-sentence").mkdir()
    assert sentence_head.find("my-sentence") == found
    assert sentence_head.find("./my-sentence") == Path("my-sentence").absolute()
    assert sentence_head.find("./absent") is None
    assert sentence_head.names() == ["my-sentence"]
    (found / "config.json").write_text('{"task": "ner"}')
    assert sentence_head.names() == []
