"""THE TWO ATTENTIONS of Clark & Gardner (2017, section 3.1): paragraph to question, and paragraph to itself.

Both compare tokens by the trilinear similarity of Seo et al. (2017): sim(a, b) = u·a + v·b + w·(a * b). It has no bias,
which every softmax would cancel.
"""

import torch
from torch import Tensor, nn

from elmo.tasks.layers.encoder import BiGRU, Order, VariationalDropout, masked_softmax


class BiAttention(nn.Module):
    """Paragraph h (B, P, D), question q (B, Q, D) ─▶ [h; c; h * c; c * k] (B, P, 4D).

    c is, for each token of the paragraph, the mean of the question weighted by similarity; k is the mean of the
    paragraph, weighted by the similarity of its tokens to the most similar word of the question.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.output_dim = 4 * dim
        self.u, self.v, self.w = _weights(dim), _weights(dim), _weights(dim)

    def forward(self, h: Tensor, h_mask: Tensor, q: Tensor, q_mask: Tensor) -> Tensor:
        """Relate every token of the paragraphs to the questions."""
        similarity = (h * self.w + self.v) @ q.transpose(1, 2) + (h @ self.u)[..., None]  # (B, P, Q)
        c = masked_softmax(similarity, q_mask[:, None]) @ q
        nearest = torch.where(q_mask[:, None], similarity, -torch.inf).max(dim=2).values  # (B, P)
        k = masked_softmax(nearest, h_mask)[:, None] @ h  # (B, 1, D)
        return torch.cat([h, c, h * c, c * k], dim=-1)


class SelfAttention(nn.Module):
    """x (B, P, I) ─▶ biGRU ─▶ h ─▶ ReLU of a linear layer on [h; c; h * c] (B, P, I), to be added to x.

    c is, for each token, the mean of the other tokens of its paragraph, weighted by similarity. A token is not compared
    with itself. u·h is the same for all that a token is compared with, so there is no u.
    """

    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dropout = VariationalDropout(dropout)
        self.encoder = BiGRU(dim, hidden)
        self.v, self.w = _weights(self.encoder.output_dim), _weights(self.encoder.output_dim)
        self.merge = nn.Linear(3 * self.encoder.output_dim, dim)

    def forward(self, x: Tensor, mask: Tensor, order: Order) -> Tensor:
        """Relate every token of the paragraphs to all others."""
        h = self.dropout(self.encoder(self.dropout(x), order))
        similarity = (h * self.w + self.v) @ h.transpose(1, 2)  # (B, P, P)
        others = mask[:, None] & ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        c = masked_softmax(similarity, others) @ h
        return torch.relu(self.merge(torch.cat([h, c, h * c], dim=-1)))


def _weights(dim: int) -> nn.Parameter:
    """A vector of weights, initialized like those of a linear layer with one output."""
    weights = torch.empty(1, dim)
    nn.init.xavier_uniform_(weights)
    return nn.Parameter(weights[0])
