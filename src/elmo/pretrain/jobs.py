"""WORK ─▶ RESULTS, in order, in several processes or in this one."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from elmo.errors import ElmoError
from elmo.training.processes import behave_as_child

Item = TypeVar("Item")
Result = TypeVar("Result")


class Jobs:
    """Processes that work until the `with` ends; no process at all where one is asked for."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        # Not forked: threads may be running here, those of a progress bar for one.
        context = get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, behave_as_child) if processes > 1 else None

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
                "a process was killed, perhaps for lack of memory; run the same command with fewer --jobs to continue"
            ) from None
