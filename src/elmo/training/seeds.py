"""ONE CONFIG, SEVERAL SEEDS: one process per seed, several at a time, and a report of their scores.

OUT/seed-0/ …      a run like any other; OUT/seed-0/log.txt contains what its process printed
OUT/report.json    the scores of each seed, their mean and standard deviation
"""

import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from elmo.errors import DataError, ElmoError
from elmo.files import locked, replacing, write_error
from elmo.training.processes import behave_as_child, cores
from elmo.training.run import RECORD, Request, Run

REPORT, LOG = "report.json", "log.txt"

Train = Callable[[int, Path, bool, threading.Event], object]  # seed, folder, resume, stop; sent to another process
Logs = Mapping[int, list[dict[str, Any]]]  # the metrics of each seed


def train_seeds(
    train: Train,
    requests: Mapping[int, Request],
    out: Path,
    *,
    jobs: int = 1,
    threads: int | None = None,
    stop: threading.Event | None = None,
    progress: Callable[[Logs], None] = lambda _: None,
) -> dict[str, Any] | None:
    """Call `train` for every seed, each in its own process, `jobs` at a time; returns the report, or None if stopped.

    Finished seeds are not trained again, interrupted ones are resumed. If the run of a seed began with another request,
    it is refused before anything is trained. `progress` is called repeatedly with the metrics of all seeds.
    """
    stop = stop or threading.Event()
    waiting = unfinished(out, requests)
    running: dict[int, BaseProcess] = {}
    try:
        while (waiting or running) and not stop.is_set():
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                running[seed] = _start(train, seed, out / f"seed-{seed}", threads or _threads_each(jobs))
            time.sleep(0.2)
            for seed, process in list(running.items()):
                if process.exitcode is not None:
                    del running[seed]
                    _check_end(seed, process.exitcode, out / f"seed-{seed}")
            progress({seed: Run(out / f"seed-{seed}").metrics() for seed in requests})
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()
    return None if stop.is_set() else write_report(out, list(requests))


def unfinished(out: Path, requests: Mapping[int, Request]) -> list[int]:
    """Return the seeds that have no scores yet; refuse a folder with runs of another request."""
    if (out / RECORD).exists():
        raise DataError(f"{out} already contains a run of one seed. Choose another folder")
    waiting = []
    for seed, request in requests.items():
        run = Run(out / f"seed-{seed}")
        if (run.folder / RECORD).exists():
            run.compare(request)
            if "scores" in run.record:
                continue
        waiting.append(seed)
    return waiting


def write_report(out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Write the scores of each seed, and their mean and (sample) standard deviation, by part and score."""
    runs = {seed: Run(out / f"seed-{seed}").record["scores"] for seed in seeds}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for part, scores in runs[seeds[0]].items():
        found[part] = {name: mean_and_sd([run[part].get(name, 0.0) for run in runs.values()]) for name in scores}
    logs = [Run(out / f"seed-{seed}").metrics() for seed in seeds]
    seconds = [sum(line["train_seconds"] + line["dev_seconds"] for line in log) for log in logs]
    report = {
        "seeds": list(seeds),
        "scores": found,
        "each": {str(seed): scores for seed, scores in runs.items()},
        "epochs": mean_and_sd([len(log) for log in logs]),
        "seconds": mean_and_sd(seconds),
        "memory": max((line["memory"] or 0 for log in logs for line in log), default=0),
    }
    with replacing(out / REPORT) as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    """Return mean and standard deviation."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def _threads_each(jobs: int) -> int | None:
    """Return the number of threads per process, so that all together use every core once."""
    return None if "OMP_NUM_THREADS" in os.environ else max(1, cores() // jobs)


def _start(train: Train, seed: int, folder: Path, threads: int | None) -> BaseProcess:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None
    # Not forked: threads may be running here, for example those of a progress bar.
    process = get_context("spawn").Process(target=_train_seed, args=(train, seed, folder, threads), name=f"seed {seed}")
    process.start()
    return process


def _train_seed(train: Train, seed: int, folder: Path, threads: int | None) -> None:
    """Train one seed in its own process; everything that it prints goes to its log."""
    behave_as_child()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with (folder / LOG).open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with locked(folder):
            train(seed, folder, (folder / RECORD).exists(), stop)
    except ElmoError as error:
        print(f"elmo: {error}", file=sys.stderr)
        sys.exit(2)


def _check_end(seed: int, code: int, folder: Path) -> None:
    """Raise an error if the process of a seed failed, was killed or was interrupted."""
    log = folder / LOG
    if code == 0 and "scores" in Run.open(folder).record:
        return
    if code == 0:
        what = "its process was interrupted. Run the same command again to continue"
    elif code < 0:
        what = f"its process was killed by signal {-code}, possibly because memory ran out. See {log}"
    else:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().split("\n") if log.exists() else [""]
        what = f"{lines[-1].removeprefix('elmo: ')} (its complete output is in {log})"
    raise ElmoError(f"seed {seed}: {what}")
