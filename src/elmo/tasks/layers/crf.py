"""SCORES ─▶ THE BEST SEQUENCE OF LABELS: a linear-chain CRF that knows which labels may follow each other.

scores (B, T, K), mask (B, T) ─▶ log-likelihood (B,), marginals (B, T, K), or the best labels of each sequence

A path's score is the sum of its labels' scores and of the transitions between them, from the start to the end. Illegal
transitions are out of the question in training as in decoding: their score is so low that its exponential is zero.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

ILLEGAL = -1e4


class CRF(nn.Module):
    """K labels; `legal(before, after)` says whether one may follow the other, `None` being the sequence's edge."""

    _forbidden: Tensor
    _not_first: Tensor
    _not_last: Tensor

    def __init__(self, labels: Sequence[str], legal: Callable[[str | None, str | None], bool]) -> None:
        super().__init__()
        n = len(labels)
        self.transitions = nn.Parameter(nn.init.xavier_normal_(torch.empty(n, n)))  # (before, after)
        self.start = nn.Parameter(torch.zeros(n))
        self.end = nn.Parameter(torch.zeros(n))
        allowed = torch.tensor([[legal(a, b) for b in labels] for a in labels])
        self.register_buffer("_forbidden", ~allowed, persistent=False)
        self.register_buffer("_not_first", torch.tensor([not legal(None, a) for a in labels]), persistent=False)
        self.register_buffer("_not_last", torch.tensor([not legal(a, None) for a in labels]), persistent=False)

    def log_likelihood(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """log p(labels | scores), (B,); labels (B, T), of any value where there is no token."""
        return self._score_of(scores, labels, mask) - self.log_partition(scores, mask)

    def log_partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """log Σ exp(score) over all legal paths, (B,)."""
        alphas = self._forward(scores, mask)
        return torch.logsumexp(alphas[:, -1] + self._ends(), dim=1)

    def marginals(self, scores: Tensor, mask: Tensor) -> Tensor:
        """p(label of token t = k), (B, T, K); zeros where there is no token."""
        alphas, transitions = self._forward(scores, mask), self._legal_transitions()
        last = self._ends().expand(len(scores), -1)
        betas = [last]
        for t in range(scores.shape[1] - 2, -1, -1):
            onward = torch.logsumexp(transitions + (scores[:, t + 1] + betas[0])[:, None, :], dim=2)
            betas.insert(0, torch.where(mask[:, t + 1, None], onward, betas[0]))
        total = torch.logsumexp(alphas[:, -1] + last, dim=1)
        return (alphas + torch.stack(betas, dim=1) - total[:, None, None]).exp() * mask[..., None]

    @torch.no_grad()
    def best(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        """The labels of the path with the highest score, for each sequence (Viterbi)."""
        transitions = self._legal_transitions()
        score = self._starts() + scores[:, 0]
        came_from = []
        for t in range(1, scores.shape[1]):
            step, before = (score[:, :, None] + transitions).max(dim=1)  # (B, K)
            came_from.append(before)
            score = torch.where(mask[:, t, None], step + scores[:, t], score)
        label = (score + self._ends()).argmax(dim=1)
        path = [label]
        for t in range(len(came_from), 0, -1):
            before = came_from[t - 1].gather(1, label[:, None])[:, 0]
            label = torch.where(mask[:, t], before, label)
            path.insert(0, label)
        paths = torch.stack(path, dim=1).tolist()
        return [labels[:length] for labels, length in zip(paths, mask.sum(dim=1).tolist(), strict=True)]

    def _score_of(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        labels = labels.masked_fill(~mask, 0)
        emitted = scores.gather(2, labels[..., None])[..., 0].masked_fill(~mask, 0).sum(dim=1)
        # Not `transitions[before, after]`: its gradient is summed by all of a CPU's threads at once, in any order.
        before, after = labels[:, :-1], labels[:, 1:]
        pairs = (before * scores.shape[2] + after).flatten()
        moved = self._legal_transitions().flatten().index_select(0, pairs).view(after.shape)
        moved = moved.masked_fill(~mask[:, 1:], 0).sum(dim=1)
        last = labels.gather(1, (mask.sum(dim=1) - 1)[:, None])[:, 0]
        return self._starts()[labels[:, 0]] + emitted + moved + self._ends()[last]

    def _forward(self, scores: Tensor, mask: Tensor) -> Tensor:
        """log Σ exp(score) over the paths up to token t that end in k, (B, T, K); after the last token it stays."""
        transitions = self._legal_transitions()
        alphas = [self._starts() + scores[:, 0]]
        for t in range(1, scores.shape[1]):
            onward = torch.logsumexp(alphas[-1][:, :, None] + transitions, dim=1) + scores[:, t]
            alphas.append(torch.where(mask[:, t, None], onward, alphas[-1]))
        return torch.stack(alphas, dim=1)

    def _legal_transitions(self) -> Tensor:
        return self.transitions.masked_fill(self._forbidden, ILLEGAL)

    def _starts(self) -> Tensor:
        return self.start.masked_fill(self._not_first, ILLEGAL)

    def _ends(self) -> Tensor:
        return self.end.masked_fill(self._not_last, ILLEGAL)
