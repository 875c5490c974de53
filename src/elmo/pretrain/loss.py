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
from elmo.model.kernels import triton_computes
from elmo.model.softmax import tokens_at_once


def full_softmax(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, plain: bool = False) -> Tensor:
    """Summed cross-entropy of targets (N,) under all V words: hidden (N, D), weight (V, D), bias (V,)."""
    loss: Tensor = (plain_loss if plain else _CrossEntropy.apply)(hidden, weight, bias, None, None, targets)
    return loss


def sampled_softmax(
    hidden: Tensor,  # (N, D)
    targets: Tensor,  # (N,) places in `words`
    negatives: Tensor,  # (K,) places in `words`, rising
    log_q: Tensor,  # (U,) log of the expected count of each word
    weight: Tensor,  # (U, D) of the words in question
    bias: Tensor,  # (U,)
    plain: bool = False,
) -> Tensor:
    """Summed cross-entropy of each target among itself and the negatives.

    Scores are lowered by log Q, so that a word drawn often does not count more; a negative that is the target itself
    is left out.
    """
    corrected = bias - log_q
    place = torch.searchsorted(negatives, targets).clamp_(max=len(negatives) - 1)
    hits = torch.where(negatives[place] == targets, place, -1)
    of_negatives, of_targets = (
        (weight.index_select(0, words), corrected.index_select(0, words)) for words in (negatives, targets)
    )
    loss: Tensor = (plain_loss if plain else _CrossEntropy.apply)(hidden, *of_negatives, *of_targets, hits)
    return loss


def plain_loss(
    hidden: Tensor,  # (N, D)
    weight: Tensor,  # (K, D)
    bias: Tensor,  # (K,)
    true_weight: Tensor | None,  # (N, D)
    true_bias: Tensor | None,  # (N,)
    where: Tensor,  # (N,)
) -> Tensor:
    """Σ −log p(target), for readers; `_CrossEntropy` is a faster way to the same number.

    The target is column `where`; or, with `true_weight`, it has a score of its own and column `where`, if any, is out.
    """
    scores = (hidden @ weight.t()).to(bias.dtype) + bias  # (N, K)
    if true_weight is None or true_bias is None:
        true = scores.gather(1, where[:, None])[:, 0]
        total = torch.logsumexp(scores, dim=1)
    else:
        true = (hidden * true_weight).sum(dim=1) + true_bias
        others = scores.masked_fill(where[:, None] == torch.arange(len(weight), device=where.device), -torch.inf)
        total = torch.logaddexp(torch.logsumexp(others, dim=1), true)
    return (total - true).sum()


def cross_entropy(
    scores: Tensor,  # (n, K), which are overwritten
    bias: Tensor,  # (K,)
    column: Tensor,  # (n,)
    true: Tensor | None = None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """Gradient of each row's −log p(target) by its scores (n, K), and log Σ exp(score) of each row (n,)."""
    if triton_computes(scores):
        from elmo.model.kernels.softmax_gpu import cross_entropy_gpu

        return scores, cross_entropy_gpu(scores, bias, column, true)
    scores = scores.to(bias.dtype).add_(bias)
    if true is None:
        total = torch.logsumexp(scores, dim=1)
        gradient = scores.sub_(total[:, None]).exp_()
        gradient[torch.arange(len(scores), device=scores.device), column] -= 1.0
    else:
        hit = (column >= 0).nonzero()[:, 0]
        scores[hit, column[hit]] = -torch.inf
        total = torch.logaddexp(torch.logsumexp(scores, dim=1), true)
        gradient = scores.sub_(total[:, None]).exp_()
    return gradient, total


class _CrossEntropy(torch.autograd.Function):
    """What `plain_loss` computes, some tokens at a time, and its gradient with it."""

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
            scores = torch.mm(h_low, weight_low.t())  # (n, K)
            if true_weight is None or true_bias is None or d_true is None:
                true = scores.gather(1, column[:, None])[:, 0] + bias[column]
                gradient, total = cross_entropy(scores, bias, column)
            else:
                true = (h * true_weight[some]).sum(dim=1) + true_bias[some]
                gradient, total = cross_entropy(scores, bias, column, true)
                d_true[some] = (true - total).expm1()
            loss += (total - true).sum(dtype=torch.float64)
            d_bias += gradient.sum(dim=0, dtype=d_bias.dtype)
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
