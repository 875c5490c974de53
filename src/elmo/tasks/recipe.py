"""TOML + `--set a.b=v` ─▶ A TASK AND ITS CONFIG: the defaults, which are the paper's, with the given changes."""

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
    """Build the config of a task: defaults ◀ file ◀ assignments. A file that names a task is refused for another.

    `resume` is the folder of a run to resume; its recipe takes the place of the defaults.
    """
    values = read_toml(file) if file is not None else {}
    written = values.pop("task", None)
    if written is not None and not isinstance(written, str):
        raise ConfigError(f"{file}: task is {written!r}; expected the name of a task")
    if name is not None and written is not None and name != written:
        raise ConfigError(f"{file}: a recipe for {written}, not for {name}")
    chosen = name or written
    if chosen is None:
        raise ConfigError(f'{file}: does not name its task; expected a line such as task = "ner"')
    task = task_named(chosen)
    base = asdict(task.config()) if resume is None else Run(resume).config_of(task.name)
    return task, build(task.config, merged(merged(base, values), parse_assignments(assignments)))
