"""TOKENS ─▶ A SENTENCE VECTOR, LEARNED: a hidden layer, attention over the tokens, then a projection.

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
    hidden: int  # units of the layer that computes what is averaged, and how much a token counts
    dim: int  # of the sentence vector


class SentenceHead(nn.Module):
    """A weighted mean of the tokens, projected and scaled to length 1; the weights are a softmax over the tokens.

    Both the vectors that are averaged and the scores of the softmax are computed from a hidden layer with GELU.
    """

    def __init__(self, size: SentenceHeadSize) -> None:
        super().__init__()
        self.hidden = nn.Linear(size.input_dim, size.hidden)
        self.score = nn.Linear(size.hidden, 1)
        self.projection = nn.Linear(size.hidden, size.dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Compute the vectors of a batch of sentences, none of them empty."""
        hidden = nn.functional.gelu(self.hidden(x))  # (B, T, hidden)
        scores = self.score(hidden)[..., 0]  # (B, T)
        shares = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1)
        return nn.functional.normalize(self.projection(torch.einsum("bt,bth->bh", shares, hidden)), dim=1)
