"""MATRICES ◀─▶ INT8: each output of a matrix has a scale of its own (symmetric quantization).

q = round(w / scale) in [-127, 127] and w ≈ q · scale. The scale is the largest value of the output, divided by 127:
clipping a few large values instead gained nothing on any matrix of a trained model.
"""

import torch
from torch import Tensor

SCALE = ".scale"  # the name of a matrix's scales is the matrix's name with this ending
LARGEST = 127


def quantize(matrix: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Quantize a matrix to int8 values and float32 scales; `axis` is the one that a product sums over."""
    matrix = matrix.float()
    scale = matrix.abs().amax(dim=axis, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / LARGEST
    return torch.round(matrix / scale).to(torch.int8), scale


def dequantize(values: Tensor, scale: Tensor) -> Tensor:
    """Return the matrix in float32."""
    return values.float().mul_(scale)  # in place: no second matrix of this size in memory
