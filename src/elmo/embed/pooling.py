"""TOKEN VECTORS ─▶ A SENTENCE VECTOR: (…, T, 2D) ─▶ (…, 2D). A sentence without tokens is a vector of zeros."""

from collections.abc import Callable

import numpy as np

from elmo.embed.selection import Array
from elmo.errors import ConfigError


def mean(x: Array) -> Array:
    """The mean of the tokens."""
    pooled: Array = x.mean(axis=-2, dtype=np.float32)
    return pooled


def maximum(x: Array) -> Array:
    """The largest value of each dimension."""
    pooled: Array = x.max(axis=-2)
    return pooled


def first_last(x: Array) -> Array:
    """Where each direction has read all of it: the forward half of the last token, the backward half of the first."""
    half = x.shape[-1] // 2
    return np.concatenate([x[..., -1, :half], x[..., 0, half:]], axis=-1)


POOLINGS: dict[str, Callable[[Array], Array]] = {"mean": mean, "max": maximum, "first-last": first_last}


def pooling(name: str) -> Callable[[Array], Array]:
    """The pooling of that name, safe for empty sentences."""
    if name not in POOLINGS:
        raise ConfigError(f"pooling is {name!r}; expected one of {', '.join(POOLINGS)}")
    pool = POOLINGS[name]

    def pooled(x: Array) -> Array:
        if x.shape[-2] == 0:
            return np.zeros((*x.shape[:-2], x.shape[-1]), dtype=x.dtype)
        return pool(x).astype(x.dtype, copy=False)

    return pooled
