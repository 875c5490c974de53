"""log Σ exp(score) OVER ALL PATHS OF A CRF, on a GPU: one Triton kernel forward, one backward, a program per sequence.

The reference, `CRF.log_partition`, launches about ten kernels per token; here the loop is inside one.

    α_t(j) = log Σ_i exp(α_{t−1}(i) + transition(i, j)) + score_t(j)          forward
    β_t(i) = log Σ_j exp(transition(i, j) + score_{t+1}(j) + β_{t+1}(j))      backward
    p(label_t = j) = exp(α_t(j) + β_t(j) − log Z), the gradient with respect to score_t(j)
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

LOWEST = tl.constexpr(-1e30)  # of labels that only fill up a block; not −∞: the difference of two would be no number


def log_partition_gpu(scores: Tensor, lengths: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Return log Z of each sequence, (B,): scores (B, T, K), lengths (B,) of at least 1, transitions (K, K)."""
    result: Tensor = _LogPartition.apply(scores, lengths, transitions, start, end)
    return result


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
        scores, transitions, start, end = (x.float().contiguous() for x in (scores, transitions, start, end))
        n, n_tokens, n_labels = scores.shape
        alpha, total = torch.empty_like(scores), scores.new_empty(n)
        block = triton.next_power_of_2(n_labels)
        with torch.cuda.device_of(scores):
            _forward[n,](scores, lengths, transitions, start, end, alpha, total, n_tokens, n_labels, block)
        ctx.save_for_backward(scores, lengths, transitions, end, alpha, total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor) -> tuple[Tensor | None, ...]:
        scores, lengths, transitions, end, alpha, total = ctx.saved_tensors
        n, n_tokens, n_labels = scores.shape
        d_scores = torch.zeros_like(scores)
        d_transitions = scores.new_empty(n, n_labels, n_labels)  # of each sequence
        d_end = scores.new_empty(n, n_labels)
        block = triton.next_power_of_2(n_labels)
        with torch.cuda.device_of(scores):
            _backward[n,](
                scores, lengths, transitions, end, alpha, total, d_total.float().contiguous(),
                d_scores, d_transitions, d_end, n_tokens, n_labels, block,
            )  # fmt: skip
        return d_scores, None, d_transitions.sum(dim=0), d_scores[:, 0].sum(dim=0), d_end.sum(dim=0)


@triton.jit
def _log_sum_exp(x, AXIS: tl.constexpr):
    largest = tl.max(x, AXIS)
    return largest + tl.log(tl.sum(tl.exp(x - tl.expand_dims(largest, AXIS)), AXIS))


@triton.jit
def _forward(scores, lengths, transitions, start, end, alphas, total, n_tokens, n_labels, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    scores += row.to(tl.int64) * n_tokens * n_labels
    alphas += row.to(tl.int64) * n_tokens * n_labels
    k = tl.arange(0, BLOCK)
    inside = k < n_labels
    both = inside[:, None] & inside[None, :]
    moves = tl.load(transitions + k[:, None] * n_labels + k[None, :], mask=both, other=LOWEST)
    alpha = tl.load(start + k, mask=inside, other=LOWEST) + tl.load(scores + k, mask=inside, other=0.0)
    tl.store(alphas + k, alpha, mask=inside)
    for t in range(1, tl.load(lengths + row)):
        score = tl.load(scores + t * n_labels + k, mask=inside, other=0.0)
        alpha = _log_sum_exp(alpha[:, None] + moves, 0) + score
        tl.store(alphas + t * n_labels + k, alpha, mask=inside)
    tl.store(total + row, _log_sum_exp(alpha + tl.load(end + k, mask=inside, other=LOWEST), 0))


@triton.jit
def _backward(
    scores, lengths, transitions, end, alphas, total, d_total, d_scores, d_transitions, d_end, n_tokens, n_labels,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    first = row.to(tl.int64) * n_tokens * n_labels
    scores, alphas, d_scores = scores + first, alphas + first, d_scores + first
    k = tl.arange(0, BLOCK)
    inside = k < n_labels
    both = inside[:, None] & inside[None, :]
    square = k[:, None] * n_labels + k[None, :]
    moves = tl.load(transitions + square, mask=both, other=LOWEST)
    log_z, weight = tl.load(total + row), tl.load(d_total + row)
    last = tl.load(lengths + row) - 1
    beta = tl.load(end + k, mask=inside, other=LOWEST)
    alpha = tl.load(alphas + last * n_labels + k, mask=inside, other=LOWEST)
    d_score = weight * tl.exp(alpha + beta - log_z)
    tl.store(d_scores + last * n_labels + k, d_score, mask=inside)
    tl.store(d_end + row * n_labels + k, d_score, mask=inside)
    d_moves = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for back in range(last):
        t = last - back
        score = tl.load(scores + t * n_labels + k, mask=inside, other=0.0)
        after = moves + (score + beta)[None, :]  # (i, j)
        alpha = tl.load(alphas + (t - 1) * n_labels + k, mask=inside, other=LOWEST)
        d_moves += weight * tl.exp(alpha[:, None] + after - log_z)
        beta = _log_sum_exp(after, 1)
        tl.store(d_scores + (t - 1) * n_labels + k, weight * tl.exp(alpha + beta - log_z), mask=inside)
    tl.store(d_transitions + row.to(tl.int64) * n_labels * n_labels + square, d_moves, mask=both)
