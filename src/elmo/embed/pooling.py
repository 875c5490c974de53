"""TOKEN VECTORS ─▶ A SENTENCE VECTOR: (…, T, 2D) ─▶ (…, 2D). A sentence without tokens is a vector of zeros."""

from collections.abc import Callable
from functools import partial

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


def first_last(x: Array, directions: int = 2) -> Array:
    """Where each direction has read all of it: the forward half of the last token, the backward half of the first.

    Of a model of one direction, which reads forward, it is the last token.
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
