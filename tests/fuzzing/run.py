"""MANY CASES OF A READER ─▶ FINDINGS, in a child process with limits on time and memory; a new one after a crash."""

import faulthandler
import gc
import logging
import multiprocessing
import resource
import signal
import time
import traceback
import warnings
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fuzzing.cases import Reader, Sandbox

SECONDS = 20.0  # of CPU time for a case
WAITING = 600.0  # seconds for a case that waits, or for a machine that is busy
MEMORY = 512 << 20  # bytes that a case may take, besides what the process has when it begins
EXPECTED = 100  # findings after which a reader is given up


@dataclass
class Result:
    """What came out of the cases of a reader."""

    reader: str
    cases: int = 0  # the number of the first case that was not run
    seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, 0)  # seconds of CPU time, and the number of the case
    grown: int = 0  # bytes: the peak memory of the process beyond what it had after the valid case
    findings: dict[int, str] = field(default_factory=dict)  # case ─▶ what happened


def run(reader: Reader, first: int, last: int, seed: int) -> Result:
    """Run the cases from `first` up to and without `last`; end earlier at a KeyboardInterrupt."""
    context = multiprocessing.get_context("fork")
    result = Result(reader.name)
    started = time.monotonic()
    while first < last and len(result.findings) < EXPECTED:
        ours, theirs = context.Pipe(duplex=False)
        at = context.Value("q", first)
        child = context.Process(target=_child, args=(reader, first, last, seed, theirs, at))
        child.start()
        theirs.close()
        try:
            while True:
                _add(result, ours.recv())
        except EOFError:
            child.join()
        except KeyboardInterrupt:
            child.terminate()
            child.join()
            first = at.value
            break
        first = last
        if child.exitcode:
            result.findings[at.value] = f"the process ended: {_why(child.exitcode)}"
            first = at.value + 1
    result.cases = first
    result.seconds = time.monotonic() - started
    return result


def _why(exitcode: int) -> str:
    if exitcode == -signal.SIGPROF:
        return f"more than {SECONDS:g} s of CPU time"
    return f"signal {-exitcode}" if exitcode < 0 else f"more than {WAITING:g} s"


def _add(result: Result, message: tuple[str, Any]) -> None:
    kind, value = message
    if kind == "finding":
        result.findings[value[0]] = value[1]
    elif kind == "slowest":
        result.slowest = max(result.slowest, value)
    else:
        result.grown = max(result.grown, value)


def _child(reader: Reader, first: int, last: int, seed: int, pipe: Connection, at: Any) -> None:
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    slowest = 0.0
    with TemporaryDirectory() as temporary:
        sandbox = Sandbox(Path(temporary) / "sandbox")
        sandbox.outcome(reader, seed, 0)  # loads what is loaded late
        gc.collect()  # what is freed later would be more for a case than its limit
        before = _peak()
        resource.setrlimit(resource.RLIMIT_AS, (_size() + MEMORY, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for case in range(first, last):
            at.value = case
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process, whatever code runs
            faulthandler.dump_traceback_later(WAITING, exit=True)
            began = time.process_time()
            try:
                found = sandbox.outcome(reader, seed, case)
            except Exception as error:  # anything else than an ElmoError is a finding
                place = traceback.extract_tb(error.__traceback__)[-1]
                found = f"{type(error).__name__}: {str(error)[:200]} ({place.filename}:{place.lineno})"
            took = time.process_time() - began
            if found is not None:
                pipe.send(("finding", (case, found)))
            if took > slowest:
                slowest = took
                pipe.send(("slowest", (took, case)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        pipe.send(("grown", _peak() - before))


def _peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _size() -> int:
    """Return the addresses in use by this process, in bytes: what RLIMIT_AS limits."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
