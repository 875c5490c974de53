"""SEVERAL SEEDS OF A TASK: a config and data ─▶ OUT/seed-0 …, OUT/report.json (see training/seeds.py)."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from elmo.config import build, merged
from elmo.model.device import device_named
from elmo.tasks.sources import PATHS, load_embedder, prepare_layers, request
from elmo.tasks.task import task_named
from elmo.tasks.train import Report, TaskTraining
from elmo.training import seeds
from elmo.training.run import Request
from elmo.training.seeds import Logs

# The fields that may differ from those of a finished run.
MAY_CHANGE = ("train.device", "train.recorded", "train.tensorboard", *PATHS)


def train_seeds(
    name: str,
    config: Any,
    data: Path,
    out: Path,
    *,
    count: int,
    jobs: int | None = None,
    threads: int | None = None,
    stop: threading.Event | None = None,
    report: Report | None = None,
    progress: Callable[[Logs], None] = lambda _: None,
) -> dict[str, Any] | None:
    """Train `count` seeds of a task, beginning with that of the config, `jobs` at a time.

    By default all seeds are trained at once on a GPU, and one at a time on a CPU. `name` is the name or the folder of a
    task. Return the content of report.json; None if `stop` ended it early. Each
    seed has a process of its own, so a script that calls this needs the usual `if __name__ == "__main__":`.
    """
    device = device_named(config.train.device)
    requests = _prepare(name, config, data, out, count, device, report)
    train = partial(train_seed, name, asdict(config), data)
    at_a_time = jobs or (count if device.type == "cuda" else 1)
    return seeds.train_seeds(train, requests, out, jobs=at_a_time, threads=threads, stop=stop, progress=progress)


def epoch_line(values: Mapping[str, Any]) -> str:
    """Format the metrics of an epoch as a line of text."""
    name, score = dev_score(values)
    seconds = values["train_seconds"] + values["dev_seconds"]
    return f"epoch {values['step']}: loss {values['loss']:.4f}, dev {name} {score:.2f}, {seconds:.1f} s"


def dev_score(values: Mapping[str, Any]) -> tuple[str, float]:
    """Return the name and the value of the dev score by which the best epoch is chosen: the first one."""
    return next((name.removeprefix("dev_"), value) for name, value in values.items() if name.startswith("dev_"))


def _prepare(
    name: str, config: Any, data: Path, out: Path, count: int, device: torch.device, report: Report | None
) -> dict[int, Request]:
    """Compute the layers, once for all seeds; return the request of each. Data and biLM are not kept in memory."""
    task = task_named(name)
    splits = task.read(data)
    embedder = load_embedder(config, device)
    asked = request(task, config, splits, str(data), embedder)
    requests = {
        seed: replace(asked, config=replace(config, train=replace(config.train, seed=seed)), may_change=MAY_CHANGE)
        for seed in range(config.train.seed, config.train.seed + count)
    }
    if seeds.unfinished(out, requests):
        prepare_layers(splits, config, embedder, progress=report.prepared if report else None)
    return requests


class _PrintedReport:
    """Print a line for every epoch."""

    def prepared(self, done: int, of: int) -> None:
        pass

    def began(self, epoch: int, batches: int) -> None:
        pass

    def stepped(self) -> None:
        pass

    def logged(self, values: Mapping[str, Any]) -> None:
        print(epoch_line(values), flush=True)


def train_seed(
    name: str, values: dict[str, Any], data: Path, seed: int, folder: Path, resume: bool, stop: threading.Event
) -> None:
    """Train one seed of a config, given as nested values; runs in a process of its own."""
    task = task_named(name)
    config = build(task.config, merged(values, {"train": {"seed": seed}}))
    TaskTraining(task, config, task.read(data), folder, data=str(data), resume=resume, report=_PrintedReport()).train(
        stop
    )
