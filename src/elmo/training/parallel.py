"""RUNS IN PARALLEL: each in a process of its own, some at a time; FOLDER/log.txt contains what it printed."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from elmo.errors import ElmoError
from elmo.files import locked, write_error
from elmo.training.processes import behave_as_child, cores
from elmo.training.run import RECORD, Run

LOG = "log.txt"


@dataclass(frozen=True)
class Job:
    """A run that has no scores yet."""

    name: str  # for messages
    folder: Path
    train: Callable[[Path, bool, threading.Event], object]  # folder, resume, stop; sent to another process


def run_jobs(
    waiting: Sequence[Job],
    *,
    jobs: int = 1,
    threads: int | None = None,
    stop: threading.Event | None = None,
    progress: Callable[[], None] = lambda: None,
    keep_going: bool = False,
) -> bool:
    """Do all jobs, `jobs` at a time; return whether all are done, False if `stop` was set. They can be resumed.

    The first job that fails ends the others; with `keep_going` they are done first. `progress` is called repeatedly.
    """
    stop = stop or threading.Event()
    left, failed = list(waiting), []
    running: list[tuple[Job, BaseProcess]] = []
    try:
        while (left or running) and not stop.is_set():
            while left and len(running) < jobs:
                job = left.pop(0)
                running.append((job, _start(job, threads or _threads_each(jobs))))
            time.sleep(0.2)
            for job, process in list(running):
                if process.exitcode is not None:
                    running.remove((job, process))
                    error = _failure(job, process.exitcode)
                    if error is not None and not keep_going:
                        raise error
                    failed += [error] if error is not None else []
            progress()
    finally:
        for _, process in running:
            process.terminate()
        for _, process in running:
            process.join()
    if failed:
        others = f" (and {len(failed) - 1} other runs failed)" if len(failed) > 1 else ""
        raise ElmoError(f"{failed[0]}{others}")
    return not stop.is_set()


def _threads_each(jobs: int) -> int | None:
    """Return the number of threads per process, so that all together use every core once."""
    return None if "OMP_NUM_THREADS" in os.environ else max(1, cores() // jobs)


def _start(job: Job, threads: int | None) -> BaseProcess:
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(job.folder, error) from None
    # Not forked: threads may be running here, for example those of a progress bar.
    process = get_context("spawn").Process(target=_do, args=(job, threads), name=job.name)
    process.start()
    return process


def _do(job: Job, threads: int | None) -> None:
    """Do one job in its own process; everything that it prints goes to its log."""
    behave_as_child()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with (job.folder / LOG).open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with locked(job.folder):
            job.train(job.folder, (job.folder / RECORD).exists(), stop)
    except ElmoError as error:
        print(f"elmo: {error}", file=sys.stderr)
        sys.exit(2)


def _failure(job: Job, code: int) -> ElmoError | None:
    """Return the error of a job whose process failed, was killed or was interrupted."""
    log = job.folder / LOG
    if code == 0 and "scores" in Run.open(job.folder).record:
        return None
    if code == 0:
        what = "its process was interrupted. Run the same command again to continue"
    elif code < 0:
        what = f"its process was killed by signal {-code}, possibly because memory ran out. See {log}"
    else:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().split("\n") if log.exists() else [""]
        what = f"{lines[-1].removeprefix('elmo: ')} (its complete output is in {log})"
    return ElmoError(f"{job.name}: {what}")
