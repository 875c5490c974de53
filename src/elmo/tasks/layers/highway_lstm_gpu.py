"""A step of `HighwayLSTM` on a GPU: the recurrent product and everything after it in one Triton kernel.

A program computes 16 sequences × 32 units. It reads 32 columns of each of U's five blocks: for 300 units, 190 KB from
the L2 cache. At 100 GB/s per processor these are 2 µs, by 50 programs at once for a batch of 80. A step is one launch,
and in training `highway_lstm_graph` replays all of them as one. The alternatives:

- A product by cuBLAS in every step would double the launches.
- One launch per layer, in which a program keeps 16 sequences and loops over their steps, has to read all of U in each
  step: 1.8 MB at 100 GB/s, 18 µs, on five processors of 132.
- Programs that share U, and wait for each other after each step, would be faster still. But kernels that wait can block
  each other forever when several seeds are trained side by side.

Float32 products are sums of three TF32 products (`tf32x3`), which are as exact as float32's own to a few units.
"""

import triton
import triton.language as tl
from torch import Tensor

from elmo.tasks.layers.highway_lstm_kernel import Steps

ROWS, UNITS = 16, 32  # sequences and units per program
DEPTH, BACKWARD_DEPTH = 64, 128  # terms of a product that are added at once


def forward_step(
    gates: Tensor, cells: Tensor, outputs: Tensor, weight: Tensor, mask: Tensor, steps: Steps, number: int
) -> None:
    """Activate the gates of a step, and compute its cells and outputs."""
    size = cells.shape[1]
    _forward[triton.cdiv(steps.each[number].active, ROWS), triton.cdiv(size, UNITS)](
        gates, cells, outputs, weight, mask, steps.table, number,
        size, ROWS, UNITS, DEPTH,
    )  # fmt: skip


def backward_step(
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
    size = cells.shape[1]
    _backward[triton.cdiv(steps.each[number].active, ROWS), triton.cdiv(size, UNITS)](
        gates, cells, d_outputs, d_cell, weight, mask, steps.table, number,
        size, ROWS, UNITS, BACKWARD_DEPTH,
    )  # fmt: skip


@triton.jit
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _add_product(total, left, weight, column, inside, SIZE: tl.constexpr):
    """Add left (ROWS, DEPTH) times some columns of a block of U."""
    return tl.dot(left, tl.load(weight + column * SIZE, mask=inside, other=0.0), total, input_precision="tf32x3")


@triton.jit
def _step(table, number):
    """Read a step: its first row, its rows, the first row of the step before, the sequences known from there."""
    place = table + 4 * number
    return tl.load(place), tl.load(place + 1), tl.load(place + 2), tl.load(place + 3)


@triton.jit(do_not_specialize=["number"])
def _forward(
    gates, cells, outputs, weight, mask, table, number,  # (N, 6H), (N, H), (N, H), (H, 5H), (B, H), (T + 1, 4)
    SIZE: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    start, active, before, known = _step(table, number)
    if tl.program_id(0) * ROWS >= active:
        return
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
    output *= tl.load(mask + row[:, None] * SIZE + unit[None, :], mask=inside, other=0.0)
    tl.store(outputs + place * SIZE + unit[None, :], output, mask=inside)


@triton.jit(do_not_specialize=["number"])
def _backward(
    gates, cells, d_outputs, d_cell, weight, mask, table, number,  # as above; d_cell (B, H)
    SIZE: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    start, active, before, known = _step(table, number)
    after, _, _, continued = _step(table, number + 1)
    if tl.program_id(0) * ROWS >= active:
        return
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
