"""Child processes: results in order, and a line that says what to do when one is killed."""

import os
import signal

import pytest

from elmo.errors import ElmoError
from elmo.training.processes import ProcessPool, cores


def test_only_the_cores_that_this_process_may_use_are_counted() -> None:
    allowed = os.sched_getaffinity(0)
    assert cores() == len(allowed)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def square(number: int) -> int:
    return number * number


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_the_order_of_the_items(processes: int) -> None:
    with ProcessPool(processes) as pool:
        assert list(pool.map(square, iter(range(20)))) == [k * k for k in range(20)]


def test_one_process_is_this_one_and_reads_no_item_ahead() -> None:
    taken: list[int] = []
    with ProcessPool(1) as pool:
        results = pool.map(lambda item: (item, os.getpid()), (taken.append(k) or k for k in range(3)))
        assert next(results) == (0, os.getpid())
        assert taken == [0]


def test_a_killed_process_is_reported_with_what_to_do() -> None:
    message = "^a process was killed, possibly because memory ran out. Run the same command with fewer --jobs to"
    with ProcessPool(2) as pool, pytest.raises(ElmoError, match=message):
        list(pool.map(die, iter(range(3))))
