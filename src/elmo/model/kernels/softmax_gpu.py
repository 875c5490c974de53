"""SCORES ─▶ GRADIENT OF THE CROSS-ENTROPY, in place: each row of scores is replaced by its gradient."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # scores of a row per iteration


def cross_entropy_gpu(scores: Tensor, bias: Tensor, column: Tensor, true: Tensor | None) -> Tensor:
    """Return log Σ exp(score + bias) of each row; replace scores (N, K) by their gradient. See `loss.cross_entropy`."""
    total = torch.empty(len(scores), device=scores.device, dtype=torch.float32)
    if len(scores):
        block = min(triton.next_power_of_2(scores.shape[1]), BLOCK)
        given = total if true is None else true
        with torch.cuda.device_of(scores):
            _cross_entropy[len(scores),](scores, bias, column, given, total, scores.shape[1], true is not None, block)
    return total


@triton.jit
def _cross_entropy(scores, bias, column, true, total, n_words, HAS_TRUE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    scores += row.to(tl.int64) * n_words
    where = tl.load(column + row)
    if HAS_TRUE:  # the target has a score of its own, and column `where` is left out
        largest = tl.load(true + row)
        sum = 1.0
    else:  # the target is column `where`
        largest = float("-inf")
        sum = 0.0
    for first in range(0, n_words, BLOCK):
        k = first + tl.arange(0, BLOCK)
        score = tl.load(scores + k, mask=k < n_words, other=float("-inf")).to(tl.float32)
        score += tl.load(bias + k, mask=k < n_words, other=0.0)
        if HAS_TRUE:
            score = tl.where(k == where, float("-inf"), score)
        before = largest
        largest = tl.maximum(before, tl.max(score))
        sum = sum * tl.exp(before - largest) + tl.sum(tl.exp(score - largest))
    log_sum = largest + tl.log(sum)
    tl.store(total + row, log_sum)
    for first in range(0, n_words, BLOCK):
        k = first + tl.arange(0, BLOCK)
        score = tl.load(scores + k, mask=k < n_words, other=float("-inf")).to(tl.float32)
        score += tl.load(bias + k, mask=k < n_words, other=0.0)
        probability = tl.exp(score - log_sum)
        if HAS_TRUE:
            probability = tl.where(k == where, 0.0, probability)
        else:
            probability = tl.where(k == where, probability - 1.0, probability)
        tl.store(scores + k, probability.to(scores.dtype.element_ty), mask=k < n_words)
