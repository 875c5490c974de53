"""TOKENS ─▶ A SENTENCE VECTOR, LEARNED: attention over the tokens, then a projection.

x (B, T, D), mask (B, T) ─▶ (B, dim), of length 1

x is a mix of a biLM's layers. The task `sentences` trains the head; `Embedder.encode` uses it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class SentenceHeadSize:
    """The sizes of a head."""

    input_dim: int  # D
    attention: int  # units that decide how much a token counts
    dim: int  # of the sentence vector


class SentenceHead(nn.Module):
    """A weighted mean of the tokens, projected and scaled to length 1; the weights are a softmax over the tokens."""

    def __init__(self, size: SentenceHeadSize) -> None:
        super().__init__()
        self.hidden = nn.Linear(size.input_dim, size.attention)
        self.score = nn.Linear(size.attention, 1)
        self.projection = nn.Linear(size.input_dim, size.dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Compute the vectors of a batch of sentences, none of them empty."""
        scores = self.score(torch.tanh(self.hidden(x)))[..., 0]  # (B, T)
        shares = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1)
        return nn.functional.normalize(self.projection(torch.einsum("bt,btd->bd", shares, x)), dim=1)
