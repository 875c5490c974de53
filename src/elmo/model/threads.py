"""COARSE THREADS for a CPU: independent pieces of work run at once, each on one thread.

PyTorch's own threads share every single operation, and wait for each other after it. An LSTM is a long row of small
operations: where another process uses a core, each of them ends in waiting. Here a thread takes a whole piece, such as
one direction of a batch, and no operation waits.

There are as many threads as PyTorch would use (`torch.get_num_threads()`). The settings of the program's own threads
stay as they are.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Workers:
    """The threads, started when they are first needed."""

    def __init__(self) -> None:
        self.pools: dict[int, ThreadPoolExecutor] = {}  # by the number of threads, which a program may change
        self.starting = threading.Lock()
        self.of_thread = threading.local()

    def get(self, size: int) -> ThreadPoolExecutor:
        """Return `size` threads, each of which computes alone."""
        with self.starting:
            if size not in self.pools:
                starter = threading.Thread(target=self._start, args=(size,))
                starter.start()
                starter.join()
            return self.pools[size]

    def _start(self, size: int) -> None:
        # `set_num_threads` sets the thread that calls it, and what threads get that use PyTorch later. The second is
        # none of our business: this thread, which is new, reads what it was, and sets it again.
        before = torch.get_num_threads()
        all_started = threading.Barrier(size + 1)

        def begin() -> None:
            torch.get_num_threads()  # a new thread takes the common setting with its first call: now, not later
            torch.set_num_threads(1)
            self.of_thread.pool, self.of_thread.size = pool, size
            all_started.wait()

        pool = ThreadPoolExecutor(size, "elmo", begin)
        for _ in range(size):
            pool.submit(int)
        all_started.wait()
        torch.set_num_threads(before)
        self.pools[size] = pool


_workers = _Workers()


def _forget_threads() -> None:
    """Forget the threads in a process that was forked: they have stayed in the other one."""
    global _workers
    _workers = _Workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def available() -> int:
    """Return the number of threads that `each` uses when it is called here."""
    inside: int | None = getattr(_workers.of_thread, "size", None)
    if inside is not None:
        return inside
    return torch.get_num_threads() if _can_compute_alone() else 1


def each(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return `function` of each item, in order, computed on several threads in inference mode.

    It may be called inside itself. With one thread, the calling thread computes everything.
    """
    inside: ThreadPoolExecutor | None = getattr(_workers.of_thread, "pool", None)
    if available() == 1:
        with torch.inference_mode():
            return [function(item) for item in items]
    if inside is not None:
        # The first is computed here; of the others, those that no thread has begun by then are computed here as well.
        # So a thread only ever waits for work that is going on, and some thread can always continue.
        work = [function]
        others = [inside.submit(_call_first, work, item) for item in items[1:]]
        try:
            return [
                _call(function, item) if future is None or future.cancel() else future.result()
                for item, future in zip(items, [None, *others], strict=True)
            ]
        finally:
            work.clear()  # what was cancelled stays in the queue for a while: without the tensors of its function
    pool = _workers.get(torch.get_num_threads())
    futures: list[Future[Result]] = [pool.submit(_call, function, item) for item in items]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:  # after an error or Ctrl-C
            future.cancel()


@torch.inference_mode()
def _call(function: Callable[[Item], Result], item: Item) -> Result:
    return function(item)


def _call_first(work: list[Callable[[Item], Result]], item: Item) -> Result:
    return _call(work[0], item)


@cache
def _can_compute_alone() -> bool:
    """Whether the number of threads is a setting of each thread: so it is with OpenMP, which official builds use."""
    return "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()
