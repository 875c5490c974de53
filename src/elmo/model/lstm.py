"""TOKEN VECTORS ─▶ CONTEXT (paper, section 3.1): one layer of LSTMs with projection and clipping, in S directions.

inputs (S, N, D) packed, state (S, B, D) and (S, B, H) ─▶ outputs (S, N, D), state after each sentence's last token

The forward and the backward LSTM of a layer are independent. They are computed together because one batched product is
faster than two; the backward one gets its sentences reversed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.checks import LARGEST, MOST_LAYERS, check_integer
from elmo.model.kernels import LSTMLayer, triton_computes
from elmo.model.kernels.lstm_inference import lstm_inference
from elmo.model.kernels.lstm_training import lstm_training

LARGEST_CLIP = 3e38  # a number of float32
FORGET_BIAS = 1.0  # added at run time, never part of the bias: as the published weights were trained


class State(NamedTuple):
    """Outputs h and cells c of the LSTMs. The state of a biLM has a leading layer axis: (L, S, B, ·)."""

    h: Tensor  # (S, B, D)
    c: Tensor  # (S, B, H)


@dataclass(frozen=True)
class LSTMConfig:
    """Sizes of the LSTMs. Names are those of options.json, defaults those of the published models."""

    dim: int = 4096  # H
    projection_dim: int = 512  # D
    n_layers: int = 2
    cell_clip: float | None = 3.0
    proj_clip: float | None = 3.0
    use_skip_connections: bool = True

    def __post_init__(self) -> None:
        for name, most in (("dim", LARGEST), ("projection_dim", LARGEST), ("n_layers", MOST_LAYERS)):
            check_integer(f"lstm.{name}", getattr(self, name), maximum=most)
        for name in ("cell_clip", "proj_clip"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < LARGEST_CLIP):
                raise ConfigError(f"lstm.{name} is {value!r}; expected a positive number, or null for no clipping")
            if value is not None:  # options.json has 3, other files 3.0: equal configs must look equal in a fingerprint
                object.__setattr__(self, name, float(value))


def clip(x: Tensor, limit: float | None) -> Tensor:
    """Limit every value to ±limit."""
    return x if limit is None else x.clamp(-limit, limit)


class ProjectedLSTM(nn.Module):
    """S independent LSTMs of one layer. Gates are in the order input, forget, output, candidate."""

    def __init__(self, input_dim: int, config: LSTMConfig, directions: int = 1) -> None:
        super().__init__()
        self.config = config
        self.reference = False  # compute with `forward_reference` instead of a kernel
        h, d = config.dim, config.projection_dim
        self.weight_input = nn.Parameter(torch.empty(directions, input_dim, 4 * h))
        self.weight_hidden = nn.Parameter(torch.empty(directions, d, 4 * h))
        self.bias = nn.Parameter(torch.empty(directions, 4 * h))
        self.weight_projection = nn.Parameter(torch.empty(directions, h, d)) if h != d else None
        if not self.bias.is_meta:
            self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Set Glorot's uniform values, with `[x; h] ─▶ gates` counted as one matrix, and a bias of zeros."""
        limit = (6.0 / (self.weight_input.shape[1] + self.weight_hidden.shape[1] + self.bias.shape[1])) ** 0.5
        self.weight_input.uniform_(-limit, limit)
        self.weight_hidden.uniform_(-limit, limit)
        self.bias.zero_()
        if self.weight_projection is not None:
            limit = (6.0 / sum(self.weight_projection.shape[1:])) ** 0.5
            self.weight_projection.uniform_(-limit, limit)

    @property
    def layer(self) -> LSTMLayer:
        """The weights and settings, as the kernels take them."""
        return LSTMLayer(
            self.weight_input,
            self.weight_hidden,
            self.bias,
            self.weight_projection,
            FORGET_BIAS,
            self.config.cell_clip,
            self.config.proj_clip,
        )

    def forward(self, inputs: Tensor, rows: Sequence[int], state: State) -> tuple[Tensor, State]:
        """Run over packed inputs, `rows[t]` of them at step t; a sentence that has ended keeps its state."""
        if self.reference:
            return self.forward_reference(inputs, rows, state)
        if triton_computes(inputs):
            from elmo.model.kernels.lstm_gpu import lstm_gpu as lstm
        elif torch.is_grad_enabled() and any(t.requires_grad for t in (inputs, *state, *self.parameters())):
            lstm = lstm_training
        else:
            lstm = lstm_inference
        outputs, h, c = lstm(inputs, rows, state.h, state.c, self.layer)
        return outputs, State(h, c)

    def forward_reference(self, inputs: Tensor, rows: Sequence[int], state: State) -> tuple[Tensor, State]:
        """Compute the same as `forward`, readably. The kernels give the same numbers faster."""
        inputs_to_gates = torch.baddbmm(self.bias[:, None], inputs, self.weight_input)  # (S, N, 4H)
        h, c = state
        outputs, ended = [], []
        for gates, active in zip(torch.split(inputs_to_gates, list(rows), dim=1), rows, strict=True):
            if active < h.shape[1]:
                ended.append(State(h[:, active:], c[:, active:]))
            h, c = self.step(gates, State(h[:, :active], c[:, :active]))
            outputs.append(h)
        ended.append(State(h, c))
        final = State(*(torch.cat(parts, dim=1) for parts in zip(*reversed(ended), strict=True)))
        return torch.cat(outputs, dim=1) if outputs else inputs[:, :, : self.config.projection_dim], final

    def step(self, inputs_to_gates: Tensor, state: State) -> State:
        """Process one token of every active sentence: gates (S, B, 4H) ─▶ new state."""
        gates = torch.baddbmm(inputs_to_gates, state.h, self.weight_hidden)
        i, f, o, candidate = gates.chunk(4, dim=2)
        c = torch.sigmoid(f + FORGET_BIAS) * state.c + torch.sigmoid(i) * torch.tanh(candidate)
        c = clip(c, self.config.cell_clip)
        h = (torch.sigmoid(o) * torch.tanh(c)).to(state.h.dtype)
        if self.weight_projection is not None:
            h = clip(torch.bmm(h, self.weight_projection), self.config.proj_clip)
        return State(h, c)
