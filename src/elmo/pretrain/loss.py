"""HIDDEN STATES ─▶ CROSS-ENTROPY: the full softmax, and the sampled one the original was trained with.

Scores of all tokens against all words would be the largest tensor of the whole model, so they exist for a few tokens at
a time, and their gradient is computed while they are there: forward and backward take three products, not four, and
nothing of that size is ever stored.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.model.device import product_dtype
from elmo.model.softmax import tokens_at_once


def full_softmax(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Summed cross-entropy of targets (N,) under all V words: hidden (N, D), weight (V, D), bias (V,)."""
    loss: Tensor = _CrossEntropy.apply(hidden, weight, bias, None, None, targets)  # type: ignore[no-untyped-call]
    return loss


def sampled_softmax(
    hidden: Tensor,  # (N, D)
    targets: Tensor,  # (N,) places in `words`
    negatives: Tensor,  # (K,) places in `words`, rising
    log_q: Tensor,  # (U,) log of the expected count of each word
    weight: Tensor,  # (U, D) of the words in question
    bias: Tensor,  # (U,)
) -> Tensor:
    """Summed cross-entropy of each target among itself and the negatives.

    Scores are lowered by log Q, so that a word drawn often does not count more; a negative that is the target itself
    is left out.
    """
    corrected = bias - log_q
    place = torch.searchsorted(negatives, targets).clamp_(max=len(negatives) - 1)
    hits = torch.where(negatives[place] == targets, place, -1)
    loss: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight[negatives], corrected[negatives], weight[targets], corrected[targets], hits
    )
    return loss


class _CrossEntropy(torch.autograd.Function):
    """Σ −log p(target). With `true_weight`, the target has scores of its own and column `where` (if any) is left out;
    without, the target is column `where`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # (N, D)
        weight: Tensor,  # (K, D)
        bias: Tensor,  # (K,)
        true_weight: Tensor | None,  # (N, D)
        true_bias: Tensor | None,  # (N,)
        where: Tensor,  # (N,)
    ) -> Tensor:
        d_hidden, d_weight, d_bias = torch.empty_like(hidden), torch.zeros_like(weight), torch.zeros_like(bias)
        low = product_dtype(hidden)
        weight_low = weight.to(low)
        d_true = hidden.new_empty(len(hidden)) if true_weight is not None else None
        loss = hidden.new_zeros((), dtype=torch.float64)
        step = tokens_at_once(hidden, len(weight))
        for first in range(0, len(hidden), step):
            some = slice(first, first + step)
            h, column = hidden[some], where[some]
            h_low = h.to(low)
            scores = torch.mm(h_low, weight_low.t()).to(hidden.dtype).add_(bias)  # (n, K)
            token = torch.arange(len(h), device=h.device)
            if true_weight is None or true_bias is None or d_true is None:
                true = scores[token, column]
                total = torch.logsumexp(scores, dim=1)
                gradient = scores.sub_(total[:, None]).exp_()
                gradient[token, column] -= 1.0
            else:
                hit = (column >= 0).nonzero()[:, 0]
                scores[hit, column[hit]] = -torch.inf
                true = (h * true_weight[some]).sum(dim=1) + true_bias[some]
                total = torch.logaddexp(torch.logsumexp(scores, dim=1), true)
                gradient = scores.sub_(total[:, None]).exp_()
                d_true[some] = (true - total).expm1()
            loss += (total - true).sum(dtype=torch.float64)
            d_bias += gradient.sum(dim=0)
            gradient = gradient.to(low)
            d_hidden[some] = torch.mm(gradient, weight_low)
            d_weight += torch.mm(gradient.t(), h_low)
        d_true_weight = None
        if d_true is not None and true_weight is not None:
            d_hidden.addcmul_(d_true[:, None], true_weight)
            d_true_weight = d_true[:, None] * hidden
        ctx.gradients = d_hidden, d_weight, d_bias, d_true_weight, d_true
        return loss.to(hidden.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        gradients = tuple(gradient * scale if gradient is not None else None for gradient in ctx.gradients)
        return *gradients, None
