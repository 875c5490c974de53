"""SCORES ─▶ THE BEST SEQUENCE OF LABELS: a linear-chain CRF with constraints on which label may follow which.

scores (B, T, K), mask (B, T) ─▶ log-likelihood (B,), or the best labels of each sequence

The score of a path is the sum of the scores of its labels and of the transitions between them, from the start to the
end. Illegal transitions are excluded in training and in decoding: their score is so low that its exponential is zero.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.kernels import triton_computes

ILLEGAL = -1e4
MOST_LABELS = 2000

Tables = tuple[Tensor, Tensor, Tensor]
"""The scores of all transitions, starts and ends; illegal ones are `ILLEGAL`."""


class CRF(nn.Module):
    """A CRF over K labels.

    `legal(before, after)` returns whether one label may follow another; None is the edge of the sequence.
    """

    _forbidden: Tensor
    _not_first: Tensor
    _not_last: Tensor

    def __init__(self, labels: Sequence[str], legal: Callable[[str | None, str | None], bool]) -> None:
        super().__init__()
        n = len(labels)
        if not 0 < n <= MOST_LABELS:
            raise ConfigError(f"a CRF of {n:,} labels; expected 1 to {MOST_LABELS:,}: every pair of them has a score")
        self.transitions = nn.Parameter(nn.init.xavier_normal_(torch.empty(n, n)))  # (before, after)
        self.start = nn.Parameter(torch.zeros(n))
        self.end = nn.Parameter(torch.zeros(n))
        allowed = torch.tensor([[legal(a, b) for b in labels] for a in labels])
        self.register_buffer("_forbidden", ~allowed, persistent=False)
        self.register_buffer("_not_first", torch.tensor([not legal(None, a) for a in labels]), persistent=False)
        self.register_buffer("_not_last", torch.tensor([not legal(a, None) for a in labels]), persistent=False)

    def log_likelihood(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Return log p(labels | scores), (B,). `labels` is (B, T), with any value where there is no token."""
        tables = self._tables()
        return self._score_of(scores, labels, mask, tables) - self._log_partition(scores, mask, tables)

    def log_partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return log Σ exp(score) over all legal paths, (B,)."""
        return self._log_partition(scores, mask, self._tables())

    def _log_partition(self, scores: Tensor, mask: Tensor, tables: Tables) -> Tensor:
        transitions, start, end = tables
        if triton_computes(scores):
            from elmo.tasks.layers.crf_gpu import log_partition_gpu

            return log_partition_gpu(scores, mask.sum(dim=1), transitions, start, end)
        alpha = start + scores[:, 0]  # (B, K) the same over the paths up to token t that end in k
        for t in range(1, scores.shape[1]):
            step = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + scores[:, t]
            alpha = torch.where(mask[:, t, None], step, alpha)
        return torch.logsumexp(alpha + end, dim=1)

    @torch.no_grad()
    def best(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        """Return the labels of the path with the highest score, for each sequence (Viterbi)."""
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

    def _score_of(self, scores: Tensor, labels: Tensor, mask: Tensor, tables: Tables) -> Tensor:
        transitions, start, end = tables
        labels = labels * mask
        emitted = torch.where(mask, scores.gather(2, labels[..., None]).squeeze(2), 0).sum(dim=1)
        # Not `transitions[before, after]`: its gradient is summed by all of a CPU's threads at once, in any order.
        before, after = labels[:, :-1], labels[:, 1:]
        pairs = (before * scores.shape[2] + after).flatten()
        moved = transitions.flatten().index_select(0, pairs).view(after.shape)
        moved = torch.where(mask[:, 1:], moved, 0).sum(dim=1)
        last = labels.gather(1, (mask.sum(dim=1) - 1)[:, None])[:, 0]
        return start.index_select(0, labels[:, 0]) + emitted + moved + end.index_select(0, last)

    def _tables(self) -> Tables:
        return self._legal_transitions(), self._starts(), self._ends()

    def _legal_transitions(self) -> Tensor:
        return self.transitions.masked_fill(self._forbidden, ILLEGAL)

    def _starts(self) -> Tensor:
        return self.start.masked_fill(self._not_first, ILLEGAL)

    def _ends(self) -> Tensor:
        return self.end.masked_fill(self._not_last, ILLEGAL)
