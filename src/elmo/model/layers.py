"""The waist of the hourglass: everything below exists to make `Layers`; everything above only reads it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Layers:
    """The biLM's output for a batch. Layer 0 is the token itself, `[x; x]`; layer j is `[forward_j; backward_j]`."""

    activations: Tensor  # (L+1, B, T, 2D), zero where there is no token
    mask: Tensor  # (B, T), true where there is one

    def without_boundaries(self) -> "Layers":
        """The same without `<S>` and `</S>`: T is two less."""
        mask = self.mask[:, 2:]
        return Layers(self.activations[:, :, 1:-1] * mask[..., None], mask)
