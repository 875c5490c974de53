"""FORWARD AND BACK AS ONE LAUNCH: some 700 kernels a step, recorded once and replayed (CUDA graphs).

A small model's kernels take less time than Python needs to launch them one by one. A graph is of fixed sizes and reads
fixed memory, so there is one for each number of distinct words, of which `Batches(round_to=…)` leaves a few.
"""

from typing import Any

import torch
from torch import Tensor, nn

from elmo.model.bilm import BiLM
from elmo.model.kernels import triton_computes
from elmo.model.lstm import State
from elmo.pretrain.batch import Batch
from elmo.pretrain.step import Pass, TableRows

ROUND_TO = 1024  # distinct words
MOST = 32  # graphs: each has gradients of its own


def can_be_recorded(bilm: BiLM) -> bool:
    """Whether a pass never waits for the device: where Triton's kernels compute it."""
    return triton_computes(next(bilm.lstms.parameters())) and not bilm.reference


class Recorded:
    """Replays passes of the sizes it has seen, and records new ones."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[torch.Size, ...], _Graph] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, once: Pass, batch: Batch, state: State) -> tuple[Tensor, State, TableRows]:
        """What the pass computes. It is the same pass every time; its results hold until the next."""
        sizes = tuple(value.shape for value in vars(batch).values() if isinstance(value, Tensor))
        with torch.cuda.device_of(state.h):  # type: ignore[no-untyped-call]
            if sizes not in self._graphs:
                if len(self._graphs) >= MOST:
                    return once(batch.to(state.h.device), state)
                random_numbers = torch.cuda.get_rng_state()
                if not self._graphs:
                    _run_aside(once, batch, state)
                self._graphs[sizes] = _Graph(once, batch, state, self._memory)
                torch.cuda.set_rng_state(random_numbers)
            return self._graphs[sizes].replay(batch, state)


def _run_aside(once: Pass, batch: Batch, state: State) -> None:
    """Run for once as it is: kernels are built and libraries wake up, which cannot be recorded."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        once(batch.to(state.h.device), state)
    torch.cuda.current_stream().wait_stream(aside)
    once.bilm.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()  # what it claimed belongs to its stream, and would be claimed twice


class _Graph:
    def __init__(self, once: Pass, batch: Batch, state: State, memory: Any) -> None:
        self._batch, self._state = batch.to(state.h.device, copy=True), State(state.h.clone(), state.c.clone())
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may go on using the device: the one that makes batches does.
        with torch.cuda.graph(self._graph, memory, capture_error_mode="thread_local"):
            self._losses, self._after, self._tables = once(self._batch, self._state)
        self._gradients: list[tuple[nn.Parameter, Tensor]] = [
            (parameter, parameter.grad) for parameter in once.bilm.parameters() if parameter.grad is not None
        ]

    def replay(self, batch: Batch, state: State) -> tuple[Tensor, State, TableRows]:
        self._batch.copy_(batch)
        for own, new in zip(self._state, state, strict=True):
            own.copy_(new)
        self._graph.replay()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return self._losses, self._after, TableRows(batch.filled, self._tables.taken)
