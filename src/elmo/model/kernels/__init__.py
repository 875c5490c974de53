"""The same mathematics as the plain modules, for speed. Each is tested against the plain path, which readers read.

    in_place, with_gradient    PyTorch's operations, on any device: the LSTM without and with a gradient
    lstm_gpu, char_cnn_gpu,    Triton's kernels, between the products that cuBLAS makes
    highway_gpu, softmax_gpu

Which one computes is chosen where it is called, by `triton_computes`; `BiLM.plain` asks for the plain path.
"""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def triton_computes(tensor: Tensor) -> bool:
    """Whether Triton's kernels take this: a CUDA device's, of a generation that knows bfloat16, not in float64."""
    return tensor.is_cuda and tensor.dtype in (torch.float32, torch.bfloat16) and _triton_runs_on(tensor.device)


@cache
def _triton_runs_on(device: torch.device) -> bool:
    return find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (8, 0)
