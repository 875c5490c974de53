"""Negatives for the sampled softmax: distinct words, drawn as if a word's probability fell with its rank.

P(word k) = log((k + 2) / (k + 1)) / log(V + 1): close to a vocabulary sorted by falling count, which is why the
vocabulary file must be. Words are drawn until n *distinct* ones were seen; Q is how often a word is expected in such a
draw: 1 − (1 − P)^tries.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NEGATIVES = 2  # what random numbers are for: see streams.SHUFFLE


@dataclass(frozen=True)
class Draw:
    """n distinct words, and how many tries they took."""

    words: npt.NDArray[np.int64]  # (n,) rising
    tries: int


def draw(rng: np.random.Generator, n_words: int, n: int) -> Draw:
    """Draw n distinct words of a vocabulary of `n_words`."""
    drawn = np.empty(0, dtype=np.int64)
    while True:
        more = np.exp(rng.random(n) * np.log(n_words + 1)).astype(np.int64) - 1
        drawn = np.concatenate([drawn, np.minimum(more, n_words - 1)])
        words, first = np.unique(drawn, return_index=True)
        if len(words) >= n:
            last = np.sort(first)[n - 1]
            return Draw(words[first <= last], int(last) + 1)


def log_expected_count(words: npt.NDArray[np.int64], tries: int, n_words: int) -> npt.NDArray[np.float32]:
    """log Q of these words."""
    p = np.log1p(1.0 / (words + 1.0)) / np.log(n_words + 1.0)
    log_q: npt.NDArray[np.float32] = np.log(-np.expm1(tries * np.log1p(-p))).astype(np.float32)
    return log_q
