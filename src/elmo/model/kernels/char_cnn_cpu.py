"""`CharCNN` on a CPU, without a gradient, with packed weights.

Differences from the reference, and why:
- A character has one of 262 values, so its products with the filters are computed once, for each place in a window. A
  convolution then adds a few rows of a table: `embedding_bag`. That is several times faster than the product.
- The highways and the projection are products with packed matrices. The two halves of a highway are apart, so that two
  threads can share the few words of one sentence.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from elmo.model.char_cnn import ACTIVATIONS, PADDING_ID, CharCNN, Highway
from elmo.model.kernels.products import PackedProduct, Product
from elmo.model.threads import each

WORDS = 64  # words that are computed together


class PackedCharCNN:
    """A `CharCNN` with packed weights. `product` is the kind of the highways' and the projection's matrix products."""

    def __init__(self, cnn: CharCNN, product: type[Product] = PackedProduct) -> None:
        self.config = cnn.config
        self.activation = ACTIVATIONS[cnn.config.activation]
        self.n_characters = len(cnn.embedding)
        self.tables = [_table(cnn.embedding.detach(), weight.detach()) for weight in cnn.filters]
        self.biases = [bias.detach() for bias in cnn.biases]
        self.highways = [PackedHighway(highway, product) for highway in cnn.highways if isinstance(highway, Highway)]
        self.projection: Product | None = None
        if cnn.projection is not None and cnn.projection_bias is not None:
            projection, self.projection_bias = cnn.projection.detach(), cnn.projection_bias.detach()
            self.projection = product(projection)

    def __call__(self, ids: Tensor) -> Tensor:
        """Character ids (N, C) ─▶ token vectors (N, D)."""
        if len(ids) == 1:  # oneDNN adds up a single row in another order: a word must have one vector, not two
            return self(ids.expand(2, -1))[:1]
        lengths = (ids != PADDING_ID).sum(dim=1)
        order = torch.argsort(lengths)
        # All windows of padding give the same value: after the longest word of a group, a few are enough.
        groups = [ids[group, : int(lengths[group[-1]]) + self.config.widest] for group in _groups(order)]
        vectors = torch.cat(each(self.group, groups))
        return torch.empty_like(vectors).index_copy_(0, order, vectors)

    def group(self, ids: Tensor) -> Tensor:
        """Compute the vectors of words of similar length, (N, C') ─▶ (N, D)."""
        x = self.convolve(ids)
        for highway in self.highways:
            x = highway(x)
        return x if self.projection is None else self.projection(x, self.projection_bias)

    def convolve(self, ids: Tensor) -> Tensor:
        """Convolve and pool: (N, C') ─▶ (N, F)."""
        n, length = ids.shape
        outputs = []
        for (width, count), table, bias in zip(self.config.filters, self.tables, self.biases, strict=True):
            places = length - width + 1
            first_rows = self.n_characters * torch.arange(width, device=ids.device)  # of each place's characters
            rows = ids.unfold(1, width, 1) + first_rows  # (N, places, width)
            scores = nn.functional.embedding_bag(rows.reshape(-1, width), table, mode="sum")
            outputs.append(scores.view(n, places, count).amax(dim=1).add_(bias))
        return self.activation(torch.cat(outputs, dim=1))


def _groups(order: Tensor) -> tuple[Tensor, ...]:
    """Divide words evenly into groups of at most `WORDS`: none is alone."""
    return torch.tensor_split(order, -(-len(order) // WORDS))


class PackedHighway:
    """A `Highway` with packed weights."""

    def __init__(self, highway: Highway, product: type[Product]) -> None:
        # Transposed at once, and as a whole: a half by itself has its rows far apart, and takes three times as long.
        carry, transform = highway.weight.detach().t().contiguous().chunk(2)
        carry_bias, transform_bias = highway.bias.detach().chunk(2)
        self.carry, self.transform = product(carry.t()), product(transform.t())
        self.carry_bias, self.transform_bias = carry_bias, transform_bias

    def __call__(self, x: Tensor) -> Tensor:
        """(N, F) ─▶ (N, F)."""
        halves: list[Callable[[], Tensor]] = [
            lambda: self.carry(x, self.carry_bias).sigmoid_(),
            lambda: self.transform(x, self.transform_bias).relu_(),
        ]
        gate, transformed = each(_compute, halves)
        return torch.lerp(x, transformed, gate)


def _compute(half: Callable[[], Tensor]) -> Tensor:
    return half()


def _table(embedding: Tensor, weight: Tensor) -> Tensor:
    """Return the products of each character with each place of a filter, (width · characters, count)."""
    return torch.cat([embedding @ place for place in weight.chunk(len(weight) // embedding.shape[1])])
