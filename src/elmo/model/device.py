"""Where the numbers are computed, and how precisely."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from elmo.errors import ConfigError

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def device_named(name: str) -> torch.device:
    """The device of that name, if it is there; "auto" is the first GPU, or the CPU."""
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
    """A copy in memory that a GPU copies from by itself."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copy.numpy()[...] = tensor.numpy()  # PyTorch would wake all its threads for it
    return copy


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The same on a device. A GPU fetches it when it comes to that, and nobody waits for it."""
    return pinned(tensor).to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def product_dtype(tensor: Tensor) -> torch.dtype:
    """What matrix products of this tensor are computed in: its own precision, or autocast's."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast is off on this tensor's device: everything inside is computed in its own dtype.

    The biLM has 2 · T matrix products after each other, and its weights are clipped where they are: it stays exact
    inside a network that is trained in mixed precision. Pretraining uses autocast below this level, in
    `BiLM.run_lstms`.
    """
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
