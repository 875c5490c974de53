"""NEGATIVES OF THE SAMPLED SOFTMAX: distinct words, drawn with a probability that decreases with their rank.

P(word k) = log((k + 2) / (k + 1)) / log(V + 1), which is close to the word frequencies if the vocabulary is sorted by
descending count, as it must be. Words are drawn until n *distinct* ones are found; Q is how often a word is expected in
such a draw: 1 − (1 − P)^tries.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NEVER = np.iinfo(np.int64).max
NEGATIVES = 2  # an independent sequence of random numbers: see streams.SHUFFLE


@dataclass(frozen=True)
class Draw:
    """n distinct words, and the number of tries it took to find them."""

    words: npt.NDArray[np.int64]  # (n,) ascending
    tries: int


class LogUniform:
    """Draws words from a log-uniform (Zipfian) distribution over a vocabulary of `n_words`."""

    def __init__(self, n_words: int) -> None:
        self._n_words = n_words
        p = np.log1p(1.0 / np.arange(1.0, n_words + 1.0)) / np.log(n_words + 1.0)
        with np.errstate(divide="ignore"):  # if there is only one word, every try finds it
            self._log_missed = np.log1p(-p)  # log of the probability that one try does not find the word
        self._first = np.full(n_words, NEVER)  # the first try that found each word

    def draw(self, rng: np.random.Generator, n: int) -> Draw:
        """Draw n distinct words."""
        first = self._first
        words = np.empty(0, dtype=np.int64)  # in the order of their first try
        tries = 0
        while len(words) < n:
            drawn = np.exp(rng.random(2 * n) * np.log(self._n_words + 1)).astype(np.int64) - 1
            drawn = np.minimum(drawn, self._n_words - 1)
            numbers = np.arange(tries, tries + len(drawn))
            new = first[drawn] == NEVER
            first[drawn[new][::-1]] = numbers[new][::-1]  # in reverse, so that the first of equal words is written last
            words = np.concatenate([words, drawn[first[drawn] == numbers]])
            tries += len(drawn)
        last = int(first[words[n - 1]])
        first[words] = NEVER
        return Draw(np.sort(words[:n]), last + 1)

    def log_expected_count(self, words: npt.NDArray[np.int64], tries: int) -> npt.NDArray[np.float32]:
        """Return log Q of these words."""
        log_q: npt.NDArray[np.float32] = np.log(-np.expm1(tries * self._log_missed[words])).astype(np.float32)
        return log_q
