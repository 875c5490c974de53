"""Perplexity of n-gram models of a corpus (modified Kneser–Ney), in both directions.

    python experiments/trigram.py CORPUS [--json FILE] [--discount-fallback]

In: a corpus folder. `corpus.json` names the train and held-out files and the size V of the vocabulary; the files are
uint32 rows of `words.txt`, which begins with `<S>`, `</S>`, `<UNK>`; each sentence is `<S>` words… `</S>`. Rows from V
on are unknown words and count as `<UNK>`, which is a word like any other: training contains it, and it is scored.
Out: perplexities of the held-out tokens (every word and the end of each sentence), given the words before them.
Backward, sentences are read from their end: `</S>` is given and `<S>` predicted. `both` is exp of the mean of the two
mean negative log-likelihoods, as bilm-tf averages its two losses.

The unigram model is the training frequencies with one added to each word. The others are interpolated modified
Kneser–Ney (Chen & Goodman 1999) as KenLM's lmplz estimates it (Heafield et al. 2013): the highest order has raw counts,
the lower ones count the different words in front, except for n-grams that begin with the start of a sentence: nothing
precedes them and they keep their raw counts. Unigrams are interpolated with the uniform distribution over the V − 1
words that can be predicted. The first word of a sentence is predicted from `<S>` alone.

An n-gram is one integer, 21 bits per word: n-grams are counted by sorting, and looked up by binary search.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError
from elmo.files import replacing

START, END, UNKNOWN = 0, 1, 2
BITS = 21
WORD = (1 << BITS) - 1
FALLBACK = np.array([0.0, 0.5, 1.0, 1.5])  # of lmplz --discount_fallback
NAMES = {1: "unigram", 2: "bigram", 3: "trigram"}


def read(folder: Path) -> tuple[int, np.ndarray, np.ndarray]:
    """Return V, the training tokens and the held-out tokens; the files of each part are joined."""
    path = folder / "corpus.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        size = description["vocabulary"]
        parts = [[np.load(folder / part["file"]) for part in description[name]] for name in ("train", "heldout")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a corpus that can be read ({type(error).__name__}: {error})") from error
    if not UNKNOWN < size <= 1 << BITS:
        raise DataError(f"{path}: a vocabulary of {size:,} words; expected {UNKNOWN + 1} to {1 << BITS:,}")
    for name, arrays in zip(("train", "heldout"), parts, strict=True):
        if not arrays or not all(map(is_sentences, arrays)):
            raise DataError(f"{path}: a {name} file is missing, or is not sentences of the form 0, words…, 1")
    train, heldout = (np.concatenate(arrays) for arrays in parts)
    for tokens in (train, heldout):
        tokens[tokens >= size] = UNKNOWN
    return size, train, heldout


def is_sentences(tokens: np.ndarray) -> bool:
    """Return whether every sentence starts where the one before it ends."""
    if tokens.ndim != 1 or tokens.size == 0 or tokens.dtype != np.uint32:
        return False
    joined = np.array_equal(tokens[:-1] == END, tokens[1:] == START)
    return joined and tokens[0] == START and tokens[-1] == END


def backward(tokens: np.ndarray) -> np.ndarray:
    """Reverse every sentence, and exchange the two boundaries: row 0 starts a sentence in both directions."""
    reverse = tokens[::-1].copy()
    reverse[reverse <= END] ^= 1
    return reverse


def ngrams(tokens: np.ndarray, order: int) -> np.ndarray:
    """Return for each predicted token the n-gram that ends with it; before the first sentence is the end of another."""
    keys = np.zeros(len(tokens), dtype=np.uint64)
    for back in reversed(range(order)):
        keys <<= BITS
        keys[:back] |= END
        keys[back:] |= tokens[: len(tokens) - back]
    return keys[tokens != START]


def firsts(keys: np.ndarray) -> np.ndarray:
    """Return the first place of each distinct key in sorted keys."""
    return np.flatnonzero(np.concatenate([keys[:1] == keys[:1], keys[1:] != keys[:-1]]))


def tally(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys, ascending, and their counts. Sorts `keys` in place."""
    keys.sort()
    begin = firsts(keys)
    return keys[begin], np.diff(begin, append=len(keys))


def adjusted_counts(tokens: np.ndarray, order: int) -> list[tuple[np.ndarray, np.ndarray]]:
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


def counts_of_counts(counts: np.ndarray) -> np.ndarray:
    """Return the number of n-grams with each count from 0 to 4, (5,)."""
    return np.bincount(np.minimum(counts, 5), minlength=6)[:5]


def discounts(counts: np.ndarray) -> np.ndarray | None:
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

    keys: np.ndarray
    shares: np.ndarray  # of an n-gram: (count − discount) / total of its context
    contexts: np.ndarray
    weights: np.ndarray  # of a context: the probability left to the order below

    @staticmethod
    def of(keys: np.ndarray, counts: np.ndarray, discount: np.ndarray) -> "Level":
        contexts = keys >> BITS
        begin = firsts(contexts)
        totals = np.add.reduceat(counts, begin)
        off = discount[np.minimum(counts, 3)]
        weights = np.add.reduceat(off, begin) / totals
        shares = (counts - off) / np.repeat(totals, np.diff(begin, append=len(keys)))
        return Level(keys, shares, contexts[begin], weights)

    def interpolate(self, keys: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Interpolate with the probabilities of the order below; an unseen context does not change them."""
        weights = look_up(self.contexts, self.weights, keys >> BITS, missing=1.0)
        return look_up(self.keys, self.shares, keys, missing=0.0) + weights * lower


def look_up(keys: np.ndarray, values: np.ndarray, queries: np.ndarray, missing: float) -> np.ndarray:
    """Return the value of each query, by binary search."""
    places = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[places] == queries, values[places], missing)


class KneserNey:
    """An interpolated modified Kneser–Ney model of order 2 or 3, estimated from training tokens.

    `replaced` are the orders whose counts give no discounts, so that they use those of lmplz, if `fallback` is true.
    """

    def __init__(self, tokens: np.ndarray, order: int, size: int, fallback: bool = False) -> None:
        self.uniform = 1 / (size - 1)
        self.discounts: list[np.ndarray] = []
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

    def probabilities(self, keys: np.ndarray) -> np.ndarray:
        """Return the probability of the last word of each n-gram, given the others.

        The trigram of a first word begins with the end of another sentence. This context is never seen, so the word
        gets its bigram probability after the start.
        """
        result = np.full(len(keys), self.uniform)
        for n, level in enumerate(self.levels, 1):
            result = level.interpolate(keys & ((1 << BITS * n) - 1), result)
        return result

    def score(self, tokens: np.ndarray) -> np.ndarray:
        """Return the probability of every predicted token."""
        return self.probabilities(ngrams(tokens, len(self.levels)))


def no_discounts(order: int, counts: np.ndarray) -> DataError:
    """Return the error for missing discounts: a small corpus, or a vocabulary without rare words, lacks some counts."""
    have = ", ".join(f"{n:,}" for n in counts_of_counts(counts)[1:])
    return DataError(
        f"No Kneser–Ney discounts for {NAMES[order]}s: {have} of them have the counts 1, 2, 3, 4, which makes one "
        "undefined or negative. Train on more text, or replace them with --discount-fallback"
    )


def unigram_score(train: np.ndarray, heldout: np.ndarray, size: int) -> np.ndarray:
    """Return the probability of every predicted token: its frequency in training, with one added."""
    counts = np.bincount(train, minlength=size) + 1
    return counts[heldout[heldout != START]] / (counts.sum() - counts[START])


def perplexities(
    size: int, train: np.ndarray, texts: list[np.ndarray], fallback: bool = False
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
    for text in found:
        for row in text.values():
            row["both"] = float(np.sqrt(row["forward"] * row["backward"]))
    return found, replaced


def measure(folder: Path, fallback: bool = False) -> dict[str, Any]:
    """Return everything that the table shows."""
    size, train, heldout = read(folder)
    scored = int(np.count_nonzero(heldout != START))
    unknown = int(np.count_nonzero(heldout == UNKNOWN))
    (found,), replaced = perplexities(size, train, [heldout], fallback)
    return {
        "corpus": folder.resolve().name,
        "vocabulary": size,
        "train_tokens": int(np.count_nonzero(train != START)),
        "tokens": scored,
        "sentences": len(heldout) - scored,
        "unknown": unknown,
        "unknown_rate": unknown / scored,
        "perplexity": found,
        "discount_fallback": replaced,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--discount-fallback", action="store_true", help="0.5, 1, 1.5 if the counts give no discounts")
    arguments = parser.parse_args()
    try:
        found = measure(arguments.corpus, arguments.discount_fallback)
        if arguments.json:
            with replacing(arguments.json) as path:
                path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    except DataError as error:
        parser.exit(2, f"{error}\n")
    print(f"{found['corpus']}: trained on {found['train_tokens']:,} tokens, {found['vocabulary']:,} words")
    print(f"{found['tokens']:,} tokens scored, {found['sentences']:,} sentences, {found['unknown_rate']:.2%} unknown")
    print(f"{'perplexity':<12}{'forward':>12}{'backward':>12}{'both':>12}")
    for name, row in found["perplexity"].items():
        print(f"{name:<12}{row['forward']:>12.3f}{row['backward']:>12.3f}{row['both']:>12.3f}")
    if found["discount_fallback"]:
        print(f"discounts 0.5, 1, 1.5 for: {', '.join(found['discount_fallback'])}")


if __name__ == "__main__":
    main()
