"""TOKENS ─▶ PREDICATES: which tokens of a sentence have arguments, for text in which they are not marked.

x (B, T, dim) ─▶ three tokens side by side ─▶ a hidden layer ─▶ a score of each token (B, T); positive: a predicate

It is trained beside the role labeller and shares nothing with it: it has a mix of ELMo's layers of its own, or without
ELMo reads the word vectors, and no gradient leaves it. So the labeller is the same with and without it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from elmo.model.device import to_device
from elmo.model.layers import Layers
from elmo.model.scalar_mix import ScalarMix
from elmo.tasks.inputs import Inputs, InputVectors

HIDDEN, WIDTH = 100, 3


class PredicateFinder(nn.Module):
    """A classifier of tokens that sees the tokens beside each."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.mix: ScalarMix | None = inputs.new_mix() if inputs.elmo_dim else None
        self.window = nn.Conv1d(inputs.elmo_dim or inputs.dim, HIDDEN, WIDTH, padding=WIDTH // 2)
        self.scores = nn.Linear(HIDDEN, 1)

    def forward(self, x: InputVectors) -> Tensor:
        """Score every token, (B, T)."""
        if self.mix is not None and x.layers is not None:
            vectors = self.mix(Layers(x.layers.activations.detach(), x.layers.mask))
        else:
            vectors = x.vectors.detach()
        hidden = torch.relu(self.window((vectors * x.mask[..., None]).transpose(1, 2)))  # (B, HIDDEN, T)
        scores: Tensor = self.scores(hidden.transpose(1, 2)).squeeze(2)
        return scores

    def loss(self, x: InputVectors, predicates: Sequence[Sequence[int] | None]) -> Tensor:
        """Compute the mean loss over the tokens of the sentences whose predicates are given."""
        wanted = np.zeros((2, *x.mask.shape), dtype=np.float32)  # is it a predicate, does it count
        for row, (places, length) in enumerate(zip(predicates, x.lengths, strict=True)):
            if places is not None:
                wanted[0, row, list(places)] = 1.0
                wanted[1, row, :length] = 1.0
        is_predicate, counts = to_device(torch.from_numpy(wanted), x.mask.device)
        total = nn.functional.binary_cross_entropy_with_logits(self(x), is_predicate, counts, reduction="sum")
        loss = total / max(float(wanted[1].sum()), 1.0)
        return loss if self.mix is None else loss + self.mix.penalty()

    def found(self, x: InputVectors) -> list[tuple[int, ...]]:
        """Return the predicates of each sentence."""
        rows = ((self(x) > 0) & x.mask).tolist()
        return [tuple(place for place, is_one in enumerate(row) if is_one) for row in rows]
