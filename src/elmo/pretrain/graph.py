"""A FORWARD AND BACKWARD PASS AS ONE LAUNCH: some 700 kernels per step, recorded once and replayed (CUDA graphs).

The kernels of a small model take less time than Python needs to launch them one by one. A graph has fixed sizes and
reads fixed memory, so there is one for each number of distinct words; `Batches(round_to=…)` makes these numbers few.
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
MAX_GRAPHS = 32  # each has gradients of its own


def can_be_recorded(bilm: BiLM) -> bool:
    """Whether a pass can be recorded: it never waits for the device if Triton's kernels compute it."""
    return triton_computes(next(bilm.lstms.parameters())) and not bilm.reference


class RecordedPasses:
    """Runs passes by replaying a recording of the same sizes; new sizes are recorded first."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[torch.Size, ...], _Graph] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, one_pass: Pass, batch: Batch, state: State) -> tuple[Tensor, State, TableRows]:
        """Run a pass, the same one in every call; its results are overwritten by the next call."""
        sizes = tuple(value.shape for value in vars(batch).values() if isinstance(value, Tensor))
        with torch.cuda.device_of(state.h):  # type: ignore[no-untyped-call]
            if sizes not in self._graphs:
                if len(self._graphs) >= MAX_GRAPHS:
                    return one_pass(batch.to(state.h.device), state)
                random_numbers = torch.cuda.get_rng_state()
                if not self._graphs:
                    _warm_up(one_pass, batch, state)
                self._graphs[sizes] = _Graph(one_pass, batch, state, self._memory)
                torch.cuda.set_rng_state(random_numbers)
            return self._graphs[sizes].replay(batch, state)


def _warm_up(one_pass: Pass, batch: Batch, state: State) -> None:
    """Run a pass once without recording: it compiles kernels and starts libraries, which cannot be recorded."""
    side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        one_pass(batch.to(state.h.device), state)
    torch.cuda.current_stream().wait_stream(side_stream)
    one_pass.bilm.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()  # the memory of that stream would otherwise stay reserved


class _Graph:
    def __init__(self, one_pass: Pass, batch: Batch, state: State, memory: Any) -> None:
        self._batch, self._state = batch.to(state.h.device, copy=True), State(state.h.clone(), state.c.clone())
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile, as the one that prepares batches does.
        with torch.cuda.graph(self._graph, memory, capture_error_mode="thread_local"):
            self._losses, self._after, self._tables = one_pass(self._batch, self._state)
        self._gradients: list[tuple[nn.Parameter, Tensor]] = [
            (parameter, parameter.grad) for parameter in one_pass.bilm.parameters() if parameter.grad is not None
        ]

    def replay(self, batch: Batch, state: State) -> tuple[Tensor, State, TableRows]:
        self._batch.copy_(batch)
        for own, new in zip(self._state, state, strict=True):
            own.copy_(new)
        self._graph.replay()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return self._losses, self._after, TableRows(batch.filled, self._tables.taken)
