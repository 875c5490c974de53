"""HIDDEN STATES ─▶ WORDS: the language model's last layer, one for both directions (paper, section 3.1)."""

import torch
from torch import Tensor, nn

from elmo.model.kernels.products import product

SCORES_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 28}  # elements of (tokens, words) in memory at a time
TOKENS_AT_ONCE = 256  # of which probabilities are computed, some words at a time where all are too many


class Softmax(nn.Module):
    """The output layer over V words. A softmax that shares the word table's weight has only a bias."""

    def __init__(self, n_words: int, dim: int, shared: bool = False) -> None:
        super().__init__()
        self.weight = None if shared else nn.Parameter(torch.empty(n_words, dim))
        self.bias = nn.Parameter(torch.empty(n_words))
        if not self.bias.is_meta:
            self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Set the original's initial values."""
        if self.weight is not None:
            self.weight.normal_(0.0, self.weight.shape[1] ** -0.5)
        self.bias.zero_()


@torch.no_grad()
def log_probabilities(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return log p of each target (N,) among all V words: hidden (N, D), weight (V, D), bias (V,)."""
    tokens = max(tokens_at_once(hidden, len(weight)), TOKENS_AT_ONCE)  # the weights are read once for so many
    words = tokens_at_once(hidden, tokens)  # whatever the number of tokens is: one has the same value beside others
    some = zip(torch.split(hidden, tokens), torch.split(targets, tokens), strict=True)
    return torch.cat([_log_probabilities(h, target, weight, bias, words) for h, target in some])


def _log_probabilities(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, step: int) -> Tensor:
    """Compute the same, `step` words at a time: log p = score − log Σ exp(score)."""
    found, totals = hidden.new_zeros(len(hidden), dtype=torch.float32), []
    for first in range(0, len(weight), step):
        words = slice(first, first + step)
        scores = product(hidden, weight[words], bias[words]).float()
        places = targets - first
        inside = (places >= 0) & (places < scores.shape[1])
        found += torch.where(inside, scores.gather(1, places.clamp(0, scores.shape[1] - 1)[:, None])[:, 0], 0.0)
        totals.append(torch.logsumexp(scores, dim=1))
    return found - torch.logsumexp(torch.stack(totals), dim=0)


def tokens_at_once(hidden: Tensor, n_words: int) -> int:
    """Return the number of tokens whose scores of all words may be in memory at a time."""
    return max(SCORES_AT_ONCE.get(hidden.device.type, SCORES_AT_ONCE["cpu"]) // n_words, 1)
