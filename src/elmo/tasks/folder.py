"""A TRAINED TASK ◀─▶ A FOLDER that loads anywhere: `elmo.load_task(folder)`.

config.json          the task, its config, its labels, its scores, and which biLM it reads
model.safetensors    the trained weights, and the word vectors
words.txt            the words of these vectors, one per line
elmo/                the biLM, a model folder, unless it comes with the package
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from elmo.config import build
from elmo.embed.embedder import Embedder, load
from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLM
from elmo.model.device import device_named
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.task import Task, TaskModel, task_named
from elmo.training.run import MODEL, RECORD
from elmo.weights import folder as model_folder
from elmo.weights import source
from elmo.weights.folder import Pretrained

CONFIG, WEIGHTS, WORDS, ELMO = "config.json", "model.safetensors", "words.txt", "elmo"
_BILM = "inputs.bilm."


@dataclass(frozen=True)
class Trained:
    """A trained model, its task, recipe, labels, words and scores."""

    task: Task
    config: Any
    labels: list[str]
    words: list[str]
    model: TaskModel
    scores: Mapping[str, Any] = field(default_factory=dict)  # by split


def fill(folder: Path, trained: Trained) -> None:
    """Write a trained task into an existing folder."""
    inputs = trained.model.inputs
    elmo: dict[str, Any] | None = None
    if inputs.bilm is not None:
        model_folder.write(Pretrained(inputs.bilm), folder / ELMO)
        elmo = {"folder": ELMO}
    elif inputs.frozen is not None:
        name = trained.config.inputs.elmo.model
        elmo = {"name": name, "fingerprint": inputs.frozen.embedder.fingerprint()}
        if name not in source.packaged():
            inputs.frozen.embedder.save(folder / ELMO)
            elmo["folder"] = ELMO
    record = {
        "model_type": "elmo-task",
        "task": trained.task.name,
        "config": asdict(trained.config),
        "labels": trained.labels,
        "elmo": elmo,
        "scores": trained.scores,
    }
    (folder / CONFIG).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (folder / WORDS).write_text("".join(f"{word}\n" for word in trained.words), encoding="utf-8")
    state = trained.model.state_dict()
    tensors = {name: tensor.cpu().contiguous() for name, tensor in state.items() if not name.startswith(_BILM)}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def read(folder: Path, device: str = "auto", task: Task | None = None) -> Trained:
    """Read a trained task; `task` is needed if it is one of your own."""
    if (folder / RECORD).is_file() and not (folder / CONFIG).exists():
        inside = folder / MODEL
        what = f"the trained task is {inside}" if inside.is_dir() else f"it has not ended, there is no {inside} yet"
        raise WeightsError(f"{folder}: the folder of a run; {what}")
    try:
        record = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        words = (folder / WORDS).read_text(encoding="utf-8").split("\n")[:-1]
        state = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise WeightsError(f"{folder}: not a trained task that can be read ({error})") from None
    if record.get("model_type") != "elmo-task":
        raise WeightsError(f"{folder / CONFIG}: of a {record.get('model_type')!r}; expected a trained task's folder")
    task = task or task_named(record["task"])
    try:
        config = build(task.config, record["config"])
    except ConfigError as error:
        raise WeightsError(f"{folder / CONFIG}: {error}") from None
    embedder = _elmo(folder, record["elmo"], device)
    trainable = config.inputs.elmo.trainable
    model = assemble(
        task, config, record["labels"], words,
        matrix=torch.zeros(state["inputs.table.weight"][2:].shape) if "inputs.table.weight" in state else None,
        frozen=FrozenLayers(embedder) if embedder is not None and not trainable else None,
        bilm=embedder.bilm if embedder is not None and trainable else None,
    )  # fmt: skip
    found = set(state) | {name for name in model.state_dict() if name.startswith(_BILM)}
    if found != set(model.state_dict()):
        wrong = sorted(found ^ set(model.state_dict()))[0]
        raise WeightsError(f"{folder / WEIGHTS}: {wrong!r} is in one of it and {CONFIG}, not in both")
    model.load_state_dict(state, strict=False)
    where = embedder.device if embedder is not None else device_named(device)
    return Trained(task, config, record["labels"], words, model.to(where).eval(), record["scores"])


def assemble(
    task: Task,
    config: Any,
    labels: list[str],
    words: Sequence[str],
    matrix: torch.Tensor | None,
    frozen: FrozenLayers | None,
    bilm: BiLM | None,
) -> TaskModel:
    """Build a task's model on its inputs."""
    return task.model(config, Inputs(config.inputs, words, matrix, frozen, bilm), labels)


def _elmo(folder: Path, facts: dict[str, Any] | None, device: str) -> Embedder | None:
    if facts is None:
        return None
    name = str(folder / facts["folder"]) if "folder" in facts else facts["name"]
    embedder = load(name, device=device)
    if facts.get("fingerprint", embedder.fingerprint()) != embedder.fingerprint():
        raise WeightsError(f"{folder}: was trained with another model {name!r} than the one here; train it again")
    return embedder
