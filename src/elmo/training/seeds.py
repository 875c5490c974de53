"""ONE CONFIG, SEVERAL SEEDS: one process per seed, several at a time, and a report of their scores.

OUT/seed-0/ …      a run like any other; OUT/seed-0/log.txt contains what its process printed
OUT/report.json    the scores of each seed, their mean and standard deviation
"""

import json
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import replacing
from elmo.training.parallel import Job, run_jobs
from elmo.training.run import RECORD, Request, Run

REPORT = "report.json"

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
    waiting = [Job(f"seed {seed}", out / f"seed-{seed}", partial(train, seed)) for seed in unfinished(out, requests)]
    finished = run_jobs(
        waiting,
        jobs=jobs,
        threads=threads,
        stop=stop,
        progress=lambda: progress({seed: Run(out / f"seed-{seed}").metrics() for seed in requests}),
    )
    return write_report(out, list(requests)) if finished else None


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
