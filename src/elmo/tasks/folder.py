"""A TRAINED TASK ◀─▶ A FOLDER that can be moved: `elmo.load_task(folder)`, or by its name if it is installed.

config.json          the name of the task, its config, its labels, its scores, and its biLM
model.safetensors    the trained weights, and the word vectors
words.txt            the words of these vectors, one per line
elmo/                the biLM, a model folder, unless it is an installed one
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

from elmo.config import build
from elmo.embed import embedder as embedding
from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError, WeightsError
from elmo.model.device import device_named
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import BILM, UNKNOWN_WORD, Inputs
from elmo.tasks.task import TASKS, Task, TaskModel, task_named
from elmo.training.run import MODEL, RECORD
from elmo.weights import folder as model_folder
from elmo.weights import installed
from elmo.weights.folder import Pretrained
from elmo.weights.json_file import read_json
from elmo.weights.tensor_files import refuse_large_header

CONFIG, WEIGHTS, WORDS, ELMO = "config.json", "model.safetensors", "words.txt", "elmo"
TABLE = "inputs.table.weight"  # the word vectors, after those of no word and of an unknown one
NO_WORDS = UNKNOWN_WORD + 1
SPARE = 1 << 20  # numbers that a network may have besides those of its file, such as tables that it computes


@dataclass(frozen=True)
class TrainedTask:
    """The model of a task, and everything that is needed to use it."""

    task: Task
    config: Any
    labels: list[str]
    words: list[str]
    model: TaskModel
    scores: Mapping[str, Any] = field(default_factory=dict)  # by part of the data


def save(folder: Path, trained: TrainedTask, dtype: torch.dtype | None = None) -> None:
    """Write a trained task into an existing folder; with a `dtype`, its own weights are stored rounded to it."""
    inputs = trained.model.inputs
    elmo: dict[str, Any] | None = None
    if inputs.bilm is not None:
        model_folder.write(Pretrained(inputs.bilm), folder / ELMO)
        elmo = {"folder": ELMO}
    elif inputs.frozen is not None:
        name = trained.config.inputs.elmo.model
        elmo = {"name": name, "fingerprint": inputs.frozen.embedder.fingerprint()}
        if installed.find(installed.MODELS, name) is None:
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
    tensors = {name: tensor.cpu().contiguous() for name, tensor in state.items() if not name.startswith(BILM)}
    if dtype is not None:
        tensors = {name: _rounded(name, tensor, dtype) for name, tensor in tensors.items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def _rounded(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    rounded = tensor.to(dtype)
    if not rounded.isfinite().all():
        raise WeightsError(f"{name}: has a value that {str(dtype).removeprefix('torch.')} cannot store; keep float32")
    return rounded


def load(
    source: str | Path,
    device: str = "auto",
    task: Task | None = None,
    *,
    precision: str = "float32",
    word_cache: str | Path | None = None,
) -> TrainedTask:
    """Load a trained task, by its folder or its name; `task` is needed if it is one of your own.

    An installed name comes first, so that it means the same everywhere; write `./name` for a folder of that name.
    `precision` and `word_cache` are those of the task's frozen biLM, as for `elmo.load`.
    """
    folder = installed.find(installed.TASKS, str(source)) or Path(source).expanduser()
    if not folder.exists():
        known = ", ".join(installed.installed(installed.TASKS)) or "none"
        raise WeightsError(
            f"{folder}: no such folder, and no trained task of that name; expected RUN/model of a run, or the name of "
            f"an installed task ({known})"
        )
    if (folder / RECORD).is_file() and not (folder / CONFIG).exists():
        inside = folder / MODEL
        hint = f"give {inside}" if inside.is_dir() else f"the run has not finished, there is no {inside} yet"
        raise WeightsError(f"{folder}: the folder of a run, not of a trained task; {hint}")
    record = _record(folder)
    words, state = _read(folder)
    if task is None and record["task"] not in TASKS:  # never by a path in the file: it would run the code there
        raise WeightsError(
            f"{folder / CONFIG}: {record['task']}: no such task; expected {', '.join(TASKS)}. Give the folder of your "
            "own task with --task (in Python the task itself, task=)"
        )
    of = task or task_named(record["task"])
    try:
        config = build(of.config, record["config"])
    except ConfigError as error:
        raise WeightsError(f"{folder / CONFIG}: {error}") from None
    if precision != "float32" and (record["elmo"] is None or config.inputs.elmo.trainable):
        raise ConfigError(f"precision is {precision!r}; {folder} has no frozen biLM that it is for: expected 'float32'")
    embedder = _load_elmo(folder, record["elmo"], device, precision, word_cache)
    stored = sum(tensor.numel() for tensor in state.values())
    try:
        with _AtMost(3 * stored + SPARE):
            model = _new_model(of, config, record["labels"], words, state, embedder)
    except ConfigError as error:  # of a network, such as labels without a score
        raise WeightsError(f"{folder / CONFIG}: {error}") from None
    _refuse_misfit(folder, model, state)
    model.load_state_dict(state, strict=False)
    on = embedder.device if embedder is not None else device_named(device)
    return TrainedTask(of, config, record["labels"], words, model.to(on).eval(), record["scores"])


class _AtMost(TorchFunctionMode):
    """Refuse a network whose tensors have more numbers together, before they are allocated."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.left = numbers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.empty, torch.zeros, torch.ones):
            self.left -= func(*args, **kwargs | {"device": "meta"}).numel()
            if self.left < 0:
                raise ConfigError(f"describes a larger network than {WEIGHTS} contains. Are they from one model?")
        return func(*args, **kwargs)


def _read(folder: Path) -> tuple[list[str], dict[str, torch.Tensor]]:
    """Read the words and the tensors; their numbers of words must agree."""
    for path in (folder / WORDS, folder / WEIGHTS):
        if path.exists() and not path.is_file():
            raise WeightsError(f"{folder}: cannot be read as a trained task ({path.name} is not a file)")
    try:
        words = (folder / WORDS).read_text(encoding="utf-8").split("\n")[:-1]
        refuse_large_header(folder / WEIGHTS)
        state = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise WeightsError(f"{folder}: cannot be read as a trained task ({error})") from None
    table = state.get(TABLE)
    if (table is None and words) or (table is not None and (table.dim() != 2 or len(table) != len(words) + NO_WORDS)):
        found = "no" if table is None else f"{tuple(table.shape)}"
        raise WeightsError(
            f"{folder / WORDS}: has {len(words):,} words, and {WEIGHTS} has {found} vectors; expected {NO_WORDS} more "
            "vectors than words. Are they from one model?"
        )
    return words, state


def _new_model(
    task: Task,
    config: Any,
    labels: list[str],
    words: list[str],
    state: Mapping[str, torch.Tensor],
    embedder: Embedder | None,
) -> TaskModel:
    """Build the model of a config; the values of its parameters are any."""
    elmo = config.inputs.elmo
    inputs = Inputs(
        config.inputs,
        words,
        torch.zeros(state[TABLE][NO_WORDS:].shape) if TABLE in state else None,
        frozen=FrozenLayers(embedder, state=elmo.state) if embedder is not None and not elmo.trainable else None,
        bilm=embedder.bilm if embedder is not None and elmo.trainable else None,
    )
    return task.model(config, inputs, labels)


def _refuse_misfit(folder: Path, model: TaskModel, state: Mapping[str, torch.Tensor]) -> None:
    """Refuse tensors that are not those of the model."""
    needed = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(BILM)}
    if needed.keys() != state.keys():
        name = min(needed.keys() ^ state.keys())
        problem = f"has no tensor {name!r}" if name in needed else f"has a tensor {name!r} that the model lacks"
        raise WeightsError(f"{folder / WEIGHTS}: {problem}; it does not belong to {CONFIG}")
    for name, tensor in needed.items():
        if state[name].shape != tensor.shape or not state[name].isfinite().all():
            raise WeightsError(
                f"{folder / WEIGHTS}: {name!r} has shape {tuple(state[name].shape)}, or values that are not finite; "
                f"{CONFIG} needs {tuple(tensor.shape)}"
            )
        if state[name].is_floating_point() != tensor.is_floating_point():
            found, wanted = (str(some.dtype).removeprefix("torch.") for some in (state[name], tensor))
            raise WeightsError(f"{folder / WEIGHTS}: {name!r} is of type {found}; expected {wanted}")


def _record(folder: Path) -> dict[str, Any]:
    """Read config.json, and check the form of what `load` uses."""
    record = read_json(folder / CONFIG)
    if record.get("model_type") != "elmo-task":
        raise WeightsError(
            f"{folder / CONFIG}: not a trained task: model_type is {record.get('model_type')!r}; expected 'elmo-task'"
        )
    elmo, labels = record.get("elmo"), record.get("labels")
    facts = elmo if isinstance(elmo, dict) else {}
    known = facts["folder"] == ELMO if "folder" in facts else isinstance(facts.get("name"), str)
    forms = {
        "task": isinstance(record.get("task"), str),
        "config": isinstance(record.get("config"), dict),
        "labels": isinstance(labels, list) and all(isinstance(label, str) for label in labels),
        "elmo": "elmo" in record and (elmo is None or known),
        "scores": isinstance(record.get("scores"), dict),
    }
    for name, right in forms.items():
        if not right:
            raise WeightsError(
                f"{folder / CONFIG}: {name!r} is {record.get(name)!r:.80}; expected what `elmo train` writes there"
            )
    return record


def _load_elmo(
    folder: Path, facts: dict[str, Any] | None, device: str, precision: str, word_cache: str | Path | None
) -> Embedder | None:
    if facts is None:
        return None
    name = str(folder / facts["folder"]) if "folder" in facts else facts["name"]
    if "folder" not in facts and installed.find(installed.MODELS, name) is None:
        raise WeightsError(f"{folder}: needs the biLM {name!r}, which is not installed. Install its distribution first")
    embedder = embedding.load(name, device=device, word_cache=word_cache)
    if facts.get("fingerprint", embedder.fingerprint()) != embedder.fingerprint():
        raise WeightsError(f"{folder}: was trained with another version of the biLM {name!r}. Train the task again")
    if precision == "float32":
        return embedder
    return embedding.load(name, device=device, precision=precision, word_cache=word_cache)
