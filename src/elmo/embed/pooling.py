"""TOKEN VECTORS ─▶ A SENTENCE VECTOR: (…, T, 2D) ─▶ (…, 2D). A sentence without tokens gives zeros."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from elmo.embed.selection import Array
from elmo.errors import ConfigError
from elmo.weights.sif import Sif

SIF = "sif"


def mean(x: Array) -> Array:
    """Return the mean over tokens."""
    pooled: Array = x.mean(axis=-2, dtype=np.float32)
    return pooled


def maximum(x: Array) -> Array:
    """Return the maximum of each dimension."""
    pooled: Array = x.max(axis=-2)
    return pooled


def first_last(x: Array, directions: int = 2) -> Array:
    """Return the final output of each direction: the forward half of the last token, the backward half of the first.

    For a model of one direction it is the last token.
    """
    width = x.shape[-1] // directions
    return np.concatenate([x[..., -1, :width], x[..., 0, width:]], axis=-1)


POOLINGS: dict[str, Callable[[Array], Array]] = {"mean": mean, "max": maximum, "first-last": first_last}


def pooling(name: str, directions: int = 2) -> Callable[[Array], Array]:
    """Return the pooling of that name for a model of one or two directions; an empty sentence gives zeros."""
    if name not in POOLINGS:
        raise ConfigError(f"pooling is {name!r}; expected one of {', '.join(POOLINGS)}")
    pool = partial(first_last, directions=directions) if name == "first-last" else POOLINGS[name]

    def pooled(x: Array) -> Array:
        if x.shape[-2] == 0:
            return np.zeros((*x.shape[:-2], x.shape[-1]), dtype=x.dtype)
        return pool(x).astype(x.dtype, copy=False)

    return pooled


def weighted_mean(x: Array, tokens: Sequence[str], statistics: Sif) -> Array:
    """Return the mean of the vectors, each scaled to length 1, by the weights of their words: (T, 2D) ─▶ (2D,)."""
    vectors = x.astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    weights = np.array([statistics.weight(token) for token in tokens], dtype=np.float32)
    mean: Array = weights @ vectors / weights.sum()
    return mean


def sif(x: Array, tokens: Sequence[str], statistics: Sif) -> Array:
    """Return the weighted mean without what all sentences have in common: their mean, and common components.

    Smooth inverse frequency (Arora et al. 2017): frequent words count little. Vectors are scaled to length 1 before, so
    that no token dominates.
    """
    if not len(x):
        return np.zeros(x.shape[-1], dtype=x.dtype)
    centred = weighted_mean(x, tokens, statistics) - statistics.mean
    common = (centred @ statistics.components.T) @ statistics.components
    return (centred - common).astype(x.dtype)
