"""A bidirectional layer over one sequence, without padding: what the layers of task models are compared with."""

from typing import Any

import torch
from torch import Tensor


def both_directions(layer: Any, x: Tensor) -> Tensor:
    """Read x (T, I) forwards by one network of PyTorch, backwards by the other: (T, 2H)."""
    return torch.cat([layer.forwards(x)[0], layer.backwards(x.flip(0))[0].flip(0)], dim=1)
