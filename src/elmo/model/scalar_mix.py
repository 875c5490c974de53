"""LAYERS ─▶ ONE VECTOR PER TOKEN (paper, equation 1): `γ Σ_j softmax(s)_j h_j`, learned by the task, then dropout.

activations (L+1, B, T, 2D), mask (B, T) ─▶ (B, T, 2D)
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.device import without_autocast
from elmo.model.layers import Layers

EPSILON = 1e-12  # of both layer norms, bilm-tf's


def token_layer_norm(x: Tensor) -> Tensor:
    """Normalize each token's vector to mean 0 and variance 1: depends on the token only."""
    return nn.functional.layer_norm(x, x.shape[-1:], eps=EPSILON)


def bilm_tf_layer_norm(x: Tensor, mask: Tensor) -> Tensor:
    """Normalize as bilm-tf does: *one* mean and variance over all tokens and dimensions of a batch, per layer.

    So a token's vector depends on the other sentences of its batch. Padding is not counted; in bilm-tf, neither are
    boundaries.
    """
    weight = mask[..., None].to(x.dtype)
    count = weight.sum() * x.shape[-1]
    mean = (x * weight).sum(dim=(-3, -2, -1), keepdim=True) / count
    variance = ((x - mean) * weight).square().sum(dim=(-3, -2, -1), keepdim=True) / count
    return (x - mean) / torch.sqrt(variance + EPSILON) * weight


class ScalarMix(nn.Module):
    """A weighted mean of the layers, times γ.

    `mix` is "learned" (the paper's), "last", "average" or "layer:j"; γ is learned in each of them, because without it,
    the paper's appendix says, the last layer alone hurts. `weights` are initial values of the learned weights,
    `layer_norm` is None, "token" or "bilm-tf", `l2` is the λ of the penalty on the raw scalars s. `dropout` is applied
    to the mixed vectors in training.
    """

    def __init__(
        self,
        n_layers: int,
        mix: str = "learned",
        *,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
        l2: float = 0.0,
        layer_norm: str | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if layer_norm not in (None, "token", "bilm-tf"):
            raise ConfigError(f"layer_norm is {layer_norm!r}; expected 'token', 'bilm-tf' or none")
        if weights is not None and mix != "learned":
            raise ConfigError(f"weights start a learned mix; this one is {mix!r}")
        self.mix = mix
        self.layer_norm = layer_norm
        self.coefficient = l2
        self.dropout = dropout
        self.gamma = nn.Parameter(torch.tensor(float(gamma)))
        self.scalars: nn.Parameter | None = None
        self.register_buffer("fixed", None)
        if mix == "learned":
            self.scalars = nn.Parameter(_scalars_of(weights, n_layers))
        else:
            self.fixed = _fixed_weights(mix, n_layers)

    @property
    def weights(self) -> Tensor:
        """Weight of each layer, (L+1,); they sum to one."""
        return torch.softmax(self.scalars, dim=0) if self.scalars is not None else self.fixed

    @property
    def only_layer(self) -> int | None:
        """The layer that alone is mixed, of "last" and "layer:j"; else None."""
        return int(self.weights.argmax()) if self.mix == "last" or self.mix.startswith("layer:") else None

    def penalty(self) -> Tensor:
        """Return λ Σ s², to be added to the task's loss: a large λ pulls the mix towards the average."""
        return self.gamma.new_zeros(()) if self.scalars is None else self.coefficient * self.scalars.square().sum()

    def forward(self, layers: Layers) -> Tensor:
        """Mix: (L+1, B, T, 2D) ─▶ (B, T, 2D), in the activations' dtype, also under autocast."""
        activations = layers.activations
        with without_autocast(activations):
            if self.layer_norm == "token":
                activations = token_layer_norm(activations) * layers.mask[..., None]
            elif self.layer_norm == "bilm-tf":
                activations = bilm_tf_layer_norm(activations, layers.mask)
            mixed = self.gamma * torch.einsum("l,lbtd->btd", self.weights.to(activations.dtype), activations)
        return nn.functional.dropout(mixed, self.dropout, self.training)

    def extra_repr(self) -> str:
        """Return the weights, for `print(mix)`."""
        shares = ", ".join(f"{share:.3f}" for share in self.weights.tolist())
        dropout = f", dropout {self.dropout}" if self.dropout else ""
        return f"{self.mix}: [{shares}] × {self.gamma.item():.3f}{dropout}"


def total_penalty(mixes: Iterable[ScalarMix]) -> Tensor:
    """Sum the L2 terms of several mixes; zero if there are none."""
    terms = [mix.penalty() for mix in mixes]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def _scalars_of(weights: Sequence[float] | None, n_layers: int) -> Tensor:
    """Return the scalars whose softmax gives these weights."""
    if weights is None:
        return torch.zeros(n_layers)
    if len(weights) != n_layers or min(weights) <= 0:
        raise ConfigError(f"weights are {list(weights)}; expected {n_layers} positive shares, one per layer")
    shares = torch.tensor(weights, dtype=torch.float32)
    return torch.log(shares / shares.sum())


def _fixed_weights(mix: str, n_layers: int) -> Tensor:
    if mix == "average":
        return torch.full((n_layers,), 1.0 / n_layers)
    name, _, digits = mix.partition(":")
    layer = n_layers - 1 if mix == "last" else int(digits) if name == "layer" and digits.isdecimal() else -1
    if not 0 <= layer < n_layers:
        raise ConfigError(f"mix is {mix!r}; expected learned, last, average or layer:0 to layer:{n_layers - 1}")
    return torch.nn.functional.one_hot(torch.tensor(layer), n_layers).float()
