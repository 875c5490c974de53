"""IDS ─▶ ELMo VECTORS FOR A TASK (paper, sections 3.2 and 3.3): a biLM with one or more mixes of its layers.

ids (B, T, C) ─▶ [(B, T−2, 2D)] one per mix, and the mask
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.scalar_mix import ScalarMix, total_penalty


class ElmoOutput(NamedTuple):
    """One tensor per mix, and where their tokens are."""

    representations: list[Tensor]  # n_mixes × (B, T, 2D), or the projection's width
    mask: Tensor  # (B, T)


class HasBiLM(Protocol):
    """Anything that has a biLM, e.g. the `Embedder` that `elmo.load` returns."""

    @property
    def bilm(self) -> BiLM:
        """The biLM."""


class Elmo(nn.Module):
    """A task model's ELMo: the biLM, frozen unless `trainable`, and `n_mixes` mixes with their own γ and weights.

    `bilm` is a `BiLM`, or the `Embedder` that has one. Several `Elmo`s may share one biLM, some frozen and some
    trainable: gradients reach it through the trainable ones alone. Under `torch.autocast` the biLM and the mixes
    compute in the dtype of their weights; dropout and the projection follow autocast.

    Every sentence starts from a zero state, so its vectors do not depend on the batches before it. `weights` are the
    shares that every mix starts from; `keep_boundaries` leaves `<S>` and `</S>` in.
    """

    def __init__(
        self,
        bilm: BiLM | HasBiLM,
        n_mixes: int = 1,
        mix: str = "learned",
        *,
        dropout: float = 0.5,
        trainable: bool = False,
        projection_dim: int | None = None,
        keep_boundaries: bool = False,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
        l2: float = 0.0,
        layer_norm: str | None = None,
    ) -> None:
        super().__init__()
        found = type(bilm).__name__
        bilm = getattr(bilm, "bilm", bilm)
        if not isinstance(bilm, BiLM):
            raise ConfigError(f"Elmo() was given a {found}; expected a BiLM, or the Embedder that elmo.load() returns")
        self.bilm = bilm
        self.trainable = trainable
        self.keep_boundaries = keep_boundaries
        if trainable:
            if bilm.weight.is_inference():
                raise ConfigError(
                    "the biLM was loaded inside torch.inference_mode(), where nothing can be trained; load it outside, "
                    "or leave trainable=False"
                )
            bilm.trained = True
            bilm.requires_grad_(True)
        else:
            bilm.freeze()
        self.mixes = nn.ModuleList(
            ScalarMix(
                bilm.config.n_layers, mix, weights=weights, gamma=gamma, l2=l2, layer_norm=layer_norm, dropout=dropout
            )
            for _ in range(n_mixes)
        )
        self.projection = nn.Identity() if projection_dim is None else nn.Linear(bilm.config.output_dim, projection_dim)

    def forward(self, ids: Tensor) -> ElmoOutput:
        """Character ids (B, T, C), or word ids (B, T), boundaries included."""
        with torch.set_grad_enabled(self.trainable and torch.is_grad_enabled()):
            layers, _ = self.bilm(ids)
            if not self.keep_boundaries:
                layers = layers.without_boundaries()
        representations = [self.projection(mix(layers)) for mix in self.mixes]
        return ElmoOutput(representations, layers.mask)

    def penalty(self) -> Tensor:
        """The mixes' L2 terms, to be added to the task's loss."""
        return total_penalty(mix for mix in self.mixes if isinstance(mix, ScalarMix))
