"""THE LSTMs AS ONE LAUNCH: their several hundred kernels a step, recorded once and replayed (a CUDA graph).

A small model's kernels take less time than it takes to launch them one by one.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from elmo.model.bilm import BiLM
from elmo.model.kernels import triton_computes
from elmo.model.lstm import State
from elmo.pretrain.step import Reader


def reader(bilm: BiLM, rows: int, steps: int, dropout: float, precision: torch.dtype) -> Reader | None:
    """What reads windows of so many rows and steps; none where it cannot be recorded."""
    module = _Reading(bilm, [rows] * steps, dropout)
    names, weights = zip(*module.named_parameters(), strict=True)
    if bilm.plain or not triton_computes(weights[0]) or not all(weight.requires_grad for weight in weights):
        return None

    def reading(inputs: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        replaced = dict(zip(names, weights, strict=True))
        outputs: tuple[Tensor, Tensor, Tensor] = functional_call(module, replaced, (inputs, h, c))
        return outputs

    size = bilm.config.directions, rows * steps, bilm.config.lstm.projection_dim
    inputs = torch.zeros(*size, device=weights[0].device, dtype=precision, requires_grad=True)
    # Stand-ins share the weights' memory, so that what is recorded leaves no trace at the weights themselves.
    stand_ins = [weight.detach().requires_grad_() for weight in weights]
    low = precision == torch.bfloat16
    with warnings.catch_warnings(), torch.autocast("cuda", torch.bfloat16, enabled=low, cache_enabled=False):
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream does not match")  # nothing accumulates yet
        read: Any = torch.cuda.make_graphed_callables(reading, (inputs, *bilm.zero_state(rows), *stand_ins))

    def replay(inputs: Tensor, state: State) -> tuple[Tensor, State]:
        top, h, c = read(inputs.to(precision), *state, *weights)
        return top, State(h, c)

    return replay


class _Reading(nn.Module):
    """Tensors in, tensors out, and of the model's weights only the LSTMs': what a graph is recorded of."""

    def __init__(self, bilm: BiLM, rows: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.lstms = bilm.lstms
        self._read, self._rows, self._dropout = bilm.read, rows, dropout

    def forward(self, inputs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The top layer's outputs, and the state after them."""
        layers, after = self._read(inputs, self._rows, State(h, c), self._dropout)
        return layers[-1], after.h.detach(), after.c.detach()
