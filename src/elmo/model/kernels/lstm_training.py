"""`ProjectedLSTM` where a gradient is needed: the chain rule by hand, step by step backwards.

What is done differently from letting PyTorch record every operation, and why:
- The gates' gradients are kept, and each weight's gradient is *one* product over all steps at the end.
- Of a step only the gates after their activation, the cell and the hidden value are kept; the rest follows from them.
- A clipped value sits at the limit, so the clips' masks need no memory either.
- Products run in autocast's precision if it is on; cells, gates and gradients stay as they are.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.model.device import product_dtype
from elmo.model.kernels import LSTMLayer, exact_backward


def lstm_training(
    inputs: Tensor,  # (S, N, D_in) packed
    rows: Sequence[int],  # active sentences at each step
    h: Tensor,  # (S, B, D)
    c: Tensor,  # (S, B, H)
    layer: LSTMLayer,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs (S, N, D), and h and c after each sentence's last token."""
    outputs, h, c = _LSTM.apply(inputs, h, c, list(rows), *layer)  # type: ignore[no-untyped-call]
    return outputs, h, c


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
        weight_input, weight_hidden, bias, weight_projection, forget_bias, cell_clip, proj_clip = LSTMLayer(*parts)
        low = product_dtype(inputs)
        directions, n_tokens, _ = inputs.shape
        size = c.shape[2]
        starts = list(accumulate(rows, initial=0))
        w_hidden = weight_hidden.to(low)
        w_projection = None if weight_projection is None else weight_projection.to(low)
        bias = bias[:, None].clone()
        bias[:, :, size : 2 * size] += forget_bias
        gates = torch.bmm(inputs.to(low), weight_input.to(low)).to(c.dtype).add_(bias)  # (S, N, 4H)
        cells = c.new_empty(directions, n_tokens, size)
        hidden = c.new_empty(directions, n_tokens, size)
        before = h.new_empty(directions, n_tokens, h.shape[2])  # the output of the step before
        outputs = h.new_empty(directions, n_tokens, h.shape[2])
        first, h, c = c, h.clone(), c.clone()
        for active, start in zip(rows, starts, strict=False):
            step = slice(start, start + active)
            before[:, step] = h[:, :active]
            gate = gates[:, step]
            gate += torch.bmm(h[:, :active].to(low), w_hidden)
            i, f, o, candidate = gate.chunk(4, dim=2)
            gate[:, :, : 3 * size].sigmoid_()
            candidate.tanh_()
            cell = c[:, :active].mul_(f).addcmul_(i, candidate)
            if cell_clip is not None:
                cell.clamp_(-cell_clip, cell_clip)
            cells[:, step] = cell
            torch.mul(cell.tanh(), o, out=hidden[:, step])
            output = hidden[:, step]
            if w_projection is not None:
                output = torch.bmm(output.to(low), w_projection).to(h.dtype)
                if proj_clip is not None:
                    output.clamp_(-proj_clip, proj_clip)
            outputs[:, step] = output
            h[:, :active] = outputs[:, step]
        ctx.save_for_backward(
            inputs, first, weight_input, weight_hidden, weight_projection, gates, cells, hidden, before, outputs
        )
        ctx.settings = rows, starts, low, cell_clip, proj_clip
        return outputs, h, c

    @staticmethod
    @exact_backward
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_h: Tensor, d_c: Tensor) -> tuple[Tensor | None, ...]:
        inputs, first, weight_input, weight_hidden, weight_projection, gates, cells, hidden, before, outputs = (
            ctx.saved_tensors
        )
        rows, starts, low, cell_clip, proj_clip = ctx.settings
        w_hidden = weight_hidden.to(low).transpose(1, 2)
        w_projection = None if weight_projection is None else weight_projection.to(low).transpose(1, 2)
        d_gates = torch.empty_like(gates)
        d_projected = torch.empty_like(outputs)
        d_h, d_c = d_h.clone(), d_c.clone()
        for t in reversed(range(len(rows))):
            step = slice(starts[t], starts[t] + rows[t])
            i, f, o, candidate = gates[:, step].chunk(4, dim=2)
            d_i, d_f, d_o, d_candidate = d_gates[:, step].chunk(4, dim=2)
            cell, output = cells[:, step], outputs[:, step]
            cell_before = first if t == 0 else cells[:, starts[t - 1] : starts[t - 1] + rows[t]]
            d_output = d_outputs[:, step] + d_h[:, : rows[t]]
            if w_projection is not None:
                if proj_clip is not None:
                    d_output.masked_fill_(output.abs() >= proj_clip, 0.0)
                d_projected[:, step] = d_output
                d_hidden = torch.bmm(d_output.to(low), w_projection).to(d_c.dtype)
            else:
                d_hidden = d_output
            tanh = cell.tanh()
            d_cell = d_c[:, : rows[t]]
            d_cell.addcmul_(d_hidden * o, 1.0 - tanh * tanh)
            if cell_clip is not None:
                d_cell.masked_fill_(cell.abs() >= cell_clip, 0.0)
            torch.mul(d_hidden.mul_(tanh), o * (1.0 - o), out=d_o)
            torch.mul(d_cell * candidate, i * (1.0 - i), out=d_i)
            torch.mul(d_cell * i, 1.0 - candidate * candidate, out=d_candidate)
            torch.mul(d_cell * cell_before, f * (1.0 - f), out=d_f)
            d_cell.mul_(f)
            d_h[:, : rows[t]] = torch.bmm(d_gates[:, step].to(low), w_hidden)
        d_bias = d_gates.sum(dim=1)
        d_gates = d_gates.to(low)
        d_weight_input = torch.bmm(inputs.to(low).transpose(1, 2), d_gates).to(weight_input.dtype)
        d_weight_hidden = torch.bmm(before.to(low).transpose(1, 2), d_gates).to(weight_hidden.dtype)
        d_weight_projection = None
        if weight_projection is not None:
            product = torch.bmm(hidden.to(low).transpose(1, 2), d_projected.to(low))
            d_weight_projection = product.to(weight_projection.dtype)
        d_inputs = None
        if ctx.needs_input_grad[0]:
            d_inputs = torch.bmm(d_gates, weight_input.to(low).transpose(1, 2)).to(inputs.dtype)
        return (
            d_inputs, d_h, d_c, None, d_weight_input, d_weight_hidden, d_bias, d_weight_projection, None, None, None
        )  # fmt: skip
