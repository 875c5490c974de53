"""The NumPy trigram against the published formulas with dictionaries, and against figures of KenLM's lmplz."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elmo.analysis import kneser_ney, trigram
from elmo.errors import DataError

Sentences = list[list[int]]  # words alone: rows from 2 on


def draw(seed: int, sentences: int, size: int) -> Sentences:
    """Sentences of 0 to 9 words, low rows more often; a generator of our own, so that the text never changes."""

    def uniform() -> Iterator[float]:
        state = seed
        while True:
            state = (1103515245 * state + 12345) % 2**31
            yield state / 2**31

    numbers = uniform()
    lengths = [int(10 * next(numbers)) for _ in range(sentences)]
    return [[1 + int((size - 1) ** next(numbers)) for _ in range(length)] for length in lengths]


def pack(sentences: Sentences) -> np.ndarray:
    return np.array([row for words in sentences for row in (0, *words, 1)], dtype=np.uint32)


class Reference:
    """Modified Kneser–Ney as Chen & Goodman write it: sums over dictionaries, one probability at a time.

    A sentence begins with "start" and its last word is "end"; for the backward model the caller reverses the words.
    """

    def __init__(self, sentences: Sentences, order: int, size: int) -> None:
        self.order, self.size = order, size
        raw: list[Counter] = [Counter() for _ in range(order + 1)]
        for sentence in sentences:
            tokens = ("start", *sentence, "end")
            for n in range(1, order + 1):
                raw[n].update(tokens[i : i + n] for i in range(len(tokens) - n + 1))
        in_front: defaultdict[tuple, set] = defaultdict(set)
        for n in range(2, order + 1):
            for gram in raw[n]:
                in_front[gram[1:]].add(gram[0])
        self.counts: dict[tuple, int] = {}
        for n in range(1, order + 1):
            for gram, count in raw[n].items():
                if gram != ("start",):
                    own = n == order or gram[0] == "start"
                    self.counts[gram] = count if own else len(in_front[gram])
        self.followers: defaultdict[tuple, list] = defaultdict(list)
        for gram, count in self.counts.items():
            self.followers[gram[:-1]].append(count)
        self.discounts = {n: self.estimate(n) for n in range(1, order + 1)}

    def estimate(self, n: int) -> list[float] | None:
        of = Counter(count for gram, count in self.counts.items() if len(gram) == n)
        if 0 in (of[1], of[2], of[3]):
            return None
        y = of[1] / (of[1] + 2 * of[2])
        found = [1 - 2 * y * of[2] / of[1], 2 - 3 * y * of[3] / of[2], 3 - 4 * y * of[4] / of[3]]
        return found if min(found) >= 0 else None

    def discount(self, n: int, count: int) -> float:
        return 0.0 if count == 0 else (self.discounts[n] or [0.5, 1.0, 1.5])[min(count, 3) - 1]

    def probability(self, context: tuple, word: object) -> float:
        lower = self.probability(context[1:], word) if context else 1 / (self.size - 1)
        followers = self.followers.get(context)
        if followers is None:
            return lower
        n, total, count = len(context) + 1, sum(followers), self.counts.get((*context, word), 0)
        left_over = sum(self.discount(n, other) for other in followers) / total
        return (count - self.discount(n, count)) / total + left_over * lower

    def score(self, sentences: Sentences) -> list[float]:
        result = []
        for sentence in sentences:
            tokens = ("start", *sentence, "end")
            for i in range(1, len(tokens)):
                result.append(self.probability(tokens[max(0, i - self.order + 1) : i], tokens[i]))
        return result


def reverse(sentences: Sentences) -> Sentences:
    return [sentence[::-1] for sentence in sentences]


# Corpora with discounts of their own, and ones so small that some or all orders fall back.
CORPORA = [(8, 300, 300), (2, 500, 30), (3, 60, 12), (4, 9, 40), (5, 3, 5)]


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize(("seed", "sentences", "size"), CORPORA)
def test_every_probability_is_the_formula_s(order: int, seed: int, sentences: int, size: int) -> None:
    train, heldout = draw(seed, sentences, size), draw(seed + 100, 200, size)
    reference = Reference(train, order, size)
    model = kneser_ney.KneserNey(pack(train), order, size, fallback=True)
    assert model.replaced == [n for n, found in reference.discounts.items() if found is None]
    np.testing.assert_allclose(model.score(pack(heldout)), reference.score(heldout), rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", [2, 3])
def test_backward_is_forward_of_reversed_sentences(order: int) -> None:
    train, heldout = draw(6, 500, 30), draw(106, 100, 30)
    model = kneser_ney.KneserNey(kneser_ney.backward(pack(train)), order, 30, fallback=True)
    ours = model.score(kneser_ney.backward(pack(heldout)))
    # The array is reversed as a whole: its last sentence comes first.
    theirs = Reference(reverse(train), order, 30).score(reverse(heldout)[::-1])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)


def test_the_corpora_have_both_kinds_of_discounts() -> None:
    replaced = [kneser_ney.KneserNey(pack(draw(s, n, v)), 3, v, fallback=True).replaced for s, n, v in CORPORA]
    assert [] in replaced
    assert [1, 2, 3] in replaced


@pytest.mark.parametrize(("seed", "sentences", "size"), CORPORA)
def test_probabilities_sum_to_one_in_every_context(seed: int, sentences: int, size: int) -> None:
    model = kneser_ney.KneserNey(pack(draw(seed, sentences, size)), 3, size, fallback=True)
    words = np.arange(1, size, dtype=np.uint64)
    # Pairs of words, seen or not; (1, 0) is the start of a sentence alone.
    pairs = [(1, 0), *((0, v) for v in range(2, size)), *((u, v) for u in range(2, size) for v in range(2, size))]
    sums = [model.probabilities((u << 42 | v << 21) + words).sum() for u, v in pairs[:2000]]
    np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-12)


# lmplz and query of the kenlm 0.3.0 package on draw(8, 300, 300), rows written as words. Two words of the held-out
# sentences are not in training and get the probability of KenLM's <unk>, one more word than the 245 of training.
LMPLZ_SIZE = 245 + len(["<s>", "</s>", "<unk>"])
LMPLZ_DISCOUNTS = [[0.407767, 1.37832, 1.78985], [0.812963, 1.34802, 1.67517], [0.956765, 1.46846, 1.46918]]
LMPLZ_LOG10 = [
    *[-3.3391836, -1.5992384, -1.5835673, -2.929615, -1.0760047],
    *[-3.1662703, -1.3088847, -0.910054, -3.358995, -1.9833304, -3.09057, -1.7801137, -1.9497492, -0.74111575],
    *[-3.038298, -1.4351469, -1.2186213, -2.6400661, -2.8938758, -2.576953, -1.249453, -0.7512947],
    *[-1.6776924, -2.7580996, -2.8805544, -2.0169585, -2.465189, -0.45075387],
]
LMPLZ_BACKWARD_SUM = -56.954766


def test_lmplz_estimates_the_same() -> None:
    train, heldout = pack(draw(8, 300, 300)), pack(draw(108, 4, 300))
    forward = kneser_ney.KneserNey(train, 3, LMPLZ_SIZE)
    np.testing.assert_allclose([found[1:] for found in forward.discounts], LMPLZ_DISCOUNTS, atol=1e-5)
    np.testing.assert_allclose(np.log10(forward.score(heldout)), LMPLZ_LOG10, atol=1e-6)
    backward = kneser_ney.KneserNey(kneser_ney.backward(train), 3, LMPLZ_SIZE)
    assert np.log10(backward.score(kneser_ney.backward(heldout))).sum() == pytest.approx(LMPLZ_BACKWARD_SUM, abs=1e-5)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([[2, 3, 4]], "No Kneser–Ney discounts for unigrams: 4, 0, 0, 0 of them have the counts 1, 2, 3, 4"),
        (draw(2, 500, 30), "No Kneser–Ney discounts for unigrams: .* replace them with discount_fallback=true"),
    ],
)
def test_counts_without_discounts_are_refused(sentences: Sentences, message: str) -> None:
    with pytest.raises(DataError, match=message):
        kneser_ney.KneserNey(pack(sentences), 3, 30)


def test_no_trigram_is_refused_even_with_the_fallback() -> None:
    with pytest.raises(DataError, match="No Kneser–Ney discounts for trigrams: 0, 0, 0, 0 of them"):
        kneser_ney.KneserNey(pack([[], []]), 3, 30, fallback=True)


def write(folder: Path, size: int, **files: list[np.ndarray]) -> Path:
    description: dict[str, object] = {"vocabulary": size}
    for name, arrays in files.items():
        description[name] = [{"file": f"{name}-{i}.npy"} for i in range(len(arrays))]
        for i, array in enumerate(arrays):
            np.save(folder / f"{name}-{i}.npy", array)
    (folder / "corpus.json").write_text(json.dumps(description), encoding="utf-8")
    return folder


def perplexity(probabilities: list[float]) -> float:
    return math.exp(-sum(map(math.log, probabilities)) / len(probabilities))


def test_the_figures_of_a_corpus(tmp_path: Path) -> None:
    """Rows from 200 on are unknown, training is in two files, and every figure is the reference's."""
    train, heldout, size = draw(8, 300, 300), draw(108, 100, 300), 200
    write(tmp_path, size, train=[pack(train[:90]), pack(train[90:])], heldout=[pack(heldout)])
    found = trigram.measure(tmp_path, fallback=True)
    shown = trigram.table(found)

    known, asked = ([[w if w < size else 2 for w in s] for s in sentences] for sentences in (train, heldout))
    words = [w for s in asked for w in s]
    assert (found["tokens"], found["sentences"], found["unknown"]) == (len(words) + 100, 100, words.count(2))
    assert found["unknown_rate"] == pytest.approx(words.count(2) / (len(words) + 100))
    counts = Counter(w for s in known for w in s)
    total = counts.total() + len(known) + size - 1
    unigram = perplexity([(counts[w] + 1) / total for w in words] + [(len(known) + 1) / total] * 100)
    assert found["perplexity"]["unigram"] == pytest.approx({"forward": unigram, "backward": unigram, "both": unigram})
    for order, name in ((2, "bigram"), (3, "trigram")):
        forward = perplexity(Reference(known, order, size).score(asked))
        backward = perplexity(Reference(reverse(known), order, size).score(reverse(asked)))
        both = math.exp((math.log(forward) + math.log(backward)) / 2)
        assert found["perplexity"][name] == pytest.approx({"forward": forward, "backward": backward, "both": both})
        assert f"| {name} | {forward:.1f} | {backward:.1f} | {(forward + backward) / 2:.1f} |" in shown


@pytest.mark.parametrize(
    ("size", "heldout", "message"),
    [
        (30, [0, 2, 1, 2, 1], "a heldout file is missing, or is not sentences of the form 0, words…, 1"),
        (30, [0, 2, 1, 0, 2], "a heldout file is missing, or is not sentences of the form 0, words…, 1"),
        (2, [0, 1], "a vocabulary of 2 words; expected 3 to 2,097,152"),
    ],
)
def test_what_is_no_corpus_is_refused(tmp_path: Path, size: int, heldout: list[int], message: str) -> None:
    write(tmp_path, size, train=[pack([[2]])], heldout=[np.array(heldout, dtype=np.uint32)])
    with pytest.raises(DataError, match=message):
        trigram.read(tmp_path)


def test_a_folder_without_a_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus\.json: not a corpus that can be read \(FileNotFoundError"):
        trigram.read(tmp_path)
