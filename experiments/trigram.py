"""How well do counts alone predict the next word? Modified Kneser–Ney models of a corpus, in both directions.

    python experiments/trigram.py CORPUS [--json FILE] [--discount-fallback]

In: a corpus folder. `corpus.json` names the train and held-out files and the size V of the vocabulary; the files are
uint32 rows of `words.txt`, which begins with `<S>`, `</S>`, `<UNK>`; each sentence is `<S>` words… `</S>`. Rows from V
on are unknown words and count as `<UNK>`, which is a word like any other: training contains it, and it is scored.
Out: perplexities of the held-out tokens, every word and the end of each sentence, from what precedes in the sentence.
Backward, sentences are read from their end: `</S>` is given and `<S>` predicted. `both` is exp of the mean of the two
mean negative log-likelihoods, as bilm-tf averages its two losses.

The unigram model is the training frequencies with one added to each word. The others are interpolated modified
Kneser–Ney (Chen & Goodman 1999) as KenLM's lmplz estimates it (Heafield et al. 2013): the highest order has raw counts,
the lower ones count the different words in front, except for n-grams that begin with the start of a sentence: nothing
precedes them and they keep their raw counts. Below the unigrams lies the uniform distribution over the V − 1 words that
can be predicted. The first word of a sentence is predicted from `<S>` alone.

An n-gram is one integer, 21 bits per word, so that sorting counts and binary search looks up.
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
    """V, the training tokens and the held-out tokens; the files of each one after another."""
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
    """Does every sentence start where the one before it ended?"""
    if tokens.ndim != 1 or tokens.size == 0 or tokens.dtype != np.uint32:
        return False
    joined = np.array_equal(tokens[:-1] == END, tokens[1:] == START)
    return joined and tokens[0] == START and tokens[-1] == END


def backward(tokens: np.ndarray) -> np.ndarray:
    """Every sentence from its end. The two markers change places: row 0 starts a sentence in either direction."""
    reverse = tokens[::-1].copy()
    reverse[reverse <= END] ^= 1
    return reverse


def ngrams(tokens: np.ndarray, order: int) -> np.ndarray:
    """For each token to predict, it and the `order` − 1 before it; before the first sentence stands another's end."""
    keys = np.zeros(len(tokens), dtype=np.uint64)
    for back in reversed(range(order)):
        keys <<= BITS
        keys[:back] |= END
        keys[back:] |= tokens[: len(tokens) - back]
    return keys[tokens != START]


def firsts(keys: np.ndarray) -> np.ndarray:
    """Where each run of equal keys begins: nowhere when there is no key."""
    return np.flatnonzero(np.concatenate([keys[:1] == keys[:1], keys[1:] != keys[:-1]]))


def tally(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different keys, in order, and how often each occurs. Sorts `keys` in place."""
    keys.sort()
    begin = firsts(keys)
    return keys[begin], np.diff(begin, append=len(keys))


def adjusted_counts(tokens: np.ndarray, order: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The n-grams and their counts, unigrams first: raw in the highest order, continuations below."""
    keys = ngrams(tokens, order)
    # A window that reaches into the sentence before has the start of its own as second word.
    result = [tally(keys[keys >> BITS * (order - 2) & WORD != START])]
    for n in reversed(range(1, order)):
        keys, counts = tally(result[0][0] & ((1 << BITS * n) - 1))
        raw = ngrams(tokens, n)
        raw, raw_counts = tally(raw[raw >> BITS * (n - 1) == START])
        # The start is row 0: what begins with it sorts before all others.
        result.insert(0, (np.concatenate([raw, keys]), np.concatenate([raw_counts, counts])))
    return result


def counts_of_counts(counts: np.ndarray) -> np.ndarray:
    """How many n-grams have the count 1, 2, 3, 4, at these places."""
    return np.bincount(np.minimum(counts, 5), minlength=6)[:5]


def discounts(counts: np.ndarray) -> np.ndarray | None:
    """0, D1, D2, D3+ for the counts 0, 1, 2, 3+; None where lmplz refuses: one is undefined or negative."""
    n = counts_of_counts(counts).astype(float)
    if not n[1:4].all():
        return None
    y = n[1] / (n[1] + 2 * n[2])
    found = np.array([0.0] + [i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3)])
    return found if (found >= 0).all() else None


@dataclass(frozen=True)
class Level:
    """One order of a model: its n-grams and their contexts, sorted, with what the interpolation needs of each."""

    keys: np.ndarray
    shares: np.ndarray  # of an n-gram: (count − discount) / total of its context
    contexts: np.ndarray
    weights: np.ndarray  # of a context: what its discounts left over, for the order below

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
        """Probabilities of this order from those of the order below, which an unseen context leaves as they are."""
        weights = look_up(self.contexts, self.weights, keys >> BITS, missing=1.0)
        return look_up(self.keys, self.shares, keys, missing=0.0) + weights * lower


def look_up(keys: np.ndarray, values: np.ndarray, queries: np.ndarray, missing: float) -> np.ndarray:
    """The value of each query, by binary search."""
    places = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[places] == queries, values[places], missing)


class KneserNey:
    """An interpolated modified Kneser–Ney model of order 2 or 3, estimated from training tokens.

    `replaced`: the orders whose counts give no discounts and which got lmplz's instead, where `fallback` allows it.
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
        """Of the last word of each n-gram of the model's order, given the others.

        The trigrams of first words begin with the end of another sentence: a context never seen, so that what they get
        is the bigram probability after the start.
        """
        result = np.full(len(keys), self.uniform)
        for n, level in enumerate(self.levels, 1):
            result = level.interpolate(keys & ((1 << BITS * n) - 1), result)
        return result

    def score(self, tokens: np.ndarray) -> np.ndarray:
        """The probability of every token to predict."""
        return self.probabilities(ngrams(tokens, len(self.levels)))


def no_discounts(order: int, counts: np.ndarray) -> DataError:
    """Tiny corpora miss a count; a vocabulary cut at some frequency has few unigrams that are rare."""
    have = ", ".join(f"{n:,}" for n in counts_of_counts(counts)[1:])
    return DataError(
        f"No Kneser–Ney discounts for {NAMES[order]}s: {have} of them have the counts 1, 2, 3, 4, which makes one "
        "undefined or negative. Train on more text, or replace them with --discount-fallback"
    )


def unigram_score(train: np.ndarray, heldout: np.ndarray, size: int) -> np.ndarray:
    """The probability of every token to predict, by its frequency in training with one added."""
    counts = np.bincount(train, minlength=size) + 1
    return counts[heldout[heldout != START]] / (counts.sum() - counts[START])


def perplexities(
    size: int, train: np.ndarray, texts: list[np.ndarray], fallback: bool = False
) -> tuple[list[dict[str, dict[str, float]]], list[str]]:
    """Of each text by name of the model and direction; and which discounts were replaced."""
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
    """Everything the table shows."""
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--discount-fallback", action="store_true", help="0.5, 1, 1.5 where counts give no discounts")
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
