"""`ProjectedLSTM` where no gradient is needed: nothing is allocated inside the loop, and few passes go over memory.

What is done differently, and why:
- The inputs' share of the gates is one product per block of steps: long enough to be efficient, short enough for cache.
- State lives in place: row r of h and c is sentence r, and a sentence that has ended is no longer touched.
- tanh(x) = 2·sigmoid(2x) − 1: all four gates take one pass of sigmoid; PyTorch's tanh costs six times as much on a CPU.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

BLOCK_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}  # of gates, computed from the inputs at a time


def lstm_in_place(
    inputs: Tensor,  # (S, N, D_in) packed
    rows: Sequence[int],  # active sentences at each step
    h: Tensor,  # (S, B, D)
    c: Tensor,  # (S, B, H)
    weight_input: Tensor,  # (S, D_in, 4H), gates i, f, o, candidate
    weight_hidden: Tensor,  # (S, D, 4H)
    bias: Tensor,  # (S, 4H)
    weight_projection: Tensor | None,  # (S, H, D)
    forget_bias: float,
    cell_clip: float | None,
    proj_clip: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (S, N, D) and the state after each sentence's last token."""
    directions, n_tokens, _ = inputs.shape
    dim, cell = h.shape[2], c.shape[2]
    h, c = h.clone(), c.clone()
    outputs = inputs.new_empty(directions, n_tokens, dim)
    bias = bias.clone()
    bias[:, cell : 2 * cell] += forget_bias

    token = 0
    for block in _blocks(rows, BLOCK_BYTES.get(inputs.device.type, 64 << 20) // (16 * cell * directions)):
        size = sum(block)
        all_gates = torch.baddbmm(bias[:, None], inputs[:, token : token + size], weight_input)
        start = 0
        for active in block:
            gates = all_gates[:, start : start + active]
            h_active, c_active = h[:, :active], c[:, :active]
            gates.baddbmm_(h_active, weight_hidden)
            i, f, o, candidate = gates.chunk(4, dim=2)
            candidate.mul_(2)
            gates.sigmoid_()
            c_active.mul_(f).addcmul_(i, candidate, value=2).sub_(i)
            if cell_clip is not None:
                c_active.clamp_(-cell_clip, cell_clip)
            hidden = torch.mul(c_active, 2).sigmoid_().mul_(2).sub_(1).mul_(o).to(h.dtype)
            if weight_projection is not None:
                hidden = torch.bmm(hidden, weight_projection)
                if proj_clip is not None:
                    hidden.clamp_(-proj_clip, proj_clip)
            h_active.copy_(hidden)
            outputs[:, token : token + active] = hidden
            start += active
            token += active
    return outputs, h, c


def _blocks(rows: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Consecutive steps of about so many tokens, at least one step each."""
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
