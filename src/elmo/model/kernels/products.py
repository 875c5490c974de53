"""Matrix products with a matrix that stays the same: it is packed once, as the processor reads it fastest.

    PackedProduct    float32, by oneDNN. A plain product packs its matrix in every call
    Int8Product      int8 values with a scale per column; the rows of x are quantised with a scale per row

oneDNN adds up a row of the result in the same order whatever rows are beside it, and integers are exact: a row of the
result does not depend on the batch. The operators are private to PyTorch; `can_pack` says whether they are there.
"""

from collections.abc import Callable
from functools import cache
from threading import Lock

import torch
from torch import Tensor

ROWS = 32  # rows that the packing is made for: the best, or nearly, for 8 to 512
LARGEST = 127  # of an int8 value; −128 is not used
ZERO_POINT = 128  # rows are stored as uint8, shifted: processors multiply uint8 by int8

_packing = Lock()


class Lazy:
    """A tensor that is computed when it is first used, by one thread."""

    def __init__(self, compute: Callable[[], Tensor]) -> None:
        self._compute = compute
        self._tensor: Tensor | None = None

    def __call__(self) -> Tensor:
        """Return the tensor."""
        if self._tensor is None:
            with _packing:
                if self._tensor is None:
                    self._tensor = self._compute()
        return self._tensor


class PackedProduct:
    """x (M, K) ─▶ x · matrix, (M, N), for a matrix (K, N) in float32, packed at its first use."""

    def __init__(self, matrix: Callable[[], Tensor]) -> None:
        self._packed = Lazy(
            lambda: torch.ops.mkldnn._reorder_linear_weight.default(matrix().t().contiguous(), ROWS)  # (N, K)
        )

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x · matrix + bias, a new tensor."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._packed(), bias, "none", [], "")
        return product

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """Return x · matrix + other (M, N), a new tensor."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self._packed(), None, "add")
        return product


@cache
def can_pack() -> bool:
    """Whether this PyTorch packs matrices for oneDNN, and computes the right product with them."""
    try:
        x, matrix, other = torch.rand(3, 4), torch.rand(4, 5), torch.rand(3, 5)
        product = PackedProduct(lambda: matrix)
        found = torch.stack([product(x), product(x, other[0]), product.plus(x, other)])
        return bool(torch.allclose(found, torch.stack([x @ matrix, x @ matrix + other[0], x @ matrix + other])))
    except (AttributeError, RuntimeError, TypeError):
        return False
