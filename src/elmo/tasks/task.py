"""A TASK IS DATA, A MODEL AND A METRIC: the interface of each, and the table of the tasks in this package.

A task is a folder of three files, `data.py`, `model.py` and `metric.py`; `model.py` ends with its `TASK`.
"""

import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.tasks.inputs import Inputs, Texts
from elmo.text.tokens import Tokens

TASKS = {"ner": "elmo.tasks.ner.model", "sst": "elmo.tasks.sst.model", "snli": "elmo.tasks.snli.model"}


@dataclass(frozen=True)
class Example:
    """One or several token sequences, and the right answer: a value whose repr shows its content."""

    texts: tuple[Tokens, ...]
    gold: Any = None


Splits = Mapping[str, Sequence[Example]]  # "train", "dev", "test": those that exist


class TaskModel(nn.Module, ABC):
    """A module that is trained on gold answers and predicts its own."""

    inputs: Inputs

    @abstractmethod
    def loss(self, texts: Sequence[Texts], gold: Sequence[Any]) -> Tensor:
        """The mean loss over a batch; `texts` are those of the first sequence of all examples, of the second, …"""

    @abstractmethod
    def answers(self, texts: Sequence[Texts]) -> list[Any]:
        """An answer for each example, in the form of its gold one."""


@dataclass(frozen=True)
class Task:
    """Everything the trainer and the predictor need to know about a task."""

    name: str
    config: type[Any]  # a frozen dataclass: the model's own fields, `inputs` and `train`
    read: Callable[[Path], Splits]
    labels: Callable[[Sequence[Example]], list[str]]  # of the training part
    model: Callable[[Any, Inputs, list[str]], TaskModel]  # config, inputs, labels
    score: Callable[[Sequence[Any], Sequence[Any]], dict[str, float]]  # gold, found; models are chosen by the first
    parse: Callable[[Any], Example]  # a line of text, or a JSON object, to predict from
    show: Callable[[Example, Any], dict[str, Any]]  # an answer, for people and programs


def task_named(name: str) -> Task:
    """One of the tasks here, by name; or of a folder with a `model.py` of your own."""
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
    """The `model.py` of a folder, in a package of the folder's name, so that it can import what stands beside it."""
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
    """The file and line of a task folder where importing it failed."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(folder / "model.py")


def _what(error: Exception) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}".split("\n")[0]
