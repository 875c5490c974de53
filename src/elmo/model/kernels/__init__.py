"""FAST IMPLEMENTATIONS of parts of the model. Each kernel is tested against the reference implementation.

    lstm_inference             the LSTM without a gradient, in PyTorch operations, on any device
    lstm_training              the LSTM with a gradient, likewise
    lstm_cpu, char_cnn_cpu     inference on a CPU with packed matrices (`products`), used through `model/packed.py`
    lstm_gpu, char_cnn_gpu,    Triton kernels, between the matrix products of cuBLAS
    highway_gpu, softmax_gpu

The caller chooses, by `triton_computes`; `BiLM.reference = True` switches all of them off.
"""

from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo.model.device import without_autocast

# Values of the widest filter's window (its width times the size of a character's vector) up to which char_cnn_gpu is
# used: a tile of larger windows may not fit into the shared memory of a GPU. bilm-tf's models have 112.
MAX_WINDOW = 256

Gradients = tuple[Tensor | None, ...]


class LSTMLayer(NamedTuple):
    """Weights and settings of one LSTM layer. Gates are in the order input, forget, output, candidate."""

    weight_input: Tensor  # (S, D_in, 4H)
    weight_hidden: Tensor  # (S, D, 4H)
    bias: Tensor  # (S, 4H)
    weight_projection: Tensor | None  # (S, H, D)
    forget_bias: float
    cell_clip: float | None
    proj_clip: float | None


def triton_computes(tensor: Tensor) -> bool:
    """Whether Triton kernels compute this: on a CUDA device that supports bfloat16, and not in float64."""
    return tensor.is_cuda and tensor.dtype in (torch.float32, torch.bfloat16) and _triton_runs_on(tensor.device)


def exact_backward(backward: Callable[..., Gradients]) -> Any:
    """Decorate a `backward`: it computes in the dtypes of its `forward`, also inside `torch.autocast`."""

    @wraps(backward)
    def exact(ctx: Any, *gradients: Tensor | None) -> Gradients:
        with without_autocast(next(gradient for gradient in gradients if gradient is not None)):
            return backward(ctx, *gradients)

    return exact


@cache
def _triton_runs_on(device: torch.device) -> bool:
    return find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (8, 0)
