"""A layer of `HighwayLSTM`, computed faster: backpropagation through time, written out.

Differences from the reference with PyTorch's autograd, and why:
- The input's part of all gates is one product before the first step, and the gradient of each weight is one product
  after the last, over all tokens: only h U is left to a step.
- The gates are activated in place, and the backward pass overwrites them with their gradients. Of each token, only the
  six blocks, the cell and the output are kept.
- Reading backwards is the same loop over the packed steps in the other order; nothing is reversed in memory.
- A step is a product and a few operations on a CPU (below), and one Triton kernel on a GPU (`highway_lstm_gpu`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from elmo.model.device import to_device, without_autocast
from elmo.model.kernels import exact_backward, triton_computes


class Step(NamedTuple):
    """The packed rows of one step, and those of the step that was read before it."""

    start: int  # the first row
    active: int  # number of rows
    before: int  # the first row of the step before
    known: int  # the number of sequences that have a state from the step before; the others begin here


@dataclass(frozen=True)
class Steps:
    """All steps of a direction, in the order of reading; on a GPU the kernels read them from `table`."""

    each: list[Step]
    table: Tensor  # (T + 1, 4) of int32; the last row is zeros: no step


@dataclass(frozen=True)
class Reading:
    """The order in which packed tokens are read, in both directions."""

    rows: list[int]  # (T,) number of sequences active at each step
    forwards: Steps
    backwards: Steps
    earlier: Tensor  # (N − rows[0],) for each token that is not the first of its sequence, the row of the one before

    @classmethod
    def of(cls, rows: Sequence[int], device: torch.device) -> "Reading":
        """Describe the reading of packed sequences, `rows[t]` of them at step t."""
        rows = list(rows)
        starts = list(accumulate(rows, initial=0))
        forwards = [Step(0, rows[0], 0, 0)]
        forwards += [Step(starts[t], rows[t], starts[t - 1], rows[t]) for t in range(1, len(rows))]
        last = len(rows) - 1
        backwards = [Step(starts[last], rows[last], 0, 0)]
        backwards += [Step(starts[t], rows[t], starts[t + 1], rows[t + 1]) for t in reversed(range(last))]
        counts = np.array(rows)
        earlier = np.arange(rows[0], starts[-1]) - np.repeat(counts[:-1], counts[1:])
        tables = np.zeros((2, len(rows) + 1, len(Step._fields)), dtype=np.int32)
        tables[:, :-1] = forwards, backwards
        one, other = to_device(torch.from_numpy(tables), device)
        return cls(rows, Steps(forwards, one), Steps(backwards, other), to_device(torch.from_numpy(earlier), device))

    def steps(self, backwards: bool) -> Steps:
        """Return the steps of a direction."""
        return self.backwards if backwards else self.forwards


class LayerMemory(NamedTuple):
    """What a layer computes: after the backward pass, `gates` has the gradients of the gates."""

    gates: Tensor  # (N, 6H)
    cells: Tensor  # (N, H)
    outputs: Tensor  # (N, H)


def highway_lstm(
    x: Tensor,  # (N, I) packed
    weight_input: Tensor,  # (I, 6H)
    weight_hidden: Tensor,  # (H, 5H)
    bias: Tensor,  # (6H,)
    mask: Tensor,  # (B, H) recurrent dropout
    *,
    reading: Reading,
    backwards: bool,
) -> Tensor:
    """Return the outputs of a layer, (N, H)."""
    with without_autocast(x), torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        x = x.to(weight_input.dtype)
        outputs: Tensor = _HighwayLSTM.apply(  # type: ignore[no-untyped-call]
            x, weight_input, weight_hidden, bias, mask, reading, backwards
        )
    return outputs


class _HighwayLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight_input: Tensor,
        weight_hidden: Tensor,
        bias: Tensor,
        mask: Tensor,
        reading: Reading,
        backwards: bool,
    ) -> Tensor:
        size = weight_hidden.shape[0]
        memory = LayerMemory(*(x.new_empty(len(x), width) for width in (6 * size, size, size)))
        layer_forward(x, weight_input, weight_hidden, bias, mask, memory, reading.steps(backwards))
        ctx.save_for_backward(x, weight_input, weight_hidden, mask, *memory)
        ctx.settings = reading, backwards
        return memory.outputs

    @staticmethod
    @exact_backward
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_input, weight_hidden, mask, *kept = ctx.saved_tensors
        reading, backwards = ctx.settings
        memory = LayerMemory(*kept)
        layer_backward(d_outputs.contiguous(), weight_hidden, mask, memory, reading.steps(backwards))
        increment_version(memory.gates)  # refuse a second backward pass: the gates are overwritten
        d_x = torch.mm(memory.gates, weight_input.t()) if ctx.needs_input_grad[0] else None
        return d_x, *weight_gradients(x, memory, reading.rows[0], reading.earlier, backwards), None, None, None


def layer_forward(
    x: Tensor,
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias: Tensor,
    mask: Tensor,
    memory: LayerMemory,
    steps: Steps,
) -> None:
    """Compute everything in `memory`."""
    torch.addmm(bias, x, weight_input, out=memory.gates)
    forward_step, _ = _kernels(x)
    for number in range(len(steps.each)):
        forward_step(*memory, weight_hidden, mask, steps, number)


def layer_backward(d_outputs: Tensor, weight_hidden: Tensor, mask: Tensor, memory: LayerMemory, steps: Steps) -> None:
    """Replace the gates in `memory` by their gradients."""
    gates, cells, _ = memory
    d_cell = cells.new_zeros(max(step.active for step in steps.each), cells.shape[1])  # of the cell before
    _, backward_step = _kernels(cells)
    for number in reversed(range(len(steps.each))):
        backward_step(gates, cells, d_outputs, d_cell, weight_hidden, mask, steps, number)


def weight_gradients(
    x: Tensor, memory: LayerMemory, first: int, earlier: Tensor, backwards: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of weight_input, weight_hidden and bias; `first` is the number of sequences."""
    d_gates, cells, outputs = memory
    d_recurrent = d_gates[:, : 5 * cells.shape[1]]
    if backwards:
        before, of = outputs[first:], d_recurrent.index_select(0, earlier)
    else:
        before, of = outputs.index_select(0, earlier), d_recurrent[first:]
    return torch.mm(x.t(), d_gates), torch.mm(before.t(), of), d_gates.sum(dim=0)


def _kernels(x: Tensor) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return the forward and the backward step that compute on this tensor's device."""
    if triton_computes(x):
        from elmo.tasks.layers.highway_lstm_gpu import backward_step, forward_step

        return forward_step, backward_step
    return _forward_step, _backward_step


def _forward_step(
    gates: Tensor, cells: Tensor, outputs: Tensor, weight: Tensor, mask: Tensor, steps: Steps, number: int
) -> None:
    """Activate the gates of a step, and compute its cells and outputs."""
    step = steps.each[number]
    size = cells.shape[1]
    rows, before = slice(step.start, step.start + step.active), slice(step.before, step.before + step.known)
    gate = gates[rows]
    if step.known:
        gate[: step.known, : 5 * size].addmm_(outputs[before], weight)
    gate[:, : 4 * size].sigmoid_()
    gate[:, 4 * size : 5 * size].tanh_()
    i, f, o, r, j, k = gate.chunk(6, dim=1)
    cell = torch.mul(i, j, out=cells[rows])
    cell[: step.known].addcmul_(f[: step.known], cells[before])
    torch.lerp(k, cell.tanh().mul_(o), r, out=outputs[rows]).mul_(mask[: step.active])


def _backward_step(
    gates: Tensor,
    cells: Tensor,
    d_outputs: Tensor,
    d_cell: Tensor,
    weight: Tensor,
    mask: Tensor,
    steps: Steps,
    number: int,
) -> None:
    """Replace the gates of a step by their gradients."""
    step = steps.each[number]
    after = steps.each[number + 1] if number + 1 < len(steps.each) else None  # the step that was read next
    size = cells.shape[1]
    rows = slice(step.start, step.start + step.active)
    i, f, o, r, j, k = gates[rows].chunk(6, dim=1)
    d_h = d_outputs[rows].clone()
    if after is not None:
        d_h[: after.known].addmm_(gates[after.start : after.start + after.known, : 5 * size], weight.t())
    d_h *= mask[: step.active]
    tanh = cells[rows].tanh()
    d_hidden = d_h * r
    d_c = d_cell[: step.active].addcmul_(d_hidden * o, 1.0 - tanh * tanh)
    d_r = (o * tanh).sub_(k).mul_(d_h).mul_(r).mul_(1.0 - r)
    k.copy_(d_h.sub(d_hidden))
    r.copy_(d_r)
    o.copy_(d_hidden.mul_(tanh).mul_(o).mul_(1.0 - o))
    d_j = (d_c * i).mul_(1.0 - j * j)
    i.copy_((d_c * j).mul_(i).mul_(1.0 - i))
    j.copy_(d_j)
    d_f = (f * (1.0 - f)).mul_(d_c)
    d_f[: step.known].mul_(cells[step.before : step.before + step.known])
    d_f[step.known :] = 0.0
    d_c.mul_(f)
    f.copy_(d_f)
