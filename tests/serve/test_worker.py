"""The worker: jobs of one key in one call, limits, failures, and the end."""

import threading
from concurrent.futures import wait
from typing import Any

import pytest

from elmo.serve.errors import RefusedError
from elmo.serve.worker import Job, Worker


class Blocked:
    """A worker that is busy with its first job until it is released; it notes the items of every call."""

    def __init__(self, **settings: int) -> None:
        self.calls: list[list[Any]] = []
        self.begun, self.release = threading.Event(), threading.Event()
        self.worker = Worker(**{"max_waiting": 10, "batch_tokens": 100, **settings})
        self.worker.submit(Job("first", [0], 1, self._block))
        assert self.begun.wait(10)

    def _block(self, items: list[Any]) -> list[Any]:
        self.begun.set()
        assert self.release.wait(10)
        return items

    def compute(self, items: list[Any]) -> list[Any]:
        self.calls.append(items)
        if "bad" in items:
            raise ValueError("bad")
        return [item * 2 for item in items]

    def job(self, key: str, items: list[Any], tokens: int = 1) -> Job:
        return Job(key, items, tokens, self.compute)


def test_jobs_of_a_key_that_wait_are_one_call_and_each_gets_its_own_results() -> None:
    blocked = Blocked()
    keys = {"a": [1, 2], "b": [3], "c": [4]}
    futures = [blocked.worker.submit(blocked.job(key, keys[key])) for key in "abaca"]
    blocked.release.set()
    assert [future.result(10) for future in futures] == [[2, 4], [6], [2, 4], [8], [2, 4]]
    assert blocked.calls == [[1, 2, 1, 2, 1, 2], [3], [4]]
    blocked.worker.close()


def test_a_batch_has_at_most_the_budget_but_one_job_may_have_more() -> None:
    blocked = Blocked(batch_tokens=10)
    for number, tokens in enumerate([6, 5, 4, 30, 1]):
        blocked.worker.submit(blocked.job("a", [number], tokens))
    blocked.release.set()
    blocked.worker.submit(blocked.job("b", [9])).result(10)
    assert blocked.calls == [[0, 2], [1, 4], [3], [9]]
    blocked.worker.close()


def test_a_job_that_fails_spoils_no_other() -> None:
    blocked = Blocked()
    good, bad, other = (blocked.worker.submit(blocked.job("a", [item])) for item in ("x", "bad", "y"))
    blocked.release.set()
    assert (good.result(10), other.result(10)) == (["xx"], ["yy"])
    with pytest.raises(ValueError, match="bad"):
        bad.result(10)
    blocked.worker.close()


def test_too_many_waiting_jobs_are_refused_and_given_up_ones_not_computed() -> None:
    blocked = Blocked(max_waiting=2)
    given_up, kept = (blocked.worker.submit(blocked.job("a", [number])) for number in (1, 2))
    with pytest.raises(RefusedError, match="2 requests waiting, as many as allowed; try again") as refused:
        blocked.worker.submit(blocked.job("a", [3]))
    assert refused.value.status == 429
    assert given_up.cancel()
    instead = blocked.worker.submit(blocked.job("a", [4]))  # there is room again
    blocked.release.set()
    assert (kept.result(10), instead.result(10)) == ([4], [8])
    assert blocked.calls == [[2, 4]]
    blocked.worker.close()


def test_closing_finishes_the_current_batch_and_refuses_the_rest() -> None:
    blocked = Blocked()
    waiting = blocked.worker.submit(blocked.job("a", [1]))
    closing = threading.Thread(target=blocked.worker.close)
    closing.start()
    wait([waiting], 10)
    with pytest.raises(RefusedError, match="the server is stopping"):
        waiting.result(0)
    assert closing.is_alive()  # the first job is still being computed
    blocked.release.set()
    closing.join(10)
    with pytest.raises(RefusedError, match="the server is stopping"):
        blocked.worker.submit(blocked.job("a", [2]))
    assert blocked.calls == []
    blocked.worker.open()  # an application can be started again
    assert blocked.worker.submit(blocked.job("a", [3])).result(10) == [6]
    blocked.worker.close()
