"""MATRICES ◀─▶ INT8: each output of a matrix has a scale of its own (symmetric quantization).

q = round(w / scale) in [-127, 127] and w ≈ q · scale. The scale is the largest value of the output, divided by 127:
clipping a few large values instead gained nothing on any matrix of a trained model.
"""

import torch
from torch import Tensor

from elmo.model.kernels.products import rounded

SCALE = ".scale"  # the name of a matrix's scales is the matrix's name with this ending


def quantize(matrix: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Quantize a matrix to int8 values and float32 scales; `axis` is the one that a product sums over."""
    values, scale = rounded(matrix.float(), axis)
    return values.to(torch.int8), scale


def dequantize(values: Tensor, scale: Tensor) -> Tensor:
    """Return the matrix in float32."""
    return values.float().mul_(scale)  # in place: no second matrix of this size in memory
