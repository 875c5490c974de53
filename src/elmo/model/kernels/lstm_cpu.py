"""One direction of `ProjectedLSTM` on a CPU, without a gradient, with packed weights.

Differences from `lstm_inference`, and why:
- The directions are apart: each is a piece of work for one thread.
- The gates are one product with `[x; h]` where the matrix stays in the processor's cache; else, and for one sentence,
  the inputs' part is a product of its own, over many steps.
- With one sentence, a product reads every weight for one row: for small matrices, the plain product is faster there.
- Cells are kept doubled, and so are the projection's weights: tanh(x) = 2·sigmoid(2x) − 1 then takes fewer passes.
  Doubling is exact.
- Products compute a few rows more than needed (`rounded_up`): what they read has room for them.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from elmo.model.kernels import LSTMLayer
from elmo.model.kernels.lstm_inference import blocks
from elmo.model.kernels.products import (
    EXACT_TERMS,
    SMALL,
    Int8Product,
    Int8SingleRows,
    PackedProduct,
    Product,
    SingleRows,
    first_rows,
    rounded_up,
)

BLOCK_TOKENS = 128  # of a product with the inputs of several steps
JOINED_BYTES = 16 << 20  # the gates are one product with [x; h] up to this size of their matrix


class OfOne(NamedTuple):
    """Products of a layer for one sentence, in S directions."""

    gates: SingleRows | Int8SingleRows
    projection: SingleRows | Int8SingleRows | None

    @classmethod
    def pack(cls, layer: LSTMLayer, product: type[Product]) -> "OfOne | None":
        """Return the products; None if the matrices are large: then one sentence is computed as several are."""
        _, inner, columns = layer.weight_hidden.shape
        doubled = None if layer.weight_projection is None else 2 * layer.weight_projection
        if product is PackedProduct and is_joined(layer):
            return cls(SingleRows(layer.weight_hidden), None if doubled is None else SingleRows(doubled))
        if product is Int8Product and inner * columns <= SMALL and columns // 4 <= EXACT_TERMS:
            return cls(Int8SingleRows(layer.weight_hidden), None if doubled is None else Int8SingleRows(doubled))
        return None

    def of(self, direction: int) -> "OfOne":
        """Return the products of one direction."""
        return OfOne(self.gates.of(direction), None if self.projection is None else self.projection.of(direction))


def is_joined(layer: LSTMLayer) -> bool:
    """Whether the gates are one product with [x; h]."""
    matrices = layer.weight_input[0], layer.weight_hidden[0]
    return sum(matrix.numel() * matrix.element_size() for matrix in matrices) <= JOINED_BYTES


class PackedLSTM:
    """One direction of a layer, with packed weights. `product` is the kind of its matrix products."""

    def __init__(
        self, layer: LSTMLayer, direction: int, product: type[Product] = PackedProduct, of_one: OfOne | None = None
    ) -> None:
        to_gates, hidden_to_gates = layer.weight_input[direction], layer.weight_hidden[direction]
        self.cell_clip, self.proj_clip = layer.cell_clip, layer.proj_clip
        self.dim, self.cell = len(hidden_to_gates), hidden_to_gates.shape[1] // 4
        self.bias = layer.bias[direction].clone()
        self.bias[self.cell : 2 * self.cell] += layer.forget_bias
        # Quantised, x and h need a scale each; and one sentence must get what it gets beside others.
        self.small = product is PackedProduct and is_joined(layer)
        self.from_inputs = product(to_gates)
        self.gates: Product = product(torch.cat([to_gates, hidden_to_gates]) if self.small else hidden_to_gates)
        self.projection: Product | None = None
        if layer.weight_projection is not None:
            doubled = 2 * layer.weight_projection[direction]
            self.projection = product(doubled)
        self.one = None if of_one is None else OneSentence([self], of_one.of(direction))

    def __call__(self, inputs: Tensor, rows: Sequence[int], h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run over packed inputs (N, D) from h (B, D) and c (B, H); return outputs (N, D), and h and c at the end."""
        c = 2 * c
        outputs = inputs.new_empty(len(inputs), self.dim)
        # From this step on, one sentence is active.
        alone = rows.index(1) if self.one is not None and rows and rows[-1] == 1 else len(rows)
        first = sum(rows[:alone])
        h_many = self._many(inputs[:first], rows[:alone], h, c, outputs[:first])
        if self.one is not None and alone < len(rows):
            self.one.run(inputs[first:, None], h_many[:1], c[:1], outputs[first:, None])
        return outputs, _last(outputs, rows, h), c.div_(2)

    def _many(self, inputs: Tensor, rows: Sequence[int], h: Tensor, c: Tensor, outputs: Tensor) -> Tensor:
        """Run the steps of two and more sentences, in large models of one, too; return the last h."""
        most = rounded_up(max(rows, default=0))
        width = inputs.shape[1] if self.small else 0  # of x in [x; h]
        both, memory = inputs.new_zeros(most, width + self.dim), c.new_zeros(most, self.cell)
        both[: len(h), width:] = h
        before = 0
        for step, output, active in zip(self._inputs(inputs, rows), _steps(outputs, rows), rows, strict=True):
            if active != before:  # views are made once for all steps of the same sentences
                before, computed = active, rounded_up(active)
                x, h, hidden, cells = both[:active, :width], both[:active, width:], memory[:active], c[:active]
                read, projected = both[:computed], memory[:computed]
            if self.small:
                x.copy_(step)
                gates = first_rows(self.gates(read, self.bias), active)
            else:
                gates = first_rows(self.gates.plus(read, step), active)
            _update(gates, gates.chunk(4, dim=1), cells, hidden, self.cell_clip)
            _write(hidden if self.projection is None else first_rows(self.projection(projected), active), output, self)
            h.copy_(output)
        return both[:, width:]

    def _inputs(self, inputs: Tensor, rows: Sequence[int]) -> Iterator[Tensor]:
        """Yield the inputs of each step; of a large model their part of the gates, with room for `rounded_up` rows."""
        if self.small:
            yield from _steps(inputs, rows)
            return
        for part, block in _blocks(inputs, rows):
            starts = accumulate(block[:-1], initial=0)
            steps = [slice(first, first + rounded_up(active)) for first, active in zip(starts, block, strict=True)]
            with_room = part.new_zeros(rounded_up(max(step.stop for step in steps)), part.shape[1])
            with_room[: len(part)] = part
            to_gates = self.from_inputs(with_room, self.bias)
            yield from (to_gates[step] for step in steps)


class OneSentence:
    """The steps of one sentence in one direction of a layer, or in both at once: then they share all operations but the
    products. Little is allocated, and no view is made twice, because the calls take the time.
    """

    def __init__(self, lstms: Sequence[PackedLSTM], products: OfOne) -> None:
        self.lstms, self.products = lstms, products

    def __call__(self, inputs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run over inputs (T, S, D) from h (S, D) and c (S, H); return outputs (T, S, D), and h and c at the end."""
        c = 2 * c
        outputs = inputs.new_empty(*inputs.shape[:2], self.lstms[0].dim)
        self.run(inputs, h, c, outputs)
        return outputs, outputs[-1] if len(outputs) else h, c.div_(2)

    def run(self, inputs: Tensor, h: Tensor, c: Tensor, outputs: Tensor) -> None:
        """Run over inputs (T, S, D) from h (S, D) and twice c (S, H), which changes; write outputs (T, S, D)."""
        first, (to_gates, project) = self.lstms[0], self.products
        h, c = h[:, None], c[:, None]
        gates, hidden = c.new_empty(len(c), 1, 4 * first.cell), torch.empty_like(c)
        parts = gates.chunk(4, dim=2)
        for block, written in zip(torch.split(inputs, BLOCK_TOKENS), torch.split(outputs, BLOCK_TOKENS), strict=True):
            sides = [lstm.from_inputs(side, lstm.bias) for lstm, side in zip(self.lstms, block.unbind(1), strict=True)]
            steps = torch.stack(sides, dim=1)[:, :, None].unbind()
            for step, output in zip(steps, written[:, :, None].unbind(), strict=True):
                to_gates.plus(h, step, gates)
                _update(gates, parts, c, hidden, first.cell_clip)
                _write(hidden if project is None else project(hidden), output, first)
                h = output


def _update(gates: Tensor, parts: Sequence[Tensor], c: Tensor, hidden: Tensor, cell_clip: float | None) -> None:
    """Compute new cells from the gates, whose four `parts` are views, in place; and half of what is projected."""
    i, f, o, candidate = parts
    candidate.add_(candidate)  # a number would first be made a tensor, which takes as long again
    gates.sigmoid_()
    c.mul_(f).addcmul_(i, candidate, value=4).sub_(i, alpha=2)
    if cell_clip is not None:
        c.clamp_(-2 * cell_clip, 2 * cell_clip)
    torch.sigmoid(c, out=hidden)
    hidden.mul_(o).sub_(o, alpha=0.5)


def _write(projected: Tensor, output: Tensor, lstm: PackedLSTM) -> None:
    """Write the output of a step: clipped; or, without a projection, twice what `_update` computes."""
    if lstm.projection is None:
        torch.mul(projected, 2, out=output)
    elif lstm.proj_clip is None:
        output.copy_(projected)
    else:
        torch.clamp(projected, -lstm.proj_clip, lstm.proj_clip, out=output)


def _blocks(x: Tensor, rows: Sequence[int]) -> Iterator[tuple[Tensor, list[int]]]:
    """Yield blocks of packed rows, (N, ·), and the numbers of rows of their steps."""
    first = 0
    for block in blocks(rows, BLOCK_TOKENS):
        size = sum(block)
        yield x[first : first + size], block
        first += size


def _steps(x: Tensor, rows: Sequence[int]) -> Iterator[Tensor]:
    """Yield views of packed rows, (N, ·), step by step: made for a block at once, which is faster than one by one."""
    for part, block in _blocks(x, rows):
        yield from torch.split_with_sizes(part, block)


def _last(outputs: Tensor, rows: Sequence[int], h: Tensor) -> Tensor:
    """Return h after each sentence's last token; of a sentence without tokens, the one before it."""
    h = h.clone()
    first = 0
    for active, following in zip(rows, [*rows[1:], 0], strict=True):
        if following < active:
            h[following:active] = outputs[first + following : first + active]
        first += active
    return h
