"""TOML + `--set a.b=v` ─▶ A TASK AND ITS CONFIG: its defaults, which are the paper's, and what is changed in them."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmo.config import build, merged, parse_assignments, read_toml
from elmo.errors import ConfigError
from elmo.tasks.task import Task, task_named
from elmo.training.run import Run


def recipe(
    name: str | None, file: Path | None = None, assignments: Iterable[str] = (), resume: Path | None = None
) -> tuple[Task, Any]:
    """Defaults ◀ file ◀ assignments. A file names its task, and is of use with that one only.

    `resume` is the folder of a run to resume: the recipe it began with takes the place of the defaults.
    """
    values = read_toml(file) if file is not None else {}
    written = values.pop("task", None)
    if written is not None and not isinstance(written, str):
        raise ConfigError(f"{file}: task is {written!r}; expected a task's name")
    if name is not None and written is not None and name != written:
        raise ConfigError(f"{file}: a recipe for {written}, not for {name}")
    chosen = name or written
    if chosen is None:
        raise ConfigError(f'{file}: names no task; expected task = "ner", or another')
    task = task_named(chosen)
    base = asdict(task.config()) if resume is None else Run(resume).config_of(task.name)
    return task, build(task.config, merged(merged(base, values), parse_assignments(assignments)))
