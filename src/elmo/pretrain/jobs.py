"""WORK ─▶ RESULTS, in order, in several processes or in this one."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

from elmo.errors import ElmoError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Jobs:
    """Processes that work until the `with` ends; no process at all where one is asked for."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        # Not forked: threads may be running here, those of a progress bar for one.
        context = get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, _start) if processes > 1 else None

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Item], Result], items: Iterator[Item]) -> Iterator[Result]:
        """The function's results, in the order of the items, of which a few are taken ahead."""
        if self._pool is None:
            yield from map(function, items)
            return
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(function, item))
                if len(waiting) > 2 * self.processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise ElmoError(
                "a process was killed, perhaps for want of memory; the same command, with fewer --jobs, goes on there"
            ) from None


def _start() -> None:
    """In each process: Ctrl-C is the parent's to answer, and none outlives it, not even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
