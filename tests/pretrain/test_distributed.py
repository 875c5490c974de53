"""What processes exchange, with two real ones: sums, rows of tables, tensors of different lengths; and one alone."""

import os
import socket
from multiprocessing.queues import Queue
from typing import Any

import numpy as np
import pytest
import torch

from elmo.pretrain.distributed import World, joined
from elmo_processes import CONTEXT

ROWS = [[7, 2, 2, 5], [5, 0]]  # of a table, by process; one occurs twice in a process, one in both
VALUES = [np.arange(12.0).reshape(4, 3), 100 + np.arange(6.0).reshape(2, 3)]


def exchange(rank: int, port: int, results: "Queue[tuple[int, dict[str, Any]]]") -> None:
    torch.set_num_threads(1)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", **address})
    with joined() as world:
        vector, matrix = torch.full((3,), float(rank + 1)), torch.full((2, 2), 10.0 * (rank + 1))
        world.sum([vector, matrix])
        rows, sums = world.sum_rows(torch.tensor(ROWS[rank]), torch.tensor(VALUES[rank], dtype=torch.float32))
        gathered = world.gather(torch.arange(2 * rank + 1) + 10 * rank)
        device = torch.device("cpu")
        found = {
            "world": (world.rank, world.size),
            "sum": (vector.tolist(), matrix.tolist()),
            "rows": (rows.tolist(), sums.tolist()),
            "gathered": [one.tolist() for one in gathered],
            "any": [world.any(flag, device) for flag in (False, rank == 1, True)],
        }
        world.barrier()
    results.put((rank, found))


def test_two_processes_have_the_same_sums() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = CONTEXT.Queue()
    processes = [CONTEXT.Process(target=exchange, args=(rank, port, results)) for rank in range(2)]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    table = np.zeros((8, 3))
    for rows, values in zip(ROWS, VALUES, strict=True):
        np.add.at(table, rows, values)
    for rank in range(2):
        assert found[rank]["world"] == (rank, 2)
        assert found[rank]["sum"] == ([3.0] * 3, [[30.0] * 2] * 2)
        assert found[rank]["rows"] == ([0, 2, 5, 7], table[[0, 2, 5, 7]].tolist())
        assert found[rank]["gathered"] == [[0], [10, 11, 12]]
        assert found[rank]["any"] == [False, True, True]


def test_one_process_exchanges_nothing() -> None:
    with joined() as world:
        assert world == World(0, 1)
    tensor = torch.tensor([1.0, 2.0])
    world.sum([tensor])
    assert tensor.tolist() == [1.0, 2.0]
    assert world.gather(tensor) == [tensor]
    assert [world.any(flag, torch.device("cpu")) for flag in (False, True)] == [False, True]
    world.barrier()
    rows, sums = world.sum_rows(torch.tensor(ROWS[0]), torch.tensor(VALUES[0]))
    assert rows.tolist() == [2, 5, 7]
    assert sums.tolist() == [(VALUES[0][1] + VALUES[0][2]).tolist(), VALUES[0][3].tolist(), VALUES[0][0].tolist()]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_rows_of_a_batch_are_divided(size: int) -> None:
    divided = [list(World(rank, size).rows(8)) for rank in range(size)]
    assert [row for rows in divided for row in rows] == list(range(8))
    assert {len(rows) for rows in divided} == {8 // size}
