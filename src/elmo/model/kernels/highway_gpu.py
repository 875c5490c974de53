"""`Highway` on a GPU: everything after the matrix product, and its gradient, in one pass over memory each.

The gates' gradients overwrite the gates.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from elmo.model.device import product_dtype
from elmo.model.kernels import exact_backward

BLOCK = 1024  # elements per program


def highway_gpu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute the highway: x (N, F), weight (F, 2F) and bias (2F,), carry and transform side by side ─▶ (N, F)."""
    with torch.cuda.device_of(x):
        result: Tensor = _Highway.apply(x, weight, bias)
    return result


class _Highway(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        low = product_dtype(x)
        ctx.dtypes = x.dtype, weight.dtype, bias.dtype
        x, weight = x.to(low).contiguous(), weight.to(low)
        gates = torch.mm(x, weight)
        result = torch.empty_like(x)
        _forward[triton.cdiv(x.numel(), BLOCK),](x, gates, bias, result, x.numel(), x.shape[1], BLOCK)
        ctx.save_for_backward(x, weight, bias, gates)
        return result

    @staticmethod
    @exact_backward
    @once_differentiable
    def backward(ctx: Any, d_result: Tensor) -> tuple[Tensor, ...]:
        x, weight, bias, gates = ctx.saved_tensors
        d_x = torch.empty_like(x)
        _backward[triton.cdiv(x.numel(), BLOCK),](
            x, gates, bias, d_result.contiguous(), d_x, x.numel(), x.shape[1], BLOCK
        )
        increment_version(gates)  # refuse a second backward pass: the gates are overwritten
        gradients = d_x.addmm_(gates, weight.t()), torch.mm(x.t(), gates), gates.sum(dim=0, dtype=torch.float32)
        return tuple(gradient.to(dtype) for gradient, dtype in zip(gradients, ctx.dtypes, strict=True))


@triton.jit
def _gates(x, gates, bias, dim, BLOCK: tl.constexpr, numbers):
    """Load some elements of x: their places, values, gate values, and the transform before its ReLU."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < numbers
    column = place % dim
    gate = (place // dim).to(tl.int64) * 2 * dim + column
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    carry = tl.load(gates + gate, mask=inside, other=0.0).to(tl.float32) + tl.load(bias + column).to(tl.float32)
    transform = tl.load(gates + gate + dim, mask=inside, other=0.0).to(tl.float32)
    transform += tl.load(bias + dim + column).to(tl.float32)
    return place, inside, gate, value, tl.sigmoid(carry), transform


@triton.jit
def _forward(x, gates, bias, result, numbers, dim, BLOCK: tl.constexpr):
    """g·relu(transform) + (1 − g)·x."""
    place, inside, _, value, g, transform = _gates(x, gates, bias, dim, BLOCK, numbers)
    value = g * tl.where(transform > 0.0, transform, transform * 0.0) + (1.0 - g) * value
    tl.store(result + place, value.to(result.dtype.element_ty), mask=inside)


@triton.jit
def _backward(x, gates, bias, d_result, d_x, numbers, dim, BLOCK: tl.constexpr):
    place, inside, gate, value, g, transform = _gates(x, gates, bias, dim, BLOCK, numbers)
    d = tl.load(d_result + place, mask=inside, other=0.0).to(tl.float32)
    d_carry = d * (tl.maximum(transform, 0.0) - value) * g * (1.0 - g)
    d_transform = tl.where(transform > 0.0, d * g, 0.0)
    dtype = gates.dtype.element_ty
    tl.store(d_x + place, (d * (1.0 - g)).to(dtype), mask=inside)
    tl.store(gates + gate, d_carry.to(dtype), mask=inside)
    tl.store(gates + gate + dim, d_transform.to(dtype), mask=inside)
