"""A trained task and its folder: what is saved is loaded, and a folder that does not fit is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmo.embed.embedder import load
from elmo.errors import WeightsError
from elmo.tasks import folder
from elmo.tasks.batches import answers
from elmo.tasks.folder import TrainedTask
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.ner.model import TASK
from embedders import embedder
from tasks.small_ner import recipe, splits

WORDS = ["saw", "in", "the", "naïve", "10 000", "日本"]
LABELS = TASK.labels(splits()["train"])


def trained(*assignments: str) -> TrainedTask:
    """A tagger with random weights, as if it had been trained."""
    torch.manual_seed(4)
    config = recipe("inputs.vectors=glove.txt", "inputs.elmo.model=small", *assignments)
    elmo = config.inputs.elmo
    of = embedder() if elmo.placement != "none" else None
    inputs = Inputs(
        config.inputs,
        WORDS,
        torch.randn(len(WORDS), 5),
        frozen=FrozenLayers(of) if of and not elmo.trainable else None,
        bilm=of.bilm if of and elmo.trainable else None,
    )
    return TrainedTask(TASK, config, LABELS, WORDS, TASK.model(config, inputs, LABELS).eval(), {"dev": {"f1": 12.5}})


def saved(path: Path, *assignments: str) -> Path:
    path.mkdir()
    folder.save(path, trained(*assignments))
    return path


@pytest.mark.parametrize("change", ["placement=none", "placement=both", "trainable=true"])
def test_what_is_saved_is_loaded(change: str, tmp_path: Path) -> None:
    task = trained(f"inputs.elmo.{change}")
    folder.save(tmp_path, task)
    assert (tmp_path / "elmo").is_dir() == (change != "placement=none")
    loaded = folder.load(tmp_path, "cpu")
    assert replace(loaded, model=task.model) == task
    assert not loaded.model.training
    ours, theirs = loaded.model.state_dict(), task.model.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    examples = splits()["test"]
    assert answers(loaded.model, examples, 3) == answers(task.model, examples, 3)


def test_a_task_on_a_published_model_is_loaded_again(tmp_path: Path) -> None:
    """options.json has integers where a model folder has floats; the fingerprint of the biLM is that of its numbers."""
    of = embedder()
    of.save(tmp_path / "copy")
    assert load(str(tmp_path / "copy"), device="cpu").fingerprint() == of.fingerprint()
    path = saved(tmp_path / "m", "inputs.elmo.placement=both")
    assert folder.load(path, "cpu").labels == LABELS


def test_only_task_weights_and_vectors_are_in_the_weights_file(tmp_path: Path) -> None:
    names = set(load_file(saved(tmp_path / "m", "inputs.elmo.trainable=true") / "model.safetensors"))
    assert not any(name.startswith("inputs.bilm.") for name in names)
    assert {"inputs.table.weight", "inputs.mix_input.gamma", "scores.weight", "crf.transitions"} <= names


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "words.txt"])
@pytest.mark.parametrize("content", [None, b"\xff{"])
def test_a_folder_that_is_incomplete_or_damaged(name: str, content: bytes | None, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    (path / name).unlink()
    if content is not None:
        (path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=rf"^{path}: cannot be read as a trained task \("):
        folder.load(path, "cpu")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model_type", "elmo", "config.json: model_type is 'elmo'; expected 'elmo-task'"),
        ("config", {"hiden": 3}, "config.json: unknown field 'hiden'; did you mean 'hidden'?"),
    ],
)
def test_a_config_that_is_not_that_of_the_task(key: str, value: object, message: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    record = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**record, key: value}))
    with pytest.raises(WeightsError) as error:
        folder.load(path, "cpu")
    assert str(error.value) == f"{path}/{message}"


@pytest.mark.parametrize("more", [True, False])
def test_weights_of_another_model(more: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    tensors = load_file(path / "model.safetensors")
    if more:
        tensors["another.weight"] = torch.zeros(2)
    else:
        del tensors["scores.bias"]
    save_file(tensors, path / "model.safetensors")
    problem = "has a tensor 'another.weight' that the model lacks" if more else "has no tensor 'scores.bias'"
    with pytest.raises(WeightsError) as error:
        folder.load(path, "cpu")
    assert str(error.value) == f"{path}/model.safetensors: {problem}; it does not belong to config.json"


def test_a_bilm_that_has_changed(tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    tensors = load_file(path / "elmo" / "model.safetensors")
    save_file({name: value * 1.5 for name, value in tensors.items()}, path / "elmo" / "model.safetensors")
    with pytest.raises(WeightsError, match=r"m: was trained with another version of the biLM .*\. Train"):
        folder.load(path, "cpu")
