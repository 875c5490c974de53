"""WHAT AN ANALYSIS CONSISTS OF, and the table of those in this package.

An analysis is a module with a config (a frozen dataclass whose defaults are the paper's protocol) and an `ANALYSIS`:

    run       config, workspace ─▶ results: what json.dumps can write; numbers, no text for people
    table     results ─▶ Markdown, with the paper's figures beside ours
    figure    results ─▶ a matplotlib figure, where a picture helps
    cells     config, workspace ─▶ the task configs that `run` trains, so that those of several analyses can be trained
              together
    claims    results ─▶ what the paper says about it: does it hold here?
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmo.analysis.claims import Claim
from elmo.config import build, merged, read_toml
from elmo.errors import ConfigError, DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANALYSES = {  # in the order in which they are run: what is cut short lacks the last ones
    "tasks": "elmo.analysis.tasks",
    "layer-weighting": "elmo.analysis.layer_weighting",
    "placement": "elmo.analysis.placement",
    "neighbours": "elmo.analysis.neighbours",
    "senses": "elmo.analysis.senses",
    "pos": "elmo.analysis.pos",
    "sample-efficiency": "elmo.analysis.sample_efficiency",
    "layer-weights": "elmo.analysis.layer_weights",
    "fine-tuning": "elmo.analysis.fine_tuning",
    "state": "elmo.analysis.state",
    "anisotropy": "elmo.analysis.anisotropy",
    "similarity": "elmo.analysis.similarity",
    "trigram": "elmo.analysis.trigram",
}

Results = dict[str, Any]
Progress = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


class StoppedError(Exception):
    """The user has stopped an analysis. What was trained or computed so far is kept, and is used again."""


@dataclass(frozen=True)
class Workspace:
    """Where an analysis reads and writes, and how it reports."""

    data: Path  # a folder of datasets, each in a folder of its own
    out: Path  # the folder of this analysis
    runs: Path  # training runs; several analyses can share them
    jobs: int | None = None  # training runs at once; None: one per core on a GPU, else one
    stop: threading.Event = field(default_factory=threading.Event)
    progress: Progress = lambda what, done, total: None
    cache: dict[str, dict[Any, Any]] = field(default_factory=dict)  # what several sweeps read, kept in memory

    def report(self, what: str, done: int, total: int) -> None:
        """Report progress; raise `StoppedError` if the user wants to stop."""
        if self.stop.is_set():
            raise StoppedError
        self.progress(what, done, total)

    def find(self, name: str) -> Path:
        """Return the path of a dataset or file inside the data folder, which must exist."""
        path = self.data / name
        if not path.exists():
            raise DataError(f"{path}: not found; expected a dataset there. Give the folder of all datasets with --data")
        return path


@dataclass(frozen=True)
class Analysis:
    """Everything that `elmo analyse` and `elmo reproduce` need to know about an analysis."""

    name: str  # of the command, such as "layer-weighting"
    title: str
    section: str  # of the paper, or "beyond the paper"
    about: str  # what is compared, in one or two sentences
    config: type[Any]
    run: Callable[[Any, Workspace], Results]
    table: Callable[[Results], str]
    figure: Callable[[Results], "Figure"] | None = None
    cells: Callable[[Any, Workspace], Mapping[str, Any]] | None = None  # what `run` trains, as a sweep takes it
    claims: Callable[[Results], list[Claim]] = lambda results: []


def build_config(analysis: Analysis, file: Path | None, changes: Mapping[str, Any] | None = None) -> Any:
    """Build the config of an analysis: default ◀ TOML file ◀ changes. A file that names another one is refused."""
    values = read_toml(file) if file is not None else {}
    written = values.pop("analysis", analysis.name)
    if written != analysis.name:
        raise ConfigError(f"{file}: a config of {written!r}, not of {analysis.name}")
    config = build(analysis.config, merged(values, changes or {}))
    names = Counter(task.name for task in getattr(config, "tasks", ()))
    for name, count in names.items():
        if count > 1:  # one would take the place of the other
            raise ConfigError(f"tasks: {count} of them are named {name!r}; give each a title of its own")
    return config


def analysis_named(name: str) -> Analysis:
    """Find an analysis by its name."""
    if name not in ANALYSES:
        raise ConfigError(f"{name}: no such analysis; expected {', '.join(ANALYSES)}")
    found: Analysis = import_module(ANALYSES[name]).ANALYSIS
    return found
