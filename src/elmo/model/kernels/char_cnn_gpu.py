"""`CharCNN.convolve` on a GPU: convolution, maximum and activation in one kernel, so that no score is ever stored.

    characters (N, C, E), a window of them is one row of width·E ─▶ · weights ─▶ best score of each filter (N, F)

What is done differently from the reference, and why:
- All filters are as wide as the widest, filled up with zeros: one product for all. Characters go on as zeros past C, so
  that the last windows of narrow filters exist; a filter's own last place is all that is left of its width.
- Words are taken in the order of their length, a tile of them together, each tile only as far as its longest word goes.
  Past it, all windows are of padding alone and give one value.
- Of each word and filter only the winning place is kept. The way back visits every place again with what won there;
  zeros cost less on the tensor cores than scattered memory would.
- Many programs add to the gradient of the 262 characters, so it has many copies, which are summed at the end.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmo.model.device import product_dtype
from elmo.model.kernels import exact_backward

SPLITS = 64  # programs that share the words of a weight's gradient
COPIES = 128  # of the embedding's gradient
PLACES = 256  # characters that one program looks up
SOME_PLACES = 8  # of a tile's words, whose gradient one program adds up: the longest words would keep one busy too long


def convolve_gpu(
    ids: Tensor,  # (N, C)
    padding: int,  # the character that fills up a word
    embedding: Tensor,  # (characters, E)
    filters: Sequence[Tensor],  # (width·E, count) each
    biases: Sequence[Tensor],  # (count,) each
    relu: bool,  # or tanh
) -> Tensor:
    """The filters' values (N, F)."""
    with torch.cuda.device_of(embedding):
        values: Tensor = _Convolve.apply(ids, padding, relu, embedding, *filters, *biases)
    return values


class _Tiles(NamedTuple):
    """How much one program computes, and what its kernel must know when it is built."""

    window: int  # E · the widest filter's width
    dim: int  # E
    words: int
    filters: int
    power: int  # the window as the products take it: a power of two, at least 16
    precision: str

    @classmethod
    def of(cls, weights: Tensor, dim: int) -> "_Tiles":
        window, count = weights.shape
        exact = weights.dtype == torch.float32  # such products use no tensor cores, and more registers
        words, most = (32, 32) if exact else (64, 128)
        power, filters = (max(triton.next_power_of_2(n), 16) for n in (window, count))
        return cls(window, dim, words, min(filters, most), power, "ieee" if exact else "tf32")


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ids: Tensor, padding: int, relu: bool, embedding: Tensor, *filters_and_biases: Tensor
    ) -> Tensor:
        low = product_dtype(embedding)
        ids = ids.contiguous()
        n_words, n_characters = ids.shape
        dim = embedding.shape[1]
        filters, biases = _halves(filters_and_biases)
        window = max(map(len, filters))
        weights = torch.cat([functional.pad(weight, (0, 0, 0, window - len(weight))) for weight in filters], dim=1)
        weights, bias = weights.to(low), torch.cat([*biases])
        last_place = _last_places(tuple((len(w) // dim, w.shape[1]) for w in filters), n_characters, ids.device)
        lengths, order = torch.sort((ids != padding).sum(dim=1, dtype=torch.int32), descending=True)
        row = n_characters + window // dim - 1
        characters = torch.empty(n_words, row, dim, device=ids.device, dtype=low)
        _look_up[triton.cdiv(n_words * row, PLACES),](
            ids, embedding, characters, n_words * row, n_characters, row, dim, PLACES, triton.next_power_of_2(dim)
        )
        values = characters.new_empty(n_words, len(bias))
        where = torch.empty_like(values, dtype=torch.uint8 if n_characters <= 256 else torch.int32)
        tiles = _Tiles.of(weights, dim)
        _convolve[triton.cdiv(len(bias), tiles.filters), triton.cdiv(n_words, tiles.words)](
            characters, order, lengths, weights, bias, last_place, values, where,
            n_words, n_characters, row, len(bias), relu, *tiles,
        )  # fmt: skip
        ctx.save_for_backward(ids, characters, order, lengths, weights, values, where, embedding, *filters_and_biases)
        ctx.relu = relu
        return values

    @staticmethod
    @exact_backward
    @once_differentiable
    def backward(ctx: Any, d_values: Tensor) -> tuple[Tensor | None, ...]:
        ids, characters, order, lengths, weights, values, where, embedding, *filters_and_biases = ctx.saved_tensors
        n_words, row, dim = characters.shape
        n_characters = ids.shape[1]
        window, n_filters = weights.shape
        filters, biases = _halves(filters_and_biases)
        if ctx.relu:
            d_scores = torch.ops.aten.threshold_backward(d_values.contiguous(), values, 0)
        else:
            d_scores = torch.ops.aten.tanh_backward(d_values.contiguous(), values)
        tiles = _Tiles.of(weights, dim)
        shares = torch.empty(SPLITS, window, n_filters, device=weights.device, dtype=torch.float32)
        _weights_backward[triton.cdiv(n_filters, tiles.filters), SPLITS](
            characters, order, lengths, d_scores, where, shares, n_words, n_characters, row, n_filters, *tiles
        )
        d_characters = torch.zeros_like(characters, dtype=torch.float32)
        _characters_backward[triton.cdiv(n_words, tiles.words), triton.cdiv(n_characters, SOME_PLACES)](
            d_characters, order, lengths, d_scores, where, weights, n_words, n_characters, row, n_filters,
            SOME_PLACES, *tiles,
        )  # fmt: skip
        copies = d_characters.new_zeros(COPIES, *embedding.shape)
        _embedding_backward[triton.cdiv(n_words, tiles.words),](
            ids, d_characters, order, lengths, copies, n_words, n_characters, row, window // dim,
            embedding.numel(), COPIES, dim, tiles.words, triton.next_power_of_2(dim),
        )  # fmt: skip
        counts = [len(bias) for bias in biases]
        d_weights = torch.split(shares.sum(dim=0), counts, dim=1)
        d_filters = [gradient[: len(weight)] for gradient, weight in zip(d_weights, filters, strict=True)]
        d_biases = torch.split(d_scores.sum(dim=0, dtype=torch.float32), counts)
        gradients = copies.sum(dim=0), *d_filters, *d_biases
        as_given = (g.to(p.dtype) for g, p in zip(gradients, (embedding, *filters_and_biases), strict=True))
        return None, None, None, *as_given


def _halves(tensors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    return tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]


@cache
def _last_places(filters: tuple[tuple[int, int], ...], n_characters: int, device: torch.device) -> Tensor:
    """Where each filter's last window begins; kept on the device, because to bring it there is to wait for it."""
    last = [n_characters - width for width, count in filters for _ in range(count)]
    return torch.tensor(last, device=device, dtype=torch.int32)


@triton.jit
def _look_up(ids, embedding, characters, n_places, n_characters, row, dim, PLACES: tl.constexpr, POWER: tl.constexpr):
    """Characters' vectors, and zeros where a word has no more."""
    place = tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES)
    word, position = place // row, place % row
    known = (place < n_places) & (position < n_characters)
    e = tl.arange(0, POWER)
    character = tl.load(ids + word * n_characters + position, mask=known, other=0)
    inside = known[:, None] & (e < dim)[None, :]
    value = tl.load(embedding + character[:, None] * dim + e[None, :], mask=inside, other=0.0)
    inside = (place < n_places)[:, None] & (e < dim)[None, :]
    tl.store(characters + place[:, None] * dim + e[None, :], value.to(characters.dtype.element_ty), mask=inside)


@triton.jit
def _words_of_tile(number, order, lengths, n_words, n_characters, WORDS: tl.constexpr):
    """Which words a tile has, which of them there are, and how many places to look at."""
    rank = number * WORDS + tl.arange(0, WORDS)
    known = rank < n_words
    longest = tl.max(tl.load(lengths + rank, mask=known, other=0))
    return tl.load(order + rank, mask=known, other=0), known, tl.minimum(longest + 1, n_characters)


@triton.jit
def _convolve(
    characters, order, lengths, weights, bias, last_place, values, where,
    n_words, n_characters, row, n_filters, RELU: tl.constexpr,
    WINDOW: tl.constexpr, DIM: tl.constexpr, WORDS: tl.constexpr, FILTERS: tl.constexpr, POWER: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The best score of each filter, and where it is."""
    word, known, n_places = _words_of_tile(tl.program_id(1), order, lengths, n_words, n_characters, WORDS)
    f = tl.program_id(0) * FILTERS + tl.arange(0, FILTERS)
    exists = f < n_filters
    k = tl.arange(0, POWER)
    w = tl.load(weights + k[:, None] * n_filters + f[None, :], mask=(k < WINDOW)[:, None] & exists[None, :], other=0.0)
    last = tl.load(last_place + f, mask=exists, other=0)[None, :]
    window = characters + word[:, None] * (row * DIM) + k[None, :]
    best = tl.full((WORDS, FILTERS), float("-inf"), tl.float32)
    place = tl.zeros((WORDS, FILTERS), tl.int32)
    for p in range(n_places):
        text = tl.load(window + p * DIM, mask=known[:, None] & (k < WINDOW)[None, :], other=0.0)
        score = tl.dot(text, w, input_precision=PRECISION)
        better = ((score > best) | (score != score)) & (p <= last)  # what is not a number wins, and stays
        place = tl.where(better, p, place)
        best = tl.where(better, score, best)
    best += tl.load(bias + f, mask=exists, other=0.0)[None, :]
    if RELU:
        best = tl.where(best > 0.0, best, best * 0.0)
    else:
        best = 2.0 * tl.sigmoid(2.0 * best) - 1.0
    out = word[:, None] * n_filters + f[None, :]
    inside = known[:, None] & exists[None, :]
    tl.store(values + out, best.to(values.dtype.element_ty), mask=inside)
    tl.store(where + out, place.to(where.dtype.element_ty), mask=inside)


@triton.jit
def _weights_backward(
    characters, order, lengths, d_scores, where, shares, n_words, n_characters, row, n_filters,
    WINDOW: tl.constexpr, DIM: tl.constexpr, WORDS: tl.constexpr, FILTERS: tl.constexpr, POWER: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Each program's share of Σ window ⊗ gradient, over every SPLITS-th tile of words."""
    f = tl.program_id(0) * FILTERS + tl.arange(0, FILTERS)
    exists = f < n_filters
    k = tl.arange(0, POWER)
    d_weights = tl.zeros((POWER, FILTERS), tl.float32)
    for tile in range(tl.program_id(1), tl.cdiv(n_words, WORDS), tl.num_programs(1)):
        word, known, n_places = _words_of_tile(tile, order, lengths, n_words, n_characters, WORDS)
        inside = known[:, None] & exists[None, :]
        out = word[:, None] * n_filters + f[None, :]
        gradient = tl.load(d_scores + out, mask=inside, other=0.0)
        place = tl.load(where + out, mask=inside, other=0).to(tl.int32)
        window = characters + word[None, :] * (row * DIM) + k[:, None]
        for p in range(n_places):
            text = tl.load(window + p * DIM, mask=known[None, :] & (k < WINDOW)[:, None], other=0.0)
            won = tl.where(place == p, gradient, 0.0).to(text.dtype)
            d_weights += tl.dot(text, won, input_precision=PRECISION)
    share = shares + tl.program_id(1) * WINDOW * n_filters + k[:, None] * n_filters + f[None, :]
    tl.store(share, d_weights, mask=(k < WINDOW)[:, None] & exists[None, :])


@triton.jit
def _characters_backward(
    d_characters, order, lengths, d_scores, where, weights, n_words, n_characters, row, n_filters, some_places,
    WINDOW: tl.constexpr, DIM: tl.constexpr, WORDS: tl.constexpr, FILTERS: tl.constexpr, POWER: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ gradient · weightsᵀ of some places, added to each window's characters: windows overlap."""
    word, known, n_places = _words_of_tile(tl.program_id(0), order, lengths, n_words, n_characters, WORDS)
    k = tl.arange(0, POWER)
    first_place = tl.program_id(1) * some_places
    for p in range(first_place, tl.minimum(first_place + some_places, n_places)):
        d_window = tl.zeros((WORDS, POWER), tl.float32)
        for first in range(0, n_filters, FILTERS):
            f = first + tl.arange(0, FILTERS)
            exists = f < n_filters
            inside = known[:, None] & exists[None, :]
            out = word[:, None] * n_filters + f[None, :]
            gradient = tl.load(d_scores + out, mask=inside, other=0.0)
            place = tl.load(where + out, mask=inside, other=0).to(tl.int32)
            filled = exists[:, None] & (k < WINDOW)[None, :]
            w = tl.load(weights + k[None, :] * n_filters + f[:, None], mask=filled, other=0.0)
            d_window += tl.dot(tl.where(place == p, gradient, 0.0).to(w.dtype), w, input_precision=PRECISION)
        target = d_characters + word[:, None] * (row * DIM) + p * DIM + k[None, :]
        tl.atomic_add(target, d_window, mask=known[:, None] & (k < WINDOW)[None, :], sem="relaxed")


@triton.jit
def _embedding_backward(
    ids, d_characters, order, lengths, copies, n_words, n_characters, row, widest, copy_size, n_copies, dim,
    WORDS: tl.constexpr, POWER: tl.constexpr,
):  # fmt: skip
    """Each character's gradients, added to one of the copies."""
    word, known, n_places = _words_of_tile(tl.program_id(0), order, lengths, n_words, n_characters, WORDS)
    e = tl.arange(0, POWER)
    inside = known[:, None] & (e < dim)[None, :]
    copies += (tl.program_id(0) % n_copies) * copy_size
    for p in range(tl.minimum(n_places + widest - 1, n_characters)):
        character = tl.load(ids + word * n_characters + p, mask=known, other=0)
        gradient = tl.load(d_characters + (word[:, None] * row + p) * dim + e[None, :], mask=inside, other=0.0)
        tl.atomic_add(copies + character[:, None] * dim + e[None, :], gradient, mask=inside, sem="relaxed")
