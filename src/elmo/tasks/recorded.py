"""A TRAINING STEP AS ONE LAUNCH: forward and backward of a task's model, recorded once and replayed (CUDA graphs).

The kernels of a step are hundreds and short: a GPU waits for Python to launch them most of the time. A graph has fixed
sizes and reads fixed memory, so there is one for each combination of shapes; `PreparedModel.prepare(recorded=True)`
rounds lengths up, which makes them few.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.model.device import pinned
from elmo.tasks.examples import Example
from elmo.tasks.prepared import on_device, tensors
from elmo.tasks.task import PreparedModel, TaskModel

MAX_GRAPHS = 64

Gradients = list[tuple[nn.Parameter, Tensor]]
"""The parameters that a step computes gradients of, and the memory of these, which all graphs share."""


class RecordedSteps:
    """Computes losses and gradients by replaying a recording of the same shapes; new shapes are recorded first."""

    def __init__(self, model: PreparedModel) -> None:
        self._model = model
        self._recordings: dict[tuple[torch.Size, ...], _Recording] = {}
        self._gradients: Gradients = []
        self._memory = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None

    def __call__(self, examples: Sequence[Example]) -> Tensor:
        """Compute the loss of a batch, detached, and the gradients of all parameters."""
        batch = self._model.prepare(examples, recorded=True)
        shapes = tuple(tensor.shape for tensor in tensors(batch))
        with torch.cuda.device_of(next(self._model.parameters())):  # type: ignore[no-untyped-call]
            if shapes not in self._recordings:
                given = on_device(batch, self._model.device)
                if len(self._recordings) >= MAX_GRAPHS:
                    return loss_and_gradients(self._model, given)
                self._recordings[shapes] = self._record(given)
            loss = self._recordings[shapes].replay(batch)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return loss

    def _record(self, given: Any) -> "_Recording":
        """Record a step; the random numbers that it draws are drawn again by its replay."""
        device = self._model.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            if not self._recordings:
                self._gradients = _first_step(self._model, given)
            return _Recording(self._model, given, self._gradients, self._memory)


def loss_and_gradients(model: PreparedModel, batch: Any) -> Tensor:
    """Compute the loss of a batch on the device, and its gradients."""
    return with_gradients(model, model.loss_of(batch))


def with_gradients(model: TaskModel, loss: Tensor) -> Tensor:
    """Compute the gradients of a loss and of the penalty on the mixes; return the loss, detached."""
    torch.autograd.backward(loss + model.inputs.penalty())
    return loss.detach()


def _first_step(model: PreparedModel, given: Any) -> Gradients:
    """Compute a step without recording, and return memory for its gradients.

    On a GPU on another stream, as recordings are made: it starts libraries there, which cannot be recorded.
    """
    if model.device.type == "cuda":
        side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            loss_and_gradients(model, given)
        torch.cuda.current_stream().wait_stream(side_stream)
    else:
        loss_and_gradients(model, given)
    found = [(parameter, torch.empty_like(parameter)) for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad(set_to_none=True)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # the memory of that stream would otherwise stay reserved
    return found


class _Recording:
    """A step for batches of the same shapes. On a CPU nothing is recorded, only computed."""

    def __init__(self, model: PreparedModel, given: Any, gradients: Gradients, memory: Any) -> None:
        self._given = list(tensors(given))
        self._gradients = [gradient for _, gradient in gradients]
        self._step: Callable[[], Tensor] = lambda: self._compute(model, given, gradients)
        if model.device.type == "cuda":
            self._step()  # kernels for these shapes are compiled, which cannot be recorded
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(graph, memory, capture_error_mode="thread_local"):
                loss = self._step()

            def replay() -> Tensor:
                graph.replay()
                return loss.clone()

            self._step = replay

    def replay(self, batch: Any) -> Tensor:
        """Compute the step for another batch, and return its loss."""
        for own, new in zip(self._given, tensors(batch), strict=True):
            own.copy_(pinned(new) if own.is_cuda else new, non_blocking=True)
        return self._step()

    def _compute(self, model: PreparedModel, given: Any, gradients: Gradients) -> Tensor:
        torch._foreach_zero_(self._gradients)
        for parameter, gradient in gradients:
            parameter.grad = gradient  # to which the backward pass adds
        return loss_and_gradients(model, given)
