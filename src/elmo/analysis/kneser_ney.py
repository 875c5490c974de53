"""COUNTS ─▶ PROBABILITIES: interpolated modified Kneser–Ney models (Chen & Goodman 1999), in both directions.

Tokens are uint32 rows of a vocabulary of V words that begins with `<S>`, `</S>`, `<UNK>`; a sentence is `<S>` words…
`</S>`. `<UNK>` is a word like any other: training contains it, and it is scored. Backward, sentences are read from
their end: `</S>` is given and `<S>` predicted.

The unigram model is the training frequencies with one added to each word. The others are estimated as by KenLM's lmplz
(Heafield et al. 2013): the highest order has raw counts, the lower ones count the different words in front, except for
n-grams that begin with the start of a sentence: nothing precedes them and they keep their raw counts. Unigrams are
interpolated with the uniform distribution over the V − 1 words that can be predicted. The first word of a sentence is
predicted from `<S>` alone.

An n-gram is one integer, 21 bits per word: n-grams are counted by sorting, and looked up by binary search.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.errors import DataError

Tokens = npt.NDArray[np.uint32]
Keys = npt.NDArray[Any]  # of uint64
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

START, END, UNKNOWN = 0, 1, 2
BITS = 21
WORD = (1 << BITS) - 1
FALLBACK = np.array([0.0, 0.5, 1.0, 1.5])  # of lmplz --discount_fallback
NAMES = {1: "unigram", 2: "bigram", 3: "trigram"}


def backward(tokens: Tokens) -> Tokens:
    """Reverse every sentence, and exchange the two boundaries: row 0 starts a sentence in both directions."""
    reverse = tokens[::-1].copy()
    reverse[reverse <= END] ^= 1
    return reverse


def ngrams(tokens: Tokens, order: int) -> Keys:
    """Return for each predicted token the n-gram that ends with it; before the first sentence is the end of another."""
    keys = np.zeros(len(tokens), dtype=np.uint64)
    for back in reversed(range(order)):
        keys <<= BITS
        keys[:back] |= END
        keys[back:] |= tokens[: len(tokens) - back]
    predicted: Keys = keys[tokens != START]
    return predicted


def firsts(keys: Keys) -> Ints:
    """Return the first place of each distinct key in sorted keys."""
    return np.flatnonzero(np.concatenate([keys[:1] == keys[:1], keys[1:] != keys[:-1]]))


def tally(keys: Keys) -> tuple[Keys, Ints]:
    """Return the distinct keys, ascending, and their counts. Sorts `keys` in place."""
    keys.sort()
    begin = firsts(keys)
    return keys[begin], np.diff(begin, append=len(keys))


def adjusted_counts(tokens: Tokens, order: int) -> list[tuple[Keys, Ints]]:
    """Return the n-grams and their counts, unigrams first: raw in the highest order, continuation counts below."""
    keys = ngrams(tokens, order)
    # A window that reaches into the sentence before has the start of its own sentence as second word.
    result = [tally(keys[keys >> BITS * (order - 2) & WORD != START])]
    for n in reversed(range(1, order)):
        keys, counts = tally(result[0][0] & ((1 << BITS * n) - 1))
        raw = ngrams(tokens, n)
        raw, raw_counts = tally(raw[raw >> BITS * (n - 1) == START])
        # The start is row 0: what begins with it sorts before all others.
        result.insert(0, (np.concatenate([raw, keys]), np.concatenate([raw_counts, counts])))
    return result


def counts_of_counts(counts: Ints) -> Ints:
    """Return the number of n-grams with each count from 0 to 4, (5,)."""
    return np.bincount(np.minimum(counts, 5), minlength=6)[:5]


def discounts(counts: Ints) -> Floats | None:
    """Return 0, D1, D2, D3+ for the counts 0, 1, 2, 3+; None if one is undefined or negative, which lmplz refuses."""
    n = counts_of_counts(counts).astype(float)
    if not n[1:4].all():
        return None
    y = n[1] / (n[1] + 2 * n[2])
    found = np.array([0.0] + [i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3)])
    return found if (found >= 0).all() else None


@dataclass(frozen=True)
class Level:
    """One order of a model: its n-grams and contexts, sorted, with the numbers for the interpolation."""

    keys: Keys
    shares: Floats  # of an n-gram: (count − discount) / total of its context
    contexts: Keys
    weights: Floats  # of a context: the probability left to the order below

    @staticmethod
    def of(keys: Keys, counts: Ints, discount: Floats) -> "Level":
        """Compute the shares and weights of an order."""
        contexts = keys >> BITS
        begin = firsts(contexts)
        totals = np.add.reduceat(counts, begin)
        off = discount[np.minimum(counts, 3)]
        weights = np.add.reduceat(off, begin) / totals
        shares = (counts - off) / np.repeat(totals, np.diff(begin, append=len(keys)))
        return Level(keys, shares, contexts[begin], weights)

    def interpolate(self, keys: Keys, lower: Floats) -> Floats:
        """Interpolate with the probabilities of the order below; an unseen context does not change them."""
        weights = look_up(self.contexts, self.weights, keys >> BITS, missing=1.0)
        return look_up(self.keys, self.shares, keys, missing=0.0) + weights * lower


def look_up(keys: Keys, values: Floats, queries: Keys, missing: float) -> Floats:
    """Return the value of each query, by binary search."""
    places = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[places] == queries, values[places], missing)


class KneserNey:
    """An interpolated modified Kneser–Ney model of order 2 or 3, estimated from training tokens.

    `replaced` are the orders whose counts give no discounts, so that they use those of lmplz, if `fallback` is true.
    """

    def __init__(self, tokens: Tokens, order: int, size: int, fallback: bool = False) -> None:
        self.uniform = 1 / (size - 1)
        self.discounts: list[Floats] = []
        self.replaced: list[int] = []
        self.levels: list[Level] = []
        for n, (keys, counts) in enumerate(adjusted_counts(tokens, order), 1):
            discount = discounts(counts)
            if discount is None:
                if not fallback or not len(keys):
                    raise no_discounts(n, counts)
                self.replaced.append(n)
                discount = FALLBACK
            self.discounts.append(discount)
            self.levels.append(Level.of(keys, counts, discount))

    def probabilities(self, keys: Keys) -> Floats:
        """Return the probability of the last word of each n-gram, given the others.

        The trigram of a first word begins with the end of another sentence. This context is never seen, so the word
        gets its bigram probability after the start.
        """
        result = np.full(len(keys), self.uniform)
        for n, level in enumerate(self.levels, 1):
            result = level.interpolate(keys & ((1 << BITS * n) - 1), result)
        return result

    def score(self, tokens: Tokens) -> Floats:
        """Return the probability of every predicted token."""
        return self.probabilities(ngrams(tokens, len(self.levels)))


def no_discounts(order: int, counts: Ints) -> DataError:
    """Return the error for missing discounts: a small corpus, or a vocabulary without rare words, lacks some counts."""
    have = ", ".join(f"{n:,}" for n in counts_of_counts(counts)[1:])
    return DataError(
        f"No Kneser–Ney discounts for {NAMES[order]}s: {have} of them have the counts 1, 2, 3, 4, which makes one "
        "undefined or negative. Train on more text, or replace them with discount_fallback=true"
    )


def unigram_score(train: Tokens, heldout: Tokens, size: int) -> Floats:
    """Return the probability of every predicted token: its frequency in training, with one added."""
    counts = np.bincount(train, minlength=size) + 1
    shares: Floats = counts[heldout[heldout != START]] / (counts.sum() - counts[START])
    return shares


def perplexities(
    size: int, train: Tokens, texts: list[Tokens], fallback: bool = False
) -> tuple[list[dict[str, dict[str, float]]], list[str]]:
    """Return the perplexities of each text, by model and direction; and which discounts were replaced."""
    found: list[dict[str, dict[str, float]]] = [{name: {} for name in NAMES.values()} for _ in texts]
    replaced: list[str] = []
    directions = {"forward": (train, texts), "backward": (backward(train), [backward(text) for text in texts])}
    for direction, (seen, unseen) in directions.items():
        for order, name in NAMES.items():
            if order == 1:
                scores = [unigram_score(seen, text, size) for text in unseen]
            else:
                model = KneserNey(seen, order, size, fallback)
                scores = [model.score(text) for text in unseen]
                replaced += [f"{NAMES[n]}s of the {direction} {name} model" for n in model.replaced]
            for row, score in zip(found, scores, strict=True):
                row[name][direction] = float(np.exp(-np.log(score).mean()))
    for models in found:
        for both in models.values():
            both["both"] = float(np.sqrt(both["forward"] * both["backward"]))
    return found, replaced
