"""HIDDEN STATES ─▶ CROSS-ENTROPY: the full softmax, and the sampled softmax that the original was trained with.

The scores of all tokens against all words would be the largest tensor of the model. So they are computed for a few
tokens at a time, together with their gradient, and never stored: three matrix products for forward and backward instead
of four.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.model.device import product_dtype
from elmo.model.kernels import triton_computes
from elmo.model.softmax import tokens_at_once


def full_softmax(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, reference: bool = False) -> Tensor:
    """Compute the summed cross-entropy of targets (N,) among all V words: hidden (N, D), weight (V, D), bias (V,)."""
    compute = reference_loss if reference else _CrossEntropy.apply
    loss: Tensor = compute(hidden, weight, bias, targets, None, None)
    return loss


def sampled_softmax(
    hidden: Tensor,  # (N, D)
    targets: Tensor,  # (N,) rows of `weight`
    negatives: Tensor,  # (K,) rows of `weight`, ascending
    log_q: Tensor,  # (U,) log of the expected count of each word
    weight: Tensor,  # (U, D) of the targets and negatives
    bias: Tensor,  # (U,)
    reference: bool = False,
) -> Tensor:
    """Compute the summed cross-entropy of each target among itself and the negatives.

    log Q is subtracted from the scores, so that words that are drawn often do not count more. A negative that is the
    target itself is left out.
    """
    compute = reference_loss if reference else _CrossEntropy.apply
    loss: Tensor = compute(hidden, weight, bias, targets, negatives, log_q)
    return loss


def reference_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, negatives: Tensor | None, log_q: Tensor | None
) -> Tensor:
    """Compute Σ −log p(target): the readable reference for `_CrossEntropy`."""
    if negatives is None or log_q is None:
        scores = (hidden @ weight.t()).to(bias.dtype) + bias  # (N, V)
        true = scores.gather(1, targets[:, None])[:, 0]
        return (torch.logsumexp(scores, dim=1) - true).sum()
    bias = bias - log_q
    true = (hidden * weight[targets]).sum(dim=1) + bias[targets]
    scores = (hidden @ weight[negatives].t()).to(bias.dtype) + bias[negatives]  # (N, K)
    others = torch.logsumexp(scores.masked_fill(negatives == targets[:, None], -torch.inf), dim=1)
    return (torch.logaddexp(others, true) - true).sum()


def cross_entropy(
    scores: Tensor,  # (n, K), which are overwritten
    bias: Tensor,  # (K,)
    column: Tensor,  # (n,)
    true: Tensor | None = None,  # (n,)
) -> tuple[Tensor, Tensor]:
    """Return the gradient of each row's −log p(target) by its scores (n, K), and log Σ exp(score) of each row (n,)."""
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
    """`reference_loss` and its gradient, for a few tokens at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        negatives: Tensor | None,
        log_q: Tensor | None,
    ) -> Tensor:
        low = product_dtype(hidden)
        columns, column_bias, where, true_weight, true = weight, bias, targets, None, None
        if negatives is not None and log_q is not None:
            bias = bias - log_q
            columns, column_bias = weight.index_select(0, negatives), bias.index_select(0, negatives)
            place = torch.searchsorted(negatives, targets).clamp_(max=len(negatives) - 1)
            where = torch.where(negatives[place] == targets, place, -1)  # the target's place among the negatives, or −1
            true_weight = weight.index_select(0, targets)
            true = (hidden * true_weight).sum(dim=1).add_(bias.index_select(0, targets))
        columns_low = columns.to(low)
        d_hidden, d_columns, d_bias = torch.empty_like(hidden), torch.zeros_like(columns), torch.zeros_like(column_bias)
        losses = hidden.new_empty(len(hidden))
        step = tokens_at_once(hidden, len(columns))
        for first in range(0, len(hidden), step):
            some = slice(first, first + step)
            h, column = hidden[some].to(low), where[some]
            scores = torch.mm(h, columns_low.t())  # (n, K)
            if true is None:
                score = scores.gather(1, column[:, None])[:, 0] + bias[column]
                gradient, total = cross_entropy(scores, column_bias, column)
            else:
                score = true[some]
                gradient, total = cross_entropy(scores, column_bias, column, score)
            torch.sub(total, score, out=losses[some])
            d_bias += gradient.sum(dim=0, dtype=d_bias.dtype)
            gradient = gradient.to(low)
            d_hidden[some] = torch.mm(gradient, columns_low)
            d_columns += torch.mm(gradient.t(), h)
        if negatives is None or true_weight is None:
            ctx.gradients = d_hidden, d_columns, d_bias
        else:
            d_true = torch.expm1(-losses)
            d_hidden.addcmul_(d_true[:, None], true_weight)
            d_weight = torch.zeros_like(weight).index_add_(0, negatives, d_columns)
            d_weight.index_add_(0, targets, true_weight.copy_(hidden).mul_(d_true[:, None]))
            d_all = torch.zeros_like(bias).index_add_(0, negatives, d_bias).index_add_(0, targets, d_true)
            ctx.gradients = d_hidden, d_weight, d_all
        return losses.sum(dtype=torch.float64).to(hidden.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradient * scale for gradient in ctx.gradients), None, None, None
