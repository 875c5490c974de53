"""JOBS ─▶ BATCHES: one thread computes. The jobs that arrive meanwhile wait, and are gathered into the next batch.

Nobody waits for a batch to fill: a single request is computed at once, and under load batches grow by themselves.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from elmo.messages import counted
from elmo.serve.errors import RefusedError

Compute = Callable[[list[Any]], Sequence[Any]]  # items ─▶ a result for each


@dataclass(frozen=True, eq=False)
class Job:
    """Items to compute, and the place of their results."""

    key: Hashable  # jobs with the same key can be computed in one call
    items: list[Any]
    tokens: int
    compute: Compute
    results: "Future[list[Any]]" = field(default_factory=Future)


class Worker:
    """A thread that computes jobs in the order of their arrival, several in one call if they have the same key."""

    def __init__(
        self, max_waiting: int, batch_tokens: int, observe: Callable[[Sequence[Job]], None] = lambda batch: None
    ) -> None:
        self.max_waiting = max_waiting
        self.batch_tokens = batch_tokens
        self.observe = observe  # is told every batch
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None  # started with the first job

    def __len__(self) -> int:
        """Return the number of jobs that wait."""
        return len(self._waiting)

    def submit(self, job: Job) -> "Future[list[Any]]":
        """Let a job wait for its turn; refuse it if too many wait already."""
        with self._changed:
            if self._closed:
                raise RefusedError(503, "the server is stopping")
            if len(self._waiting) >= self.max_waiting:  # those that were given up do not count
                self._waiting = deque(job for job in self._waiting if not job.results.cancelled())
            if len(self._waiting) >= self.max_waiting:
                number = counted(len(self._waiting), "request")
                raise RefusedError(429, f"{number} waiting, as many as allowed; try again", {"Retry-After": "1"})
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="elmo-worker", daemon=True)
                self._thread.start()
            self._changed.notify()
        return job.results

    def open(self) -> None:
        """Accept jobs again after `close`."""
        with self._changed:
            self._closed = False

    def close(self) -> None:
        """Refuse the jobs that wait, and stop after the current batch."""
        with self._changed:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
            self._changed.notify()
        for job in left:
            if job.results.set_running_or_notify_cancel():
                job.results.set_exception(RefusedError(503, "the server is stopping"))
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while batch := self._next():
            batch = [job for job in batch if job.results.set_running_or_notify_cancel()]  # a client may have given up
            if batch:
                self.observe(batch)
                compute(batch)

    def _next(self) -> list[Job]:
        """Wait for a job; return it with all others of its key that fit into the batch. Empty: the worker is closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return []
            first = self._waiting.popleft()
            batch, room, others = [first], self.batch_tokens - first.tokens, deque[Job]()
            for job in self._waiting:
                if job.key == first.key and job.tokens <= room:
                    batch.append(job)
                    room -= job.tokens
                else:
                    others.append(job)
            self._waiting = others
        return batch


def compute(batch: Sequence[Job]) -> None:
    """Compute jobs of one key in one call; if it fails, each by itself, so that one bad job spoils no other."""
    try:
        results = list(batch[0].compute([item for job in batch for item in job.items]))
    except Exception as error:
        if len(batch) == 1:
            batch[0].results.set_exception(error)
        else:
            for job in batch:
                compute([job])
        return
    start = 0
    for job in batch:
        job.results.set_result(results[start : start + len(job.items)])
        start += len(job.items)
