"""HIDDEN STATES ─▶ WORDS: the language model's last layer, one for both directions (paper, section 3.1)."""

import torch
from torch import Tensor, nn

SCORES_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 28}  # elements of (tokens, words) in memory at a time


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
    parts = []
    step = tokens_at_once(hidden, len(weight))
    for h, target in zip(torch.split(hidden, step), torch.split(targets, step), strict=True):
        scores = torch.addmm(bias, h, weight.t()).float()
        parts.append(scores.gather(1, target[:, None])[:, 0] - torch.logsumexp(scores, dim=1))
    return torch.cat(parts) if parts else hidden.new_empty(0, dtype=torch.float32)


def tokens_at_once(hidden: Tensor, n_words: int) -> int:
    """Return the number of tokens whose scores of all words may be in memory at a time."""
    return max(SCORES_AT_ONCE.get(hidden.device.type, SCORES_AT_ONCE["cpu"]) // n_words, 1)
