"""`Layers`, the output of the biLM, which mixes read."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Layers:
    """The layers of a batch. Layer 0 is the token vector twice, `[x; x]`; layer j is `[forward_j; backward_j]`."""

    activations: Tensor  # (L+1, B, T, 2D), zero where there is no token
    mask: Tensor  # (B, T), true where there is a token

    def without_boundaries(self) -> "Layers":
        """Return the layers without `<S>` and `</S>`: T becomes two less."""
        mask = self.mask[:, 2:]
        return Layers(self.activations[:, :, 1:-1] * mask[..., None], mask)
