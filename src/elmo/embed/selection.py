"""LAYERS ─▶ SELECTED LAYERS: all, one, their average, or a weighted sum; in float32 or float16."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import ConfigError

LayersArgument = str | int | Sequence[float]
Array = npt.NDArray[np.floating[Any]]

DTYPES = {"float32": torch.float32, "float16": torch.float16}


@dataclass(frozen=True)
class Selection:
    """All layers (`weights` is None), or a weighted sum of them."""

    weights: tuple[float, ...] | None
    dtype: torch.dtype = torch.float32

    @classmethod
    def parse(cls, layers: LayersArgument, n_layers: int, dtype: str = "float32") -> "Selection":
        """Parse `"all"`, `"top"`, `"average"`, the number of a layer (also as a string), or one weight per layer."""
        if dtype not in DTYPES:
            raise ConfigError(f"dtype is {dtype!r}; expected one of {', '.join(DTYPES)}")
        return cls(_weights(layers, n_layers), DTYPES[dtype])

    def n_needed(self, n_layers: int) -> int:
        """Return how many of the model's `n_layers` layers are needed, counted from layer 0."""
        used = range(n_layers) if self.weights is None else [k for k, weight in enumerate(self.weights) if weight]
        return max(used, default=0) + 1

    def apply(self, layers: list[Tensor]) -> Tensor:
        """Select: L+1 tensors (N, 2D), or those that are needed ─▶ (L+1, N, 2D) or (N, 2D)."""
        return self._selected(layers).to(self.dtype)

    def empty(self, n_layers: int, dim: int) -> Array:
        """Return the array of a sentence without tokens."""
        shape = (n_layers, 0, dim) if self.weights is None else (0, dim)
        array: Array = torch.empty(shape, dtype=self.dtype, device="cpu").numpy()
        return array

    def _selected(self, layers: list[Tensor]) -> Tensor:
        if self.weights is None:
            return torch.stack(layers)
        if sorted(self.weights) == [0.0] * (len(self.weights) - 1) + [1.0]:
            return layers[self.weights.index(1.0)]
        total = layers[0] * self.weights[0]
        for layer, weight in zip(layers[1:], self.weights[1:], strict=False):  # without layers above the last one used
            total.add_(layer, alpha=weight)
        return total


def _weights(layers: LayersArgument, n_layers: int) -> tuple[float, ...] | None:
    """Return one weight per layer, or None for all layers."""
    if isinstance(layers, str):
        names = {"all": None, "average": (1.0 / n_layers,) * n_layers, "top": _only(n_layers - 1, n_layers)}
        if layers in names:
            return names[layers]
        layers = int(layers) if layers.isdecimal() else layers
    try:
        if not isinstance(layers, Iterable):
            if 0 <= index(layers) < n_layers:
                return _only(index(layers), n_layers)
        elif not isinstance(layers, str):
            weights = tuple(float(weight) for weight in layers)
            if len(weights) == n_layers:
                return weights
    except (TypeError, ValueError):
        pass
    raise ConfigError(
        f"layers is {layers!r}; this model has {n_layers}: expected all, top, average, 0 to {n_layers - 1}, "
        f"or a list of {n_layers} weights"
    )


def _only(layer: int, n_layers: int) -> tuple[float, ...]:
    return tuple(float(k == layer) for k in range(n_layers))
