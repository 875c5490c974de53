"""ONE RECIPE, SEVERAL SEEDS: a process for each, some side by side, and a report of what they reached together.

OUT/seed-0/ …      a run like any other; OUT/seed-0/log.txt is what it printed
OUT/report.json    each seed's scores, their mean and standard deviation
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from elmo.errors import ElmoError
from elmo.files import replacing
from elmo.run import Run

REPORT = "report.json"


def train_seeds(
    arguments: Sequence[str],
    out: Path,
    seeds: Sequence[int],
    jobs: int,
    stop: threading.Event,
    told: Callable[[dict[int, list[dict[str, Any]]]], None] = lambda _: None,
) -> dict[str, Any] | None:
    """Run `elmo train` for every seed, `jobs` at a time; the report, if all came to their end. What is done is not done
    again.

    `arguments` are those of the command without OUT and the seed; `told` is given the log of every seed now and then.
    """
    waiting = [seed for seed in seeds if "scores" not in _record(out / f"seed-{seed}")]
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        while (waiting or running) and not stop.is_set():
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                running[seed] = _start(arguments, out / f"seed-{seed}", seed, jobs)
            time.sleep(0.2)
            for seed, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[seed]
                if process.returncode != 0:
                    last = (out / f"seed-{seed}" / "log.txt").read_text(encoding="utf-8").strip().split("\n")[-1]
                    raise ElmoError(f"seed {seed} ended with {process.returncode}: {last.removeprefix('elmo: ')}")
            told({seed: Run(out / f"seed-{seed}").metrics() for seed in seeds})
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    return None if stop.is_set() else write_report(out, seeds)


def write_report(out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Each seed's scores, and their mean and standard deviation (of a sample), by part and score."""
    runs = {seed: _record(out / f"seed-{seed}") for seed in seeds}
    each = {str(seed): run["scores"] for seed, run in runs.items()}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for part in runs[seeds[0]]["scores"]:
        found[part] = {
            name: spread([run["scores"][part].get(name, 0.0) for run in runs.values()])
            for name in runs[seeds[0]]["scores"][part]
        }
    logs = [Run(out / f"seed-{seed}").metrics() for seed in seeds]
    seconds = [sum(line["train_seconds"] + line["dev_seconds"] for line in log) for log in logs]
    report = {
        "seeds": list(seeds),
        "scores": found,
        "each": each,
        "epochs": spread([len(log) for log in logs]),
        "seconds": spread(seconds),
        "memory": max((line["memory"] or 0 for log in logs for line in log), default=0),
    }
    with replacing(out / REPORT) as path:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def _start(arguments: Sequence[str], out: Path, seed: int, jobs: int) -> subprocess.Popen[bytes]:
    """A seed's process, with its share of the cores: more threads than cores would wait for each other."""
    out.mkdir(parents=True, exist_ok=True)
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs))}
    command = [sys.executable, "-m", "elmo", "train", *arguments, str(out), "--set", f"train.seed={seed}", "--resume"]
    with (out / "log.txt").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=threads | dict(os.environ)
        )


def _record(folder: Path) -> dict[str, Any]:
    return Run(folder).record if (folder / "run.json").exists() else {}
