"""Matrix products with a matrix that stays the same: it is packed once, as the processor reads it fastest.

    PackedProduct    float32, by oneDNN. A plain product packs its matrix in every call
    Int8Product      int8 values with a scale per column; the rows of x are quantised with a scale per row
    SingleRows       float32 and Int8SingleRows: the same for single rows with small matrices, a row for each matrix

oneDNN adds up a row of the result in the same order whatever rows are beside it, and integers are exact: a row of the
result does not depend on the batch. The operators are private to PyTorch: `can_pack` and `can_pack_int8` try them.

oneDNN compiles a kernel for each number of rows, and keeps it, with half a megabyte. So numbers of rows are rounded up.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

ROWS = 32  # rows that the packing is made for: the best, or nearly, for 8 to 512
LARGEST = 127  # of a quantised value; −128 is not used
_LARGEST = torch.tensor(float(LARGEST), device="cpu")  # a number would be made a tensor in every call
EXACT_TERMS = 2**24 // LARGEST**2  # so many products of two quantised values have an exact sum in float32
SMALL = 1 << 20  # values of a small matrix
ZERO_POINT = 128  # the rows of x are stored as uint8, shifted by it: processors multiply uint8 by int8
_ZERO_POINT = torch.tensor(float(ZERO_POINT), device="cpu")


FEW_ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)  # numbers of rows that are computed; above, multiples of 64


def rounded_up(rows: int) -> int:
    """Round up to a number of rows that products are computed with: one of `FEW_ROWS`, or a multiple of 64."""
    return FEW_ROWS[bisect_left(FEW_ROWS, rows)] if rows <= FEW_ROWS[-1] else -(-rows // 64) * 64


def rounded_down(rows: int) -> int:
    """Round down to a number of rows that products are computed with."""
    return FEW_ROWS[bisect_right(FEW_ROWS, rows) - 1] if rows <= FEW_ROWS[-1] else rows // 64 * 64


def _with_rows(x: Tensor, rows: int) -> Tensor:
    """Return x with this many rows; the values of those at the end are arbitrary."""
    given = x.size(0)  # len(x) takes several times as long
    if given == rows:
        return x
    filled = x.new_zeros(rows, x.size(1))
    filled[:given] = x
    return filled


def first_rows(x: Tensor, count: int) -> Tensor:
    """Return the first rows; x itself if it has no more, because making a view takes time."""
    return x if x.size(0) == count else x[:count]


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x · weightᵀ + bias, (M, N), for a weight (N, K) that is not packed: on a CPU in float32 by oneDNN, too.

    PyTorch's own product of float32 is MKL's there, which takes twice as long on processors that are not Intel's.
    """
    if x.device.type != "cpu" or {x.dtype, weight.dtype, bias.dtype} != {torch.float32} or not can_pack():
        return torch.addmm(bias, x, weight.t())
    rows = _with_rows(x, max(rounded_up(x.size(0)), 2))  # a single row would be added up in another order
    found: Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, weight, bias, "none", [], "")
    return first_rows(found, x.size(0))


@contextmanager
def onednn_products(device: torch.device) -> Iterator[None]:
    """Inside this context, on a CPU, PyTorch's own float32 products are oneDNN's instead of MKL's, where that is exact.

    PyTorch has no setting for it alone: it takes oneDNN's if it may round what they multiply to bfloat16, which oneDNN
    does with AMX and on ARM. There nothing changes. The setting is one of the whole process, so this is for training.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cpu" and _medium_is_exact():
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class PackedProduct:
    """x (M, K) ─▶ x · matrix, (M, N), for a matrix (K, N) in float32."""

    def __init__(self, matrix: Tensor) -> None:
        # Of a view (N, K): a copy of a large matrix would take time and memory.
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight.default(matrix.t(), ROWS)

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x · matrix + bias, a new tensor."""
        rows = _with_rows(x, rounded_up(x.size(0)))
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, self._packed, bias, "none", [], "")
        return first_rows(product, x.size(0))

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """Return x · matrix + other (M, N), a new tensor."""
        count = rounded_up(x.size(0))
        rows, others = _with_rows(x, count), _with_rows(other, count)
        product: Tensor = torch.ops.mkldnn._linear_pointwise.binary(rows, others, self._packed, None, "add")
        return first_rows(product, x.size(0))

    def matrix(self) -> Tensor:
        """Return the matrix (K, N), equal to the bit."""
        return self._packed.to_dense().t()


class Int8Product:
    """x (M, K) ─▶ x · matrix, (M, N), with both in int8: the matrix by columns, and x by rows.

    A column's scale is its largest value / 127, as in a model folder with int8 matrices, whose values it finds again.
    """

    def __init__(self, matrix: Tensor) -> None:
        self._packed, self._columns, self._zeros = _pack_int8(matrix)

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x · matrix + bias, a new tensor."""
        product, scale = self._by_columns(x)
        return product.mul_(scale) if bias is None else torch.addcmul(bias, product, scale, out=product)

    def plus(self, x: Tensor, other: Tensor, out: Tensor | None = None) -> Tensor:
        """Return x · matrix + other (M, N), in `out` or a new tensor."""
        product, scale = self._by_columns(x)
        return torch.addcmul(other, product, scale, out=product if out is None else out)

    def _by_columns(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the product with the integers of x, and the scale of each row, (M, 1)."""
        rows, scale = rounded(x, 1)
        return self.of_integers(rows), scale

    def of_integers(self, rows: Tensor) -> Tensor:
        """Return the product of integers, (M, K) in float32, which change, with the matrix."""
        count = rows.size(0)
        shifted = _with_rows(rows.add_(_ZERO_POINT).to(torch.uint8), rounded_up(count))
        product: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            *(shifted, 1.0, ZERO_POINT, self._packed, self._columns, self._zeros),
            *(None, 1.0, 0, torch.float32, "none", [], ""),
        )
        return first_rows(product, count)


class RoundedProduct:
    """What `Int8Product` computes, in float32: for processors that cannot multiply int8. It is slower than float32."""

    def __init__(self, matrix: Tensor) -> None:
        self._rounded = torch.mul(*rounded(matrix, 0))

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x · matrix + bias, a new tensor."""
        product = torch.mul(*rounded(x, 1)) @ self._rounded
        return product if bias is None else product.add_(bias)

    def plus(self, x: Tensor, other: Tensor, out: Tensor | None = None) -> Tensor:
        """Return x · matrix + other (M, N), in `out` or a new tensor."""
        return torch.addmm(other, torch.mul(*rounded(x, 1)), self._rounded, out=out)


class SingleRows:
    """x (S, 1, K) ─▶ x · matrices, (S, 1, N), for S small matrices (K, N) in float32, as they are: fast for one row."""

    def __init__(self, matrices: Tensor) -> None:
        self._matrices = matrices

    def __call__(self, x: Tensor) -> Tensor:
        """Return the products, a new tensor."""
        return torch.bmm(x, self._matrices)

    def plus(self, x: Tensor, other: Tensor, out: Tensor) -> Tensor:
        """Return the products + other (S, 1, N), in `out`."""
        return torch.baddbmm(other, x, self._matrices, out=out)

    def of(self, direction: int) -> "SingleRows":
        """Return the products with one of the matrices."""
        return SingleRows(self._matrices[direction : direction + 1])


class Int8SingleRows:
    """What `Int8Product` computes, for x (S, 1, K) and S small matrices (K, N).

    A call of oneDNN's operator takes long, whatever its size. So one call has all matrices, side by side: every row is
    multiplied with all of them, and the products with its own are returned. Where even that takes longer, with few
    columns, the integers are multiplied in float32, where their sums are exact.
    """

    def __init__(self, matrices: Tensor) -> None:
        self._matrices = matrices
        self._products: Int8Product | SingleRows
        if matrices.shape[2] > matrices.shape[1]:
            self._products = Int8Product(torch.cat(list(matrices), dim=1))
        else:
            integers, self._columns = rounded(matrices, 1)
            self._products = SingleRows(integers)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the products, a new tensor."""
        product, scale = self._by_columns(x)
        return product.mul_(scale)

    def plus(self, x: Tensor, other: Tensor, out: Tensor) -> Tensor:
        """Return the products + other (S, 1, N), in `out`."""
        product, scale = self._by_columns(x)
        return torch.addcmul(other, product, scale, out=out)

    def of(self, direction: int) -> "Int8SingleRows":
        """Return the products with one of the matrices."""
        return Int8SingleRows(self._matrices[direction : direction + 1])

    def _by_columns(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the products with the integers of x, and the scale of each row, (S, 1, 1)."""
        rows, scale = rounded(x, 2)
        if isinstance(self._products, SingleRows):
            return self._products(rows).mul_(self._columns), scale
        count, _, columns = self._matrices.shape
        products = self._products.of_integers(rows[:, 0])
        return products.as_strided((count, 1, columns), ((count + 1) * columns, columns, 1)), scale


Product = PackedProduct | Int8Product | RoundedProduct


def rounded(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return x as integers from −127 to 127, in float32, and the scale of each row (axis 1) or column (axis 0)."""
    scale = x.abs().amax(dim=axis, keepdim=True).clamp_min_(torch.finfo(torch.float32).tiny).div_(_LARGEST)
    return torch.div(x, scale).round_(), scale


def _pack_int8(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the packed values of a matrix (K, N), and the scale and the zero point of each column."""
    integers, scale = rounded(matrix, 0)
    values = integers.to(torch.int8).t().contiguous()
    packed = torch.ops.onednn.qlinear_prepack.default(values, [ROWS, len(matrix)])
    return packed, scale[0], torch.zeros(len(values), dtype=torch.int64, device="cpu")


@cache
def _medium_is_exact() -> bool:
    """Whether float32 products in the precision "medium" are not rounded on this CPU: in bfloat16, 1 + 2⁻¹² is 1."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        ones = torch.ones(256, 256, device="cpu")
        return bool((torch.mm(ones * (1 + 2**-12), ones) == 256 * (1 + 2**-12)).all())
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def can_pack() -> bool:
    """Whether this PyTorch packs matrices for oneDNN, and computes the right product with them."""
    try:
        own = torch.Generator(device="cpu").manual_seed(0)  # the caller's random numbers stay as they are
        x, matrix, other = (torch.rand(*shape, generator=own, device="cpu") for shape in ((3, 4), (4, 5), (3, 5)))
        product = PackedProduct(matrix)
        found = torch.stack([product(x), product(x, other[0]), product.plus(x, other)])
        return bool(torch.allclose(found, torch.stack([x @ matrix, x @ matrix + other[0], x @ matrix + other])))
    except (AttributeError, RuntimeError, TypeError):
        return False


@cache
def can_pack_int8() -> bool:
    """Whether int8 products are exact here: older processors add them up in 16 bits, which are too few."""
    try:
        large = torch.ones(8, 256, device="cpu")
        large[1] = -1.0
        return bool(torch.equal(Int8Product(large.t())(large), RoundedProduct(large.t())(large)))
    except (AttributeError, RuntimeError, TypeError):
        return False
