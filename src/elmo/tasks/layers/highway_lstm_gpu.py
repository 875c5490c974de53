"""A step of `HighwayLSTM` on a GPU: the recurrent product and everything after it in one Triton kernel.

A program computes 16 sequences × 32 units. It reads 32 columns of each of U's five blocks, 190 KB of the L2 cache for
300 units: some 2 µs, in 50 programs at once for a batch of 80. So 8 layers of 30 steps are 240 launches forwards and
240 backwards, of about 4 µs each.

- A product of its own (cuBLAS) for every step would double the launches, which is what a step from Python waits for.
- One launch per layer, in which a program keeps 16 sequences and loops over their steps, would have to read all of U in
  each step, 1.8 MB through one of its processor's 100 GB/s: 18 µs per step, on five of 132 processors.
- Sharing U between programs that wait for each other would be faster still, but several such kernels side by side (one
  for each seed that is trained) can wait for each other forever.

Float32 products are sums of three TF32 products (`tf32x3`), which are as exact as float32's own to a few units.
"""

import triton
import triton.language as tl
from torch import Tensor

from elmo.tasks.layers.highway_lstm_kernel import Step

ROWS, UNITS, DEPTH = 16, 32, 64  # sequences and units per program; terms of a product that are added at once
_STEP = ["start", "active", "before", "known", "after", "continued"]  # change at every step: one kernel for all values


def forward_step(
    gates: Tensor, cells: Tensor, outputs: Tensor, weight: Tensor, mask: Tensor | None, step: Step
) -> None:
    """Activate the gates of a step, and compute its cells and outputs."""
    size = cells.shape[1]
    _forward[triton.cdiv(step.active, ROWS), triton.cdiv(size, UNITS)](
        gates, cells, outputs, weight, cells if mask is None else mask, *step,
        size, mask is not None, ROWS, UNITS, DEPTH,
    )  # fmt: skip


def backward_step(
    gates: Tensor,
    cells: Tensor,
    d_outputs: Tensor,
    d_cell: Tensor,
    weight: Tensor,
    mask: Tensor | None,
    step: Step,
    after: Step | None,
) -> None:
    """Replace the gates of a step by their gradients; `after` is the step that was read next."""
    size = cells.shape[1]
    following, continued = (0, 0) if after is None else (after.start, after.known)
    _backward[triton.cdiv(step.active, ROWS), triton.cdiv(size, UNITS)](
        gates, cells, d_outputs, d_cell, weight, cells if mask is None else mask, *step, following, continued,
        size, mask is not None, ROWS, UNITS, DEPTH,
    )  # fmt: skip


@triton.jit
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _add_product(total, left, weight, column, inside, SIZE: tl.constexpr):
    """Add left (ROWS, DEPTH) times some columns of a block of U."""
    return tl.dot(left, tl.load(weight + column * SIZE, mask=inside, other=0.0), total, input_precision="tf32x3")


@triton.jit(do_not_specialize=_STEP[:4])
def _forward(
    gates, cells, outputs, weight, mask,  # (N, 6H), (N, H), (N, H), (H, 5H), (B, H)
    start, active, before, known,
    SIZE: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    inside = (row < active)[:, None] & (unit < SIZE)[None, :]
    has_state = row < known
    i = tl.zeros((ROWS, UNITS), tl.float32)
    f = tl.zeros((ROWS, UNITS), tl.float32)
    o = tl.zeros((ROWS, UNITS), tl.float32)
    r = tl.zeros((ROWS, UNITS), tl.float32)
    j = tl.zeros((ROWS, UNITS), tl.float32)
    h = outputs + (before + row).to(tl.int64)[:, None] * SIZE
    for first in range(0, SIZE, DEPTH):
        term = first + tl.arange(0, DEPTH)
        left = tl.load(h + term[None, :], mask=has_state[:, None] & (term < SIZE)[None, :], other=0.0)
        columns = weight + term[:, None] * (5 * SIZE) + unit[None, :]
        there = (term < SIZE)[:, None] & (unit < SIZE)[None, :]
        i = _add_product(i, left, columns, 0, there, SIZE)
        f = _add_product(f, left, columns, 1, there, SIZE)
        o = _add_product(o, left, columns, 2, there, SIZE)
        r = _add_product(r, left, columns, 3, there, SIZE)
        j = _add_product(j, left, columns, 4, there, SIZE)
    place = (start + row).to(tl.int64)[:, None]
    gate = gates + place * (6 * SIZE) + unit[None, :]
    i = tl.sigmoid(i + tl.load(gate, mask=inside, other=0.0))
    f = tl.sigmoid(f + tl.load(gate + SIZE, mask=inside, other=0.0))
    o = tl.sigmoid(o + tl.load(gate + 2 * SIZE, mask=inside, other=0.0))
    r = tl.sigmoid(r + tl.load(gate + 3 * SIZE, mask=inside, other=0.0))
    j = _tanh(j + tl.load(gate + 4 * SIZE, mask=inside, other=0.0))
    k = tl.load(gate + 5 * SIZE, mask=inside, other=0.0)
    tl.store(gate, i, mask=inside)
    tl.store(gate + SIZE, f, mask=inside)
    tl.store(gate + 2 * SIZE, o, mask=inside)
    tl.store(gate + 3 * SIZE, r, mask=inside)
    tl.store(gate + 4 * SIZE, j, mask=inside)
    c = cells + (before + row).to(tl.int64)[:, None] * SIZE + unit[None, :]
    c = f * tl.load(c, mask=inside & has_state[:, None], other=0.0) + i * j
    tl.store(cells + place * SIZE + unit[None, :], c, mask=inside)
    output = r * (o * _tanh(c)) + (1.0 - r) * k
    if MASKED:
        output *= tl.load(mask + row[:, None] * SIZE + unit[None, :], mask=inside, other=0.0)
    tl.store(outputs + place * SIZE + unit[None, :], output, mask=inside)


@triton.jit(do_not_specialize=_STEP)
def _backward(
    gates, cells, d_outputs, d_cell, weight, mask,  # (N, 6H), (N, H), (N, H), (B, H), (H, 5H), (B, H)
    start, active, before, known, after, continued,
    SIZE: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    inside = (row < active)[:, None] & (unit < SIZE)[None, :]
    d_h = tl.zeros((ROWS, UNITS), tl.float32)
    d_after = gates + (after + row).to(tl.int64)[:, None] * (6 * SIZE)
    for first in range(0, 5 * SIZE, DEPTH):
        term = first + tl.arange(0, DEPTH)
        left = tl.load(d_after + term[None, :], mask=(row < continued)[:, None] & (term < 5 * SIZE)[None, :], other=0.0)
        transposed = weight + unit[None, :] * (5 * SIZE) + term[:, None]
        there = (term < 5 * SIZE)[:, None] & (unit < SIZE)[None, :]
        d_h = _add_product(d_h, left, transposed, 0, there, SIZE)
    place = (start + row).to(tl.int64)[:, None]
    d_h += tl.load(d_outputs + place * SIZE + unit[None, :], mask=inside, other=0.0)
    if MASKED:
        d_h *= tl.load(mask + row[:, None] * SIZE + unit[None, :], mask=inside, other=0.0)
    gate = gates + place * (6 * SIZE) + unit[None, :]
    i = tl.load(gate, mask=inside, other=0.0)
    f = tl.load(gate + SIZE, mask=inside, other=0.0)
    o = tl.load(gate + 2 * SIZE, mask=inside, other=0.0)
    r = tl.load(gate + 3 * SIZE, mask=inside, other=0.0)
    j = tl.load(gate + 4 * SIZE, mask=inside, other=0.0)
    k = tl.load(gate + 5 * SIZE, mask=inside, other=0.0)
    tanh = _tanh(tl.load(cells + place * SIZE + unit[None, :], mask=inside, other=0.0))
    c_before = cells + (before + row).to(tl.int64)[:, None] * SIZE + unit[None, :]
    c_before = tl.load(c_before, mask=inside & (row < known)[:, None], other=0.0)
    carried = d_cell + row[:, None] * SIZE + unit[None, :]
    d_hidden = d_h * r
    d_c = tl.load(carried, mask=inside, other=0.0) + d_hidden * o * (1.0 - tanh * tanh)
    tl.store(carried, d_c * f, mask=inside)
    tl.store(gate, d_c * j * i * (1.0 - i), mask=inside)
    tl.store(gate + SIZE, d_c * c_before * f * (1.0 - f), mask=inside)
    tl.store(gate + 2 * SIZE, d_hidden * tanh * o * (1.0 - o), mask=inside)
    tl.store(gate + 3 * SIZE, d_h * (o * tanh - k) * r * (1.0 - r), mask=inside)
    tl.store(gate + 4 * SIZE, d_c * i * (1.0 - j * j), mask=inside)
    tl.store(gate + 5 * SIZE, d_h * (1.0 - r), mask=inside)
