"""LSTMs AND GRUs OVER PACKED SEQUENCES, WITH A GRADIENT: what nn.LSTM and nn.GRU compute, faster on a CPU.

x (S, N, I), the packed rows of S directions ─▶ (S, N, H)

PyTorch's own take time that grows with the square of the length: in the backward pass, every step adds to a gradient of
the size of all steps. Here the input's part of all gates is one product before the first step, the gradient of each
weight is one product after the last, and all directions make their steps together. The LSTM is the biLM's, without its
projection. A GRU computes for each token x, with the output h of the token before,

    r, z = σ(x W + b + h U + d)     n = tanh(x W + b + r·(h U + d))     h = (1 − z)·n + z·h

(one column block of W, b, U and d each: reset, update, candidate).
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo.model.device import without_autocast
from elmo.model.kernels import LSTMLayer, exact_backward
from elmo.model.kernels.lstm_training import lstm_training

Network = nn.LSTM | nn.GRU  # of one layer and one direction


def packed_rnn(networks: Sequence[Network], inputs: Tensor, rows: Sequence[int]) -> Tensor:
    """Run a network over each direction's inputs (S, N, I), with `rows[t]` sequences active at step t: (S, N, H)."""

    def stacked(name: str) -> Tensor:
        return torch.stack([getattr(network, f"{name}_l0") for network in networks])

    of_input, of_hidden = stacked("weight_ih").transpose(1, 2), stacked("weight_hh").transpose(1, 2)
    bias_input, bias_hidden = stacked("bias_ih"), stacked("bias_hh")
    with without_autocast(inputs):
        inputs = inputs.to(of_input.dtype)
        outputs: Tensor
        if isinstance(networks[0], nn.GRU):
            outputs = _GRU.apply(inputs, list(rows), of_input, of_hidden, bias_input, bias_hidden)  # type: ignore[no-untyped-call]
        else:
            of_input, of_hidden = _in_our_order(of_input), _in_our_order(of_hidden)
            layer = LSTMLayer(of_input, of_hidden, _in_our_order(bias_input + bias_hidden), None, 0.0, None, None)
            zeros = inputs.new_zeros(len(networks), rows[0], networks[0].hidden_size)
            outputs, _, _ = lstm_training(inputs, rows, zeros, zeros, layer)
    return outputs


def _in_our_order(blocks: Tensor) -> Tensor:
    """Rearrange the gates of an LSTM, (…, 4H): input, forget, candidate, output ─▶ input, forget, output, candidate."""
    i, f, candidate, o = blocks.chunk(4, dim=-1)
    return torch.cat([i, f, o, candidate], dim=-1)


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,  # (S, N, I)
        rows: list[int],
        weight_input: Tensor,  # (S, I, 3H)
        weight_hidden: Tensor,  # (S, H, 3H)
        bias_input: Tensor,  # (S, 3H)
        bias_hidden: Tensor,  # (S, 3H)
    ) -> Tensor:
        size = weight_hidden.shape[1]
        starts = list(accumulate(rows, initial=0))
        gates = torch.baddbmm(bias_input[:, None], inputs, weight_input)  # (S, N, 3H)
        candidates = gates.new_empty(*gates.shape[:2], size)  # h U + d of the candidate
        before, outputs = torch.empty_like(candidates), torch.empty_like(candidates)
        h = gates.new_zeros(len(gates), rows[0], size)
        for active, start in zip(rows, starts, strict=False):
            step = slice(start, start + active)
            before[:, step] = h[:, :active]
            hidden = torch.baddbmm(bias_hidden[:, None], before[:, step], weight_hidden)
            gate = gates[:, step]
            gate[:, :, : 2 * size].add_(hidden[:, :, : 2 * size]).sigmoid_()
            r, z, n = gate.chunk(3, dim=2)
            candidates[:, step] = hidden[:, :, 2 * size :]
            n.addcmul_(r, candidates[:, step]).tanh_()
            h = torch.lerp(n, before[:, step], z)
            outputs[:, step] = h
        ctx.save_for_backward(inputs, weight_input, weight_hidden, gates, candidates, before)
        ctx.settings = rows, starts
        return outputs

    @staticmethod
    @exact_backward
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight_input, weight_hidden, gates, candidates, before = ctx.saved_tensors
        rows, starts = ctx.settings
        size = candidates.shape[2]
        d_of_input, d_of_hidden = torch.empty_like(gates), torch.empty_like(gates)  # with respect to x W + b, h U + d
        d_h = torch.zeros_like(before[:, : rows[0]])
        transposed = weight_hidden.transpose(1, 2)
        for t in reversed(range(len(rows))):
            step = slice(starts[t], starts[t] + rows[t])
            r, z, n = gates[:, step].chunk(3, dim=2)
            d_r, d_z, d_n = d_of_input[:, step].chunk(3, dim=2)
            d_output = d_h[:, : rows[t]].add_(d_outputs[:, step])
            torch.mul(d_output * (1.0 - z), 1.0 - n * n, out=d_n)
            torch.mul(d_output * (before[:, step] - n), z * (1.0 - z), out=d_z)
            torch.mul(d_n * candidates[:, step], r * (1.0 - r), out=d_r)
            d_of_hidden[:, step, : 2 * size] = d_of_input[:, step, : 2 * size]
            torch.mul(d_n, r, out=d_of_hidden[:, step, 2 * size :])
            d_output.mul_(z).baddbmm_(d_of_hidden[:, step], transposed)
        return (
            torch.bmm(d_of_input, weight_input.transpose(1, 2)) if ctx.needs_input_grad[0] else None,
            None,
            torch.bmm(inputs.transpose(1, 2), d_of_input),
            torch.bmm(before.transpose(1, 2), d_of_hidden),
            d_of_input.sum(dim=1),
            d_of_hidden.sum(dim=1),
        )
