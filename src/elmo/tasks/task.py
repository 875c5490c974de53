"""A TASK IS DATA, A MODEL AND A METRIC: the interface of each, and the table of the tasks in this package.

A task is a folder of three files, `data.py`, `model.py` and `metric.py`; `model.py` ends with its `TASK`.
"""

import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.tasks.examples import Example, Splits
from elmo.tasks.inputs import Inputs
from elmo.tasks.prepared import on_device

TASKS = {name: f"elmo.tasks.{name}.model" for name in ("squad", "snli", "srl", "coref", "ner", "sst", "sentences")}


class TaskModel(nn.Module, ABC):
    """A model that learns from examples with gold answers, and predicts answers.

    It reads the texts of a batch through `inputs`, in the layout that suits it.
    """

    inputs: Inputs
    independent: tuple[str, ...] = ()  # parts (attributes) that share nothing with the rest: clipped by themselves

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    @abstractmethod
    def loss(self, examples: Sequence[Example]) -> Tensor:
        """Compute the mean loss over a batch."""

    @abstractmethod
    def answers(self, examples: Sequence[Example]) -> list[Any]:
        """Predict an answer for each example of a batch, in the form of its gold answer."""


class PreparedModel(TaskModel):
    """A model whose loss is a function of tensors that were prepared before: on a GPU its steps can be recorded."""

    @abstractmethod
    def prepare(self, examples: Sequence[Example], *, recorded: bool = False) -> Any:
        """Return the tensors of a batch, on the CPU, as described in `prepared.py`.

        For steps that are `recorded`, lengths are rounded up, so that few batches have different shapes.
        """

    @abstractmethod
    def loss_of(self, batch: Any) -> Tensor:
        """Compute the mean loss over a prepared batch on the device, without waiting for it."""

    def loss(self, examples: Sequence[Example]) -> Tensor:
        """Compute the mean loss over a batch."""
        return self.loss_of(on_device(self.prepare(examples), self.device))


@dataclass(frozen=True)
class PredictionFormat:
    """The public file format in which systems exchange the gold answers and the predictions of a task."""

    read_gold: Callable[[Path], Sequence[Example]]
    read_predictions: Callable[[Path, Sequence[Example]], list[Any]]  # file, gold examples ─▶ an answer for each
    write_predictions: Callable[[IO[str], Sequence[Example], Sequence[Any]], None]  # file, examples, answers


@dataclass(frozen=True)
class Task:
    """Everything the trainer and the predictor need to know about a task."""

    name: str
    config: type[Any]  # a frozen dataclass: the model's own fields, `inputs` and `train`
    read: Callable[[Path], Splits]  # a folder of data
    labels: Callable[[Sequence[Example]], list[str]]  # of the training part
    model: Callable[[Any, Inputs, list[str]], TaskModel]  # config, inputs, labels
    score: Callable[[Sequence[Any], Sequence[Any]], dict[str, float]]  # gold, predicted; the first chooses the model
    parse: Callable[[Any], Example]  # a line of text, or a JSON value, to predict from
    to_json: Callable[[Example, Any], dict[str, Any]]  # an example and its answer
    predictions: PredictionFormat | None = None
    unit: Literal["line", "file"] = "line"  # one item of raw text to predict from


def prediction_format(task: Task) -> PredictionFormat:
    """Return the format of a task's files of predictions, or refuse a task without one."""
    if task.predictions is None:
        raise ConfigError(f"task {task.name}: has no format for predictions; its TASK in model.py can give one")
    return task.predictions


def task_named(name: str) -> Task:
    """Find a task of this package by its name, or a task of your own by its folder."""
    if name in TASKS:
        module = import_module(TASKS[name])
    elif (Path(name) / "model.py").is_file():
        module = _from_folder(Path(name).resolve())
    else:
        raise ConfigError(f"{name}: no such task; expected {', '.join(TASKS)}, or a folder with a model.py of your own")
    task = getattr(module, "TASK", None)
    if not isinstance(task, Task):
        raise ConfigError(f"{Path(name) / 'model.py'}: has no TASK; expected TASK = Task(…) at its end")
    return task


def _from_folder(folder: Path) -> ModuleType:
    """Import the `model.py` of a folder, in a package of the folder's name: it can import the files beside it."""
    package = ModuleType(folder.name)
    package.__path__ = [str(folder)]
    sys.modules[folder.name] = package
    try:
        return import_module(f"{folder.name}.model")
    except ConfigError:
        raise
    except Exception as error:  # whatever the user's own code raises
        raise ConfigError(f"{_place(error, folder)}: cannot be imported ({_what(error)})") from error


def _place(error: Exception, folder: Path) -> str:
    """Return the file and line of a task folder at which its import failed."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(folder / "model.py")


def _what(error: Exception) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}".split("\n")[0]
