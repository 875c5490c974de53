"""`ProjectedLSTM` without a gradient: no memory is allocated inside the loop, and there are few passes over it.

Differences from the reference, and why:
- The inputs' part of the gates is one product per block of steps: long enough to be efficient, short enough for cache.
- The state is changed in place: row r of h and c is sentence r, and a sentence that has ended is no longer touched.
- tanh(x) = 2·sigmoid(2x) − 1: all four gates take one pass of sigmoid; PyTorch's tanh costs six times as much on a CPU.
"""

from collections.abc import Iterator, Sequence
from math import prod

import torch
from torch import Tensor

from elmo.model.kernels import LSTMLayer

BLOCK_TOKENS = {"cpu": 512, "cuda": 8192}  # tokens per block


def lstm_inference(
    inputs: Tensor,  # (S, N, D_in) packed
    rows: Sequence[int],  # active sentences at each step
    h: Tensor,  # (S, B, D)
    c: Tensor,  # (S, B, H)
    layer: LSTMLayer,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs (S, N, D), and h and c after each sentence's last token."""
    weight_input, weight_hidden, bias, weight_projection, forget_bias, cell_clip, proj_clip = layer
    directions, n_tokens, _ = inputs.shape
    dim, cell = h.shape[2], c.shape[2]
    h, c = h.clone(), c.clone()
    outputs = inputs.new_empty(directions, n_tokens, dim)
    bias = bias[:, None].clone()
    bias[:, :, cell : 2 * cell] += forget_bias

    parts = list(blocks(rows, BLOCK_TOKENS.get(inputs.device.type, BLOCK_TOKENS["cpu"])))
    share = inputs.new_empty(directions * max(map(sum, parts), default=0) * 4 * cell)
    gates_memory = inputs.new_empty(directions * max(rows, default=0) * 4 * cell)
    hidden_memory = c.new_empty(directions * max(rows, default=0) * cell)
    token = 0
    for block in parts:
        size = sum(block)
        from_inputs = _shaped(share, directions, size, 4 * cell)
        torch.bmm(inputs[:, token : token + size], weight_input, out=from_inputs)
        start = 0
        for active in block:
            gates = _shaped(gates_memory, directions, active, 4 * cell)
            hidden = _shaped(hidden_memory, directions, active, cell)
            h_active, c_active = h[:, :active], c[:, :active]
            torch.add(from_inputs[:, start : start + active], bias, out=gates)
            gates.baddbmm_(h_active, weight_hidden)
            i, f, o, candidate = gates.chunk(4, dim=2)
            candidate.mul_(2)
            gates.sigmoid_()
            c_active.mul_(f).addcmul_(i, candidate, value=2).sub_(i)
            if cell_clip is not None:
                c_active.clamp_(-cell_clip, cell_clip)
            torch.mul(c_active, 2, out=hidden).sigmoid_().mul_(2).sub_(1).mul_(o)
            output = outputs[:, token : token + active]
            if weight_projection is None:
                output.copy_(hidden)
            else:
                output.copy_(torch.bmm(hidden.to(h.dtype), weight_projection))
                if proj_clip is not None:
                    output.clamp_(-proj_clip, proj_clip)
            h_active.copy_(output)
            start += active
            token += active
    return outputs, h, c


def _shaped(memory: Tensor, *shape: int) -> Tensor:
    """Return the beginning of `memory` in a shape. It is contiguous, which makes the batched product fast."""
    return memory[: prod(shape)].view(shape)


def blocks(rows: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Group consecutive steps into blocks of at most `tokens` tokens, but at least one step."""
    block: list[int] = []
    size = 0
    for active in rows:
        if block and size + active > tokens:
            yield block
            block, size = [], 0
        block.append(active)
        size += active
    if block:
        yield block
