"""A TRAINING STEP AS ONE LAUNCH: forward and backward of a task's model, recorded once and replayed (CUDA graphs).

The kernels of a step are hundreds and short: a GPU waits for Python to launch them most of the time. A graph has fixed
sizes and reads fixed memory, so there is one for each combination of shapes; `PreparedModel.prepare(recorded=True)`
rounds lengths up, which makes them few.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.model.device import pinned
from elmo.tasks.examples import Example
from elmo.tasks.prepared import on_device, tensors
from elmo.tasks.task import PreparedModel

MAX_GRAPHS = 64  # each has gradients of its own


class RecordedSteps:
    """Computes losses and gradients by replaying a recording of the same shapes; new shapes are recorded."""

    def __init__(self, model: PreparedModel) -> None:
        self._model = model
        self._graphs: dict[tuple[torch.Size, ...], _Graph] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, examples: Sequence[Example]) -> Tensor:
        """Compute the loss of a batch, without its graph, and the gradients of all parameters."""
        batch = self._model.prepare(examples, recorded=True)
        shapes = tuple(tensor.shape for tensor in tensors(batch))
        with torch.cuda.device_of(next(self._model.parameters())):  # type: ignore[no-untyped-call]
            if shapes not in self._graphs:
                given = on_device(batch, self._model.device)
                if len(self._graphs) >= MAX_GRAPHS:
                    return loss_and_gradients(self._model, given)
                random_numbers = torch.cuda.get_rng_state()
                if not self._graphs:
                    _start_libraries(self._model, given)
                self._graphs[shapes] = _Graph(self._model, given, self._memory)
                torch.cuda.set_rng_state(random_numbers)
            return self._graphs[shapes].replay(batch)


def loss_and_gradients(model: PreparedModel, batch: Any) -> Tensor:
    """Compute the loss of a batch on the device, and the gradients of it and of the penalty on the mixes."""
    loss = model.loss_of(batch)
    torch.autograd.backward(loss + model.inputs.penalty())
    return loss.detach()


def _start_libraries(model: PreparedModel, given: Any) -> None:
    """Compute a step on another stream than the usual one, as recordings do: libraries start, which is not recorded."""
    side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        loss_and_gradients(model, given)
    torch.cuda.current_stream().wait_stream(side_stream)
    model.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()  # the memory of that stream would otherwise stay reserved


class _Graph:
    def __init__(self, model: PreparedModel, given: Any, memory: Any) -> None:
        self._given = list(tensors(given))
        loss_and_gradients(model, given)  # kernels for these shapes are compiled, which is not recorded
        model.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile.
        with torch.cuda.graph(self._graph, memory, capture_error_mode="thread_local"):
            self._loss = loss_and_gradients(model, given)
        self._gradients: list[tuple[nn.Parameter, Tensor]] = [
            (parameter, parameter.grad) for parameter in model.parameters() if parameter.grad is not None
        ]

    def replay(self, batch: Any) -> Tensor:
        for own, new in zip(self._given, tensors(batch), strict=True):
            own.copy_(pinned(new), non_blocking=True)
        self._graph.replay()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return self._loss.clone()
