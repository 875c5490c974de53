"""A TASK IS DATA, A MODEL AND A METRIC: what each of the three must offer, and the table of those there are.

A task is a folder of three files, `data.py`, `model.py` and `metric.py`; `model.py` ends with its `TASK`.
"""

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.tasks.frozen import Tokens
from elmo.tasks.inputs import Inputs, Texts

TASKS = {"ner": "elmo.tasks.ner.model", "sst": "elmo.tasks.sst.model", "snli": "elmo.tasks.snli.model"}


@dataclass(frozen=True)
class Example:
    """What is read, one token sequence or several, and what is to be found in it."""

    texts: tuple[Tokens, ...]
    gold: Any = None


Splits = Mapping[str, Sequence[Example]]  # "train", "dev", "test": those that are there


class TaskModel(nn.Module, ABC):
    """A module that learns from gold answers and gives its own."""

    inputs: Inputs

    @abstractmethod
    def loss(self, texts: Sequence[Texts], gold: Sequence[Any]) -> Tensor:
        """The mean loss over a batch; `texts` are those of the first sequence of all examples, of the second, …"""

    @abstractmethod
    def answers(self, texts: Sequence[Texts]) -> list[Any]:
        """An answer for each example, in the form of its gold one."""


@dataclass(frozen=True)
class Task:
    """All that the road needs to know."""

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


def _from_folder(folder: Path) -> Any:
    """The `model.py` of a folder, as a package of the folder's name, so that it can import what stands beside it."""
    package = folder.name
    for name, path in ((package, folder / "__init__.py"), (f"{package}.model", folder / "model.py")):
        spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[str(folder)])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        if path.exists():
            spec.loader.exec_module(module)
    return module
