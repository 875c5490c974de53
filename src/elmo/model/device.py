"""Devices and dtypes of the computation."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from elmo.errors import ConfigError

# Names of precisions, and the dtype of the weights. In int8, their packed copy is what computes.
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.float32}


def device_named(name: str) -> torch.device:
    """Return the device of that name, or a ConfigError if there is none; "auto" is the first GPU, or the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):
        there = ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
        raise ConfigError(f"device {name!r} is not available; on this machine: auto, {', '.join(there)}") from None
    return device


def pinned(tensor: Tensor) -> Tensor:
    """Return a copy in pinned memory, which a GPU reads without the CPU."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copy.numpy()[...] = tensor.numpy()  # Tensor.copy_ would start all of PyTorch's threads
    return copy


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on a device. The copy to a GPU is asynchronous."""
    return pinned(tensor).to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def product_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype of this tensor's matrix products: its own, or autocast's."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast is off on this tensor's device: everything inside keeps its own dtype.

    The biLM makes 2 · T matrix products in sequence, so rounding errors add up; it stays exact inside a network that
    is trained in mixed precision. Pretraining uses autocast below this level, in `BiLM.run_lstms`.
    """
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
