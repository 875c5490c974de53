"""`ProjectedLSTM` on a GPU, with a gradient or without: cuBLAS computes the products, Triton everything between them.

    step t    [x; h] W ─▶ gates ─▶ _cell ─▶ c, hidden ─▶ hidden W_p ─▶ _clip ─▶ output, which is h of step t + 1
    back      d_gates Wᵀ ◀─ _cell_backward ◀─ d_hidden ◀─ d_projected W_pᵀ ◀─ _clip_backward ◀─ d_output + d_h

Differences from the reference, and why:
- x and h of a step are side by side in memory: one product gives the gates, one gives both gradients, and the weights'
  gradient is one product over all steps at the end.
- Stored for the gradient are the gates before activation, cells and hidden values; activations are computed again, and
  the gates' gradients overwrite the gates.
- A clipped value equals the limit, so the masks of the clips need no memory.
- Cells and their gradients are float32; the inputs of a product have the products' precision.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from elmo.model.device import product_dtype
from elmo.model.kernels import LSTMLayer, exact_backward

BLOCK = 1024  # elements per program


def lstm_gpu(
    inputs: Tensor,  # (S, N, D_in) packed
    rows: Sequence[int],  # active sentences at each step
    h: Tensor,  # (S, B, D)
    c: Tensor,  # (S, B, H)
    layer: LSTMLayer,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs (S, N, D), and h and c after each sentence's last token."""
    proj_clip = None if layer.weight_projection is None else layer.proj_clip
    layer = layer._replace(
        cell_clip=_limit(layer.cell_clip, c.dtype), proj_clip=_limit(proj_clip, product_dtype(inputs))
    )
    with torch.cuda.device_of(inputs):
        if torch.is_grad_enabled() and any(t.requires_grad for t in (inputs, h, c, *layer) if isinstance(t, Tensor)):
            outputs, h, c = _LSTM.apply(inputs, h, c, list(rows), *layer)
        else:
            outputs, h, c, _ = _forward(inputs, h, c, list(rows), layer, keep=False)
    return outputs, h, c


def _limit(limit: float | None, dtype: torch.dtype) -> float:
    """Return the limit rounded to the dtype of the clipped values, so that a clipped value equals it exactly."""
    return float(torch.tensor(float("inf") if limit is None else limit, dtype=dtype))


class _Kept(NamedTuple):
    """Tensors of the forward pass that the backward pass needs."""

    x_and_h: Tensor  # (S, N, D_in + D): inputs and the output before, side by side
    gates: Tensor  # (S, N, 4H) before their activation
    cells: Tensor  # (S, N, H)
    hidden: Tensor  # (S, N, H)
    weight: Tensor  # (S, D_in + D, 4H)


def _forward(
    inputs: Tensor,
    h: Tensor,
    c: Tensor,
    rows: list[int],
    layer: LSTMLayer,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, _Kept]:
    weight_input, weight_hidden, bias, weight_projection, forget_bias, cell_clip, proj_clip = layer
    low = product_dtype(inputs)
    directions, n_tokens, input_dim = inputs.shape
    dim, size = h.shape[2], c.shape[2]
    kept_rows = n_tokens if keep else max(rows, default=0)  # without a gradient, every step uses the same memory
    weight = torch.cat([weight_input.to(low), weight_hidden.to(low)], dim=1)
    projection = None if weight_projection is None else weight_projection.to(low)
    x_and_h = inputs.new_empty(directions, n_tokens, input_dim + dim, dtype=low)
    x_and_h[:, :, :input_dim] = inputs
    outputs = x_and_h.new_empty(directions, n_tokens, dim)
    gates = x_and_h.new_empty(directions, kept_rows, 4 * size)
    hidden = x_and_h.new_empty(directions, kept_rows, size)
    cells = c.new_empty(directions, kept_rows, size)
    h, c = (part.clone(memory_format=torch.contiguous_format) for part in (h, c))
    if rows:
        x_and_h[:, : rows[0], input_dim:] = h[:, : rows[0]]

    before = c
    for (start, active), following in zip(_steps(rows), [*rows[1:], 0], strict=False):
        step = slice(start, start + active)
        kept = step if keep else slice(active)
        gate, cell, hid, output = gates[:, kept], cells[:, kept] if keep else c, hidden[:, kept], outputs[:, step]
        torch.bmm(x_and_h[:, step], weight, out=gate)
        _cell[_blocks(directions, active * size)](
            gate, bias, before, cell, hid, active * size, size,
            gate.stride(0), before.stride(0), cell.stride(0), hid.stride(0), forget_bias, cell_clip, BLOCK,
        )  # fmt: skip
        if projection is not None:
            torch.bmm(hid, projection, out=output)
        result = output if projection is not None else hid
        next_h = x_and_h[:, step.stop : step.stop + following, input_dim:]
        _clip[_blocks(directions, active * dim)](
            result, output, next_h, active, following, dim,
            result.stride(0), output.stride(0), next_h.stride(0), next_h.stride(1), proj_clip, BLOCK,
        )  # fmt: skip
        before = cell
    if rows:
        last = _last_tokens(rows, inputs.device)
        h[:, : rows[0]] = outputs[:, last]
        if keep:
            c[:, : rows[0]] = cells[:, last]
    return outputs, h, c, _Kept(x_and_h, gates, cells, hidden, weight)


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        h: Tensor,
        c: Tensor,
        rows: list[int],
        *parts: Any,  # of an `LSTMLayer`, one by one: autograd does not look into a tuple
    ) -> tuple[Tensor, Tensor, Tensor]:
        layer = LSTMLayer(*parts)
        outputs, after_h, after_c, kept = _forward(inputs, h, c, rows, layer, keep=True)
        ctx.save_for_backward(c.contiguous(), layer.bias, layer.weight_projection, outputs, *kept)
        ctx.settings = rows, layer.forget_bias, layer.cell_clip, layer.proj_clip
        ctx.dtypes = [t.dtype if isinstance(t, Tensor) else None for t in (inputs, h, c, rows, *layer)]
        ctx.set_materialize_grads(False)
        return outputs, after_h, after_c

    @staticmethod
    @exact_backward
    @once_differentiable
    def backward(
        ctx: Any, d_outputs: Tensor | None, d_h: Tensor | None, d_c: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        first, bias, weight_projection, outputs, *kept = ctx.saved_tensors
        rows, forget_bias, cell_clip, proj_clip = ctx.settings
        x_and_h, gates, cells, hidden, weight = _Kept(*kept)
        low, directions = x_and_h.dtype, len(x_and_h)
        dim, size = outputs.shape[2], cells.shape[2]
        input_dim = x_and_h.shape[2] - dim
        projection = None if weight_projection is None else weight_projection.to(low).transpose(1, 2)
        transposed = weight.transpose(1, 2)
        d_outputs = torch.zeros_like(outputs) if d_outputs is None else d_outputs.contiguous()
        if d_h is None:
            d_h = outputs.new_zeros(directions, first.shape[1], dim)
        elif rows:  # the state after a sentence is its last output
            d_outputs, d_h = d_outputs.clone(), d_h.clone()
            d_outputs[:, _last_tokens(rows, outputs.device)] += d_h[:, : rows[0]].to(d_outputs.dtype)
        d_c = torch.zeros_like(first) if d_c is None else d_c.clone(memory_format=torch.contiguous_format)
        d_x_and_h = torch.empty_like(x_and_h)
        d_projected = torch.empty_like(outputs)
        d_hidden = hidden.new_empty(directions, max(rows, default=0), size) if projection is not None else None

        steps = _steps(rows)
        for t in reversed(range(len(rows))):
            start, active = steps[t]
            step = slice(start, start + active)
            following = rows[t + 1] if t + 1 < len(rows) else 0
            next_d_h = d_x_and_h[:, step.stop : step.stop + following, input_dim:]
            output, d_output, d_project = outputs[:, step], d_outputs[:, step], d_projected[:, step]
            _clip_backward[_blocks(directions, active * dim)](
                d_output, next_d_h, output, d_project, active, following, dim,
                d_output.stride(0), next_d_h.stride(0), next_d_h.stride(1), output.stride(0), d_project.stride(0),
                proj_clip, BLOCK,
            )  # fmt: skip
            if projection is not None and d_hidden is not None:
                d_hid = d_hidden[:, :active]
                torch.bmm(d_project, projection, out=d_hid)
            else:
                d_hid = d_project
            gate, cell = gates[:, step], cells[:, step]
            before = first if t == 0 else cells[:, steps[t - 1][0] : steps[t - 1][0] + active]
            _cell_backward[_blocks(directions, active * size)](
                gate, bias, before, cell, d_hid, d_c, active * size, size,
                gate.stride(0), before.stride(0), cell.stride(0), d_hid.stride(0), d_c.stride(0),
                forget_bias, cell_clip, BLOCK,
            )  # fmt: skip
            torch.bmm(gate, transposed, out=d_x_and_h[:, step])
        if rows:
            d_h[:, : rows[0]] = d_x_and_h[:, : rows[0], input_dim:]
        d_weight = torch.bmm(x_and_h.transpose(1, 2), gates)
        d_weight_projection = None if projection is None else torch.bmm(hidden.transpose(1, 2), d_projected)
        d_bias = gates.sum(dim=1, dtype=torch.float32)
        increment_version(gates)  # refuse a second backward pass: the gates are overwritten
        gradients = (
            d_x_and_h[:, :, :input_dim], d_h, d_c, None,
            d_weight[:, :input_dim], d_weight[:, input_dim:], d_bias, d_weight_projection, None, None, None,
        )  # fmt: skip
        return tuple(g if g is None else g.to(dtype) for g, dtype in zip(gradients, ctx.dtypes, strict=True))


def _steps(rows: list[int]) -> list[tuple[int, int]]:
    """Return the first token and the number of tokens of each step."""
    return list(zip(accumulate(rows, initial=0), rows, strict=False))


def _last_tokens(rows: list[int], device: torch.device) -> slice | Tensor:
    """Return the row of each sentence's last token."""
    if rows[0] == rows[-1]:
        return slice(sum(rows) - rows[-1], None)
    counts = np.array(rows)
    lengths = (counts[:, None] > np.arange(rows[0])).sum(axis=0)
    starts = np.cumsum(counts) - counts
    return torch.from_numpy(starts[lengths - 1] + np.arange(rows[0])).to(device)


def _blocks(directions: int, numbers: int) -> tuple[int, int]:
    return triton.cdiv(numbers, BLOCK), directions


@triton.jit
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _clamped(x, limit):
    """Limit to ±limit; NaN stays NaN."""
    return tl.where(x > limit, limit, tl.where(x < -limit, -limit, x))


@triton.jit
def _activated(gates, bias, place, unit, size, inside, forget_bias):
    """Load and activate the four gates of some units; `place` is the offset of their input gates."""
    i = tl.load(gates + place, mask=inside, other=0.0).to(tl.float32)
    f = tl.load(gates + place + size, mask=inside, other=0.0).to(tl.float32)
    o = tl.load(gates + place + 2 * size, mask=inside, other=0.0).to(tl.float32)
    candidate = tl.load(gates + place + 3 * size, mask=inside, other=0.0).to(tl.float32)
    i += tl.load(bias + unit).to(tl.float32)
    f += tl.load(bias + size + unit).to(tl.float32)
    o += tl.load(bias + 2 * size + unit).to(tl.float32)
    candidate += tl.load(bias + 3 * size + unit).to(tl.float32)
    return tl.sigmoid(i), tl.sigmoid(f + forget_bias), tl.sigmoid(o), _tanh(candidate)


@triton.jit
def _cell(
    gates, bias, before, after, hidden,  # (S, B, 4H), (S, 4H), (S, B, H) each
    numbers, size, gates_stride, before_stride, after_stride, hidden_stride, forget_bias, cell_clip,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """c = clip(f·c + i·candidate), hidden = o·tanh(c)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    direction = tl.program_id(1).to(tl.int64)
    inside = place < numbers
    unit = place % size
    gate = (place // size).to(tl.int64) * 4 * size + unit
    gates += direction * gates_stride
    bias += direction * 4 * size
    i, f, o, candidate = _activated(gates, bias, gate, unit, size, inside, forget_bias)
    c = f * tl.load(before + direction * before_stride + place, mask=inside, other=0.0) + i * candidate
    c = _clamped(c, cell_clip)
    tl.store(after + direction * after_stride + place, c, mask=inside)
    value = (o * _tanh(c)).to(hidden.dtype.element_ty)
    tl.store(hidden + direction * hidden_stride + place, value, mask=inside)


@triton.jit
def _cell_backward(
    gates, bias, before, after, d_hidden, d_cell,
    numbers, size, gates_stride, before_stride, after_stride, d_hidden_stride, d_cell_stride, forget_bias, cell_clip,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Overwrite the gates by their gradients, and the gradient of `after` by that of `before`."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    direction = tl.program_id(1).to(tl.int64)
    inside = place < numbers
    unit = place % size
    gate = (place // size).to(tl.int64) * 4 * size + unit
    gates += direction * gates_stride
    bias += direction * 4 * size
    i, f, o, candidate = _activated(gates, bias, gate, unit, size, inside, forget_bias)
    c_before = tl.load(before + direction * before_stride + place, mask=inside, other=0.0)
    c = tl.load(after + direction * after_stride + place, mask=inside, other=0.0)
    d_h = tl.load(d_hidden + direction * d_hidden_stride + place, mask=inside, other=0.0).to(tl.float32)
    d_cell += direction * d_cell_stride
    tanh = _tanh(c)
    d_c = tl.load(d_cell + place, mask=inside, other=0.0) + d_h * o * (1.0 - tanh * tanh)
    d_c = tl.where(tl.abs(c) >= cell_clip, 0.0, d_c)
    tl.store(d_cell + place, d_c * f, mask=inside)
    dtype = gates.dtype.element_ty
    tl.store(gates + gate, (d_c * candidate * i * (1.0 - i)).to(dtype), mask=inside)
    tl.store(gates + gate + size, (d_c * c_before * f * (1.0 - f)).to(dtype), mask=inside)
    tl.store(gates + gate + 2 * size, (d_h * tanh * o * (1.0 - o)).to(dtype), mask=inside)
    tl.store(gates + gate + 3 * size, (d_c * i * (1.0 - candidate * candidate)).to(dtype), mask=inside)


@triton.jit
def _clip(
    projected, outputs, next_h,  # (S, B, D) each; next_h has rows further apart
    active, following, dim, projected_stride, outputs_stride, next_h_stride, next_h_row, limit, BLOCK: tl.constexpr,
):  # fmt: skip
    """output = clip(projected), which the first `following` sentences read in the next step."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    direction = tl.program_id(1).to(tl.int64)
    row = place // dim
    value = tl.load(projected + direction * projected_stride + place, mask=row < active, other=0.0)
    clipped = _clamped(value.to(tl.float32), limit).to(value.dtype)
    tl.store(outputs + direction * outputs_stride + place, clipped, mask=row < active)
    tl.store(next_h + direction * next_h_stride + row * next_h_row + place % dim, clipped, mask=row < following)


@triton.jit
def _clip_backward(
    d_outputs, next_d_h, outputs, d_projected,
    active, following, dim, d_outputs_stride, next_d_h_stride, next_d_h_row, outputs_stride, d_projected_stride,
    limit, BLOCK: tl.constexpr,
):  # fmt: skip
    """d_projected = d_output + d_h of the next step, and zero where the output was clipped."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    direction = tl.program_id(1).to(tl.int64)
    row = place // dim
    inside = row < active
    next_place = next_d_h + direction * next_d_h_stride + row * next_d_h_row + place % dim
    gradient = tl.load(d_outputs + direction * d_outputs_stride + place, mask=inside, other=0.0).to(tl.float32)
    gradient += tl.load(next_place, mask=row < following, other=0.0).to(tl.float32)
    value = tl.load(outputs + direction * outputs_stride + place, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.where(tl.abs(value) >= limit, 0.0, gradient)
    value_type = d_projected.dtype.element_ty
    tl.store(d_projected + direction * d_projected_stride + place, gradient.to(value_type), mask=inside)
