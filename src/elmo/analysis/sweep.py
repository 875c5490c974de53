"""A SWEEP: several configs of several tasks, several seeds of each ─▶ the scores of all.

WORKSPACE.runs/TASK-HASH/seed-0 …    runs like those of `elmo train`; the hash is of the config and of the content of
                                     all files, not of their paths: a folder of runs can be moved. The checkpoints of
                                     finished runs are removed; their run.json says which machine trained them.

A config that two analyses have in common is trained once. Finished runs are not trained again, interrupted ones are
resumed, so a sweep that is started again continues where it was. On a GPU many runs are trained side by side, each in a
process of its own; on a CPU, one after another in this process. The layers of a frozen biLM are computed once for all.
"""

import hashlib
import json
import math
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elmo.analysis.analysis import Results, StoppedError, Workspace
from elmo.analysis.machine import machine
from elmo.config import CheckedConfig, build, merged
from elmo.embed.embedder import Embedder
from elmo.files import locked
from elmo.model.device import device_named
from elmo.tasks.examples import Splits, fraction
from elmo.tasks.inputs import ElmoConfig
from elmo.tasks.recipe import recipe
from elmo.tasks.seeds import MAY_CHANGE, dev_score, train_seed
from elmo.tasks.sources import load_embedder, prepare_layers, request
from elmo.tasks.task import Task
from elmo.tasks.train import TaskTraining
from elmo.training.parallel import Job, run_jobs
from elmo.training.processes import cores
from elmo.training.run import CHECKPOINTS, RECORD, Request, Run, without

Changes = Mapping[str, Any]  # nested values, merged into the config of a task


@dataclass(frozen=True)
class TaskSetup(CheckedConfig):
    """A task of a sweep: where its data are, and its recipe."""

    task: str  # a name, or the folder of a task of your own
    data: str  # a folder inside the data folder
    title: str | None = None  # in tables; by default the name of the task
    recipe: str | None = None  # a TOML file for `elmo train`; by default the recipe of the task, which is the paper's
    vectors: str | None = "vectors/glove.6B.100d.tasks.txt"  # a file inside the data folder
    settings: tuple[str, ...] = ()  # changes of the recipe, such as "train.epochs=10"

    @property
    def name(self) -> str:
        """The name of the task in tables."""
        return self.title or self.task


# The tasks of the paper, on the datasets of this project's figures; the recipe for NER has vectors of 50 dimensions.
SQUAD, SNLI, SRL = TaskSetup("squad", "squad"), TaskSetup("snli", "snli"), TaskSetup("srl", "propbank-ewt")
COREF, SST = TaskSetup("coref", "ontogum"), TaskSetup("sst", "sst")
NER = TaskSetup("ner", "conll2003", vectors="vectors/glove.6B.50d.tasks.txt")


def base_config(setup: TaskSetup, workspace: Workspace) -> tuple[Task, Any]:
    """Return a task and its config, before an analysis changes it."""
    file = Path(setup.recipe) if setup.recipe is not None else None
    vectors = [f"inputs.vectors={json.dumps(str(workspace.find(setup.vectors)))}"] if setup.vectors else []
    return recipe(setup.task, file, [*vectors, *setup.settings])


@dataclass(frozen=True)
class Cell:
    """One config of a sweep."""

    setup: TaskSetup
    changes: Changes
    model: str  # the biLM, unless the changes name another one
    seeds: int


@dataclass(frozen=True)
class _Prepared:
    """A cell that is ready to be trained."""

    name: str  # of the task, or its folder
    task: Task
    config: Any
    data: Path
    splits: Splits
    requests: Mapping[int, Request]  # by seed
    folder: Path


class Sweep:
    """Trains cells, and reads their scores."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._data: dict[tuple[str, Path], Splits] = workspace.cache.setdefault("data", {})
        self._requests: dict[tuple[str, str, str | None, str | None], Request]
        self._requests = workspace.cache.setdefault("requests", {})
        self._embedders: dict[str, Embedder | None] = {}

    def run(self, cells: Mapping[str, Cell]) -> Results:
        """Train every seed of every cell that has no scores yet; return the scores of all cells, by their keys."""
        prepared = {key: self._prepare(cell) for key, cell in cells.items()}
        runs = {(seed, cell.folder): cell for cell in prepared.values() for seed in cell.requests}
        # The first seed of every cell comes before the second of any: a sweep that is cut short has something of each.
        order = sorted(runs, key=lambda run: run[0])
        waiting = [(runs[run], run[0]) for run in order if not _finished(runs[run], run[0])]
        if waiting:
            self._train(waiting)
        return {key: _scores(cell) for key, cell in prepared.items()}

    def check(self, cells: Mapping[str, Cell]) -> None:
        """Refuse cells whose recipe is wrong, or whose data, vectors or biLM are missing or damaged."""
        for cell in cells.values():
            self._prepare(cell)

    def _train(self, waiting: Sequence[tuple[_Prepared, int]]) -> None:
        self.workspace.report("training runs", 0, len(waiting))
        self._compute_layers([cell for cell, _ in waiting])
        devices = {device_named(cell.config.train.device).type for cell, _ in waiting}
        jobs = self.workspace.jobs or (cores() if "cuda" in devices else 1)
        if jobs > 1:
            self._train_parallel(waiting, jobs)
        else:
            self._train_here(waiting)

    def _prepare(self, cell: Cell) -> _Prepared:
        setup = cell.setup
        data = self.workspace.find(setup.data)
        task, config = self._config(cell)
        if (setup.task, data) not in self._data:
            self._data[setup.task, data] = task.read(data)
        splits = self._data[setup.task, data]
        asked = self._request(setup.task, task, config, splits, str(data))
        first = config.train.seed
        requests = {
            seed: replace(asked, config=replace(config, train=replace(config.train, seed=seed)), may_change=MAY_CHANGE)
            for seed in range(first, first + cell.seeds)
        }
        facts = without(asked.values(), [*MAY_CHANGE, "train.seed"])
        prints = {name: source.fingerprint for name, source in asked.sources.items()}
        digest = hashlib.sha256(json.dumps([facts, prints], sort_keys=True).encode()).hexdigest()[:10]
        folder = self.workspace.runs / f"{task.name}-{digest}"
        return _Prepared(setup.task, task, config, data, splits, requests, folder)

    def _config(self, cell: Cell) -> tuple[Task, Any]:
        task, base = base_config(cell.setup, self.workspace)
        changes = merged({"inputs": {"elmo": {"model": cell.model}}}, cell.changes)
        config = build(task.config, merged(asdict(base), changes))
        if config.inputs.elmo.placement == "none":  # so that it is the same run for every biLM
            config = replace(config, inputs=replace(config.inputs, elmo=ElmoConfig(placement="none")))
        return task, config

    def _request(self, name: str, task: Task, config: Any, splits: Splits, data: str) -> Request:
        """Describe a run; the files that it reads are read once for all cells."""
        elmo = config.inputs.elmo
        model = elmo.model if elmo.placement != "none" else None
        key = name, data, config.inputs.vectors, model
        if key not in self._requests:
            self._requests[key] = request(task, config, splits, data, self._embedder(config))
        return replace(self._requests[key], config=config)

    def _embedder(self, config: Any) -> Embedder | None:
        if config.inputs.elmo.placement == "none":
            return None
        model = config.inputs.elmo.model
        if model not in self._embedders:
            self._embedders[model] = load_embedder(config, device_named(config.train.device))
        return self._embedders[model]

    def _compute_layers(self, cells: Sequence[_Prepared]) -> None:
        """Compute the layers that several runs need, before any of them begins."""
        done = set()
        for cell in cells:
            elmo = cell.config.inputs.elmo
            key = cell.data, elmo.model, elmo.state, cell.task.name
            if elmo.placement == "none" or key in done:
                continue
            done.add(key)
            progress = partial(self.workspace.report, f"layers of {cell.data.name}")
            prepare_layers(cell.splits, cell.config, self._embedder(cell.config), progress=progress)
        self._embedders.clear()  # the runs load their own
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _train_here(self, waiting: Sequence[tuple[_Prepared, int]]) -> None:
        for number, (cell, seed) in enumerate(waiting):
            self.workspace.report("training runs", number, len(waiting))
            folder, config = cell.folder / f"seed-{seed}", cell.requests[seed].config
            with locked(folder):
                if "scores" in _record(folder):  # another process has trained it meanwhile
                    continue
                training = TaskTraining(
                    cell.task, config, cell.splits, folder, data=str(cell.data), resume=(folder / RECORD).exists()
                )
                if not training.train(self.workspace.stop):
                    raise StoppedError
                _finish(folder)
        self.workspace.report("training runs", len(waiting), len(waiting))

    def _train_parallel(self, waiting: Sequence[tuple[_Prepared, int]], jobs: int) -> None:
        todo = [
            Job(
                f"{cell.folder.name}, seed {seed}",
                cell.folder / f"seed-{seed}",
                partial(_train_job, cell.name, asdict(cell.config), cell.data, seed),
            )
            for cell, seed in waiting
        ]
        left = {job.folder for job in todo}

        def progress() -> None:
            for folder in [folder for folder in left if "scores" in _record(folder)]:
                _finish(folder)
                left.remove(folder)
            self.workspace.progress("training runs", len(todo) - len(left), len(todo))

        try:
            if not run_jobs(todo, jobs=jobs, stop=self.workspace.stop, progress=progress, keep_going=True):
                raise StoppedError
        finally:
            progress()  # some may have finished while the others were stopped


def _record(folder: Path) -> dict[str, Any]:
    return Run(folder).record if (folder / RECORD).exists() else {}


def _train_job(
    name: str, values: dict[str, Any], data: Path, seed: int, folder: Path, resume: bool, stop: threading.Event
) -> None:
    """Train a run in a process of its own, unless another sweep has finished it since this one began."""
    if "scores" not in _record(folder):
        train_seed(name, values, data, seed, folder, resume, stop)


def _finish(folder: Path) -> None:
    """Record the machine, and delete the checkpoints of a finished run: its result is in `model`."""
    if "machine" not in _record(folder):
        Run(folder).add(machine=machine())
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _finished(cell: _Prepared, seed: int) -> bool:
    folder = cell.folder / f"seed-{seed}"
    if not (folder / RECORD).exists():
        return False
    Run(folder).compare(cell.requests[seed])
    return "scores" in _record(folder)


def _scores(cell: _Prepared) -> Results:
    """Return what is known about the runs of a cell: lists have one entry per seed."""
    runs = [Run(cell.folder / f"seed-{seed}") for seed in cell.requests]
    logs = [run.metrics() for run in runs]
    best = [log[run.record["best_epoch"] - 1] for run, log in zip(runs, logs, strict=True)]
    score, _ = dev_score(best[0])
    examples = fraction(cell.splits["train"], cell.config.train.train_fraction, cell.config.train.seed)
    machines = [run.record["machine"] for run in runs if "machine" in run.record]
    return {
        "runs": cell.folder.name,
        "score": score,
        "seeds": list(cell.requests),
        "dev": [line[f"dev_{score}"] for line in best],
        "test": [run.record["scores"].get("test", {}).get(score) for run in runs],
        "curves": [[line[f"dev_{score}"] for line in log] for log in logs],  # dev score by epoch
        "mixes": [line["mixes"] for line in best],
        "best_epochs": [run.record["best_epoch"] for run in runs],
        "examples": len(examples),
        "updates_per_epoch": cell.config.train.passes * math.ceil(len(examples) / cell.config.train.batch_size),
        "scores": [run.record["scores"] for run in runs],  # all of them, by part
        "epochs": [len(log) for log in logs],
        "seconds": sum(line["train_seconds"] + line["dev_seconds"] for log in logs for line in log),
        "memory": max((line["memory"] or 0 for log in logs for line in log), default=0),
        "machines": [one for number, one in enumerate(machines) if one not in machines[:number]],
    }
