"""Perplexity against brute force: the NumPy biLM with a NumPy log-softmax, one sentence and one token at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from corpora import write_corpus
from elmo.model.bilm import BiLM
from elmo.pretrain import evaluate
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.evaluate import Perplexity, perplexity
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf
from embedders import OPTIONS
from models import write_published
from numpy_reference import Options, Reference, State, random_weights

D = OPTIONS["lstm"]["projection_dim"]
TOLERANCE = 2e-6  # relative, of float32 sums against float64; found are some 1e-7
VOCABULARY_SIZE = 16
WORDS = ["the", "cat", "sat", "on", "a", "mat", ".", "naïve", "日本語", "unquestionably-overlong-word", "x", "it"]
RARE = [f"rare{k}" for k in range(9)]  # not predicted: they are <UNK>


def _sentences(seed: int, n: int) -> list[list[str]]:
    """No two alike, one without a word, some of them long; the last words are not in the vocabulary."""
    rng = np.random.default_rng(seed)
    likely = 1 / np.arange(1, len(WORDS) + len(RARE) + 1)
    found: list[list[str]] = [[]]
    while len(found) < n:
        some = rng.choice(WORDS + RARE, size=rng.integers(1, 18), p=likely / likely.sum()).tolist()
        if some not in found:
            found.append(some)
    return [*found[1:4], found[0], *found[4:]]


TRAIN = [_sentences(1, 30), _sentences(2, 11)]
HELDOUT = _sentences(3, 24)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus.open(write_corpus(tmp_path_factory.mktemp("evaluate") / "corpus", TRAIN, HELDOUT, VOCABULARY_SIZE))


@dataclass(frozen=True)
class Kind:
    """What a model is made of."""

    words: bool = False  # they enter by a table
    shared: bool = False  # which is the softmax's weight too
    bidirectional: bool = True


KINDS = {
    "characters": Kind(),
    "word table": Kind(words=True),
    "shared softmax": Kind(words=True, shared=True),
    "one direction": Kind(bidirectional=False),
    "one direction, word table": Kind(words=True, bidirectional=False),
}


class Known:
    """A language model of ours, and the same in NumPy."""

    def __init__(self, name: str, vocabulary: Sequence[str]) -> None:
        kind = KINDS[name]
        rng = np.random.default_rng(list(KINDS).index(name))
        n = len(vocabulary)
        weights = random_weights(OPTIONS, rng, scale=2.0, vocabulary_size=n if kind.words else None)
        self.reference = Reference(OPTIONS, weights, vocabulary if kind.words else None)
        softmax = weights["embedding"] if kind.shared else rng.standard_normal((n, D)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        self.rows = {word: row for row, word in enumerate(vocabulary)}
        self.directions = 2 if kind.bidirectional else 1
        self.softmax, self.bias = softmax.astype(np.float64), bias.astype(np.float64)
        options: Options = {**OPTIONS, "bidirectional": kind.bidirectional}
        if kind.words:
            options |= {"char_cnn": None, "n_tokens_vocab": n}
        there = {k: v for k, v in weights.items() if kind.bidirectional or not k.startswith("RNN_1")}
        with TemporaryDirectory() as folder:
            read = bilm_tf.read(*write_published(Path(folder), options, there))
        self.bilm = BiLM(replace(read.config, n_softmax=n, share_embedding_softmax=kind.shared)).eval()
        values = {**read.state_dict(), "softmax.bias": torch.from_numpy(bias)}
        self.bilm.load_state_dict(values | ({} if kind.shared else {"softmax.weight": torch.from_numpy(softmax)}))
        self.vocabulary = Vocabulary(vocabulary)

    def row(self, word: str) -> int:
        return self.rows.get(word, self.rows["<UNK>"])

    def log_p(self, hidden: NDArray[np.float64], word: str) -> float:
        scores = self.softmax @ hidden + self.bias
        return float(scores[self.row(word)] - np.log(np.exp(scores).sum()))

    def score(self, rows_of_text: Sequence[Sequence[Sequence[str]]]) -> Perplexity:
        """Each row of text is read from zeros and its state carried to its end."""
        counted, certain = [[0.0, 0.0] for _ in range(2)]
        n_counted = n_certain = n_unknown = 0
        for sentences in rows_of_text:
            state: State | None = None
            for number, sentence in enumerate(sentences):
                layers, state = self.reference.layers(sentence, state, keep_boundaries=True)
                top, bounded = layers[-1], ["<S>", *sentence, "</S>"]
                followed = number + 1 < len(sentences)
                for direction in range(self.directions):
                    hidden = top[:, :D] if direction == 0 else top[::-1, D:]
                    text = bounded if direction == 0 else bounded[::-1]
                    for h, word in zip(hidden[:-1], text[1:], strict=True):
                        counted[direction] += self.log_p(h, word)
                    if followed:  # every sentence begins with the same boundary
                        certain[direction] += self.log_p(hidden[-1], text[0])
                n_counted += len(sentence) + 1
                n_certain += followed
                n_unknown += sum(self.row(word) == self.rows["<UNK>"] for word in sentence)
        each = [math.exp(-total / n_counted) for total in counted[: self.directions]]
        sums = [one + other for one, other in zip(counted, certain, strict=True)][: self.directions]
        return Perplexity(
            forward=each[0],
            backward=each[1] if self.directions == 2 else None,
            as_bilm_tf=math.exp(-sum(sums) / len(sums) / (n_counted + n_certain)),
            tokens=n_counted,
            unknown=n_unknown / n_counted,
        )


def assert_same(found: Perplexity, expected: Perplexity) -> None:
    assert found.tokens == expected.tokens
    assert found.unknown == pytest.approx(expected.unknown, rel=1e-12)
    assert (found.backward is None) == (expected.backward is None)
    ways = ("forward", "backward") if found.backward is not None else ("forward",)
    for name in (*ways, "mean", "geometric_mean", "as_bilm_tf"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=TOLERANCE), name


def fresh(sentences: Sequence[Sequence[str]]) -> list[list[Sequence[str]]]:
    return [[sentence] for sentence in sentences]


# Against brute force


@pytest.mark.parametrize("kind", KINDS)
def test_each_sentence_from_zeros(kind: str, corpus: Corpus) -> None:
    known = Known(kind, corpus.vocabulary.words)
    found = perplexity(known.bilm, known.vocabulary, corpus, corpus.heldout, carried=False)
    assert_same(found, known.score(fresh(HELDOUT)))
    assert found.as_bilm_tf == pytest.approx(found.geometric_mean, rel=1e-12)  # no sentence follows another


@pytest.mark.parametrize("steps", [1, 7, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_one_row_of_text(kind: str, steps: int, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state goes from sentence to sentence, and from one computed part to the next."""
    monkeypatch.setattr(evaluate, "ROWS", 1)
    monkeypatch.setattr(evaluate, "STEPS", steps)
    known = Known(kind, corpus.vocabulary.words)
    found = perplexity(known.bilm, known.vocabulary, corpus, corpus.heldout)
    assert_same(found, known.score([HELDOUT]))
    assert abs(found.forward / known.score(fresh(HELDOUT)).forward - 1) > 1e-3
    assert abs(found.as_bilm_tf / found.geometric_mean - 1) > 1e-3


@pytest.mark.parametrize("carried", [True, False])
@pytest.mark.parametrize("n_rows", [2, 3, 5, 16, 40])
def test_several_rows_of_text(n_rows: int, carried: bool, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are consecutive sentences, about as long as each other; every sentence is in one of them, once."""
    monkeypatch.setattr(evaluate, "ROWS" if carried else "SENTENCES", n_rows)
    monkeypatch.setattr(evaluate, "STEPS", 9)
    known = Known("characters", corpus.vocabulary.words)
    groups = rows_read(corpus, monkeypatch)
    found = perplexity(known.bilm, known.vocabulary, corpus, corpus.heldout, carried=carried)
    rows = [row for group in groups for row in group]
    assert sorted(sentence for row in rows for sentence in row) == sorted(HELDOUT)
    for row in rows:
        first = HELDOUT.index(row[0])
        assert row == HELDOUT[first : first + len(row)]
    assert_same(found, known.score(rows))
    lengths = [sum(len(sentence) + 2 for sentence in row) for row in rows]
    if carried:
        assert len(groups) == 1
        assert len(rows) <= n_rows
        longest = max(len(sentence) + 2 for sentence in HELDOUT)
        assert max(lengths) <= sum(lengths) / n_rows + longest
    else:
        assert [len(group) for group in groups[:-1]] == [n_rows] * (len(groups) - 1)
        assert len(rows) == len(HELDOUT)


def test_words_are_encoded_a_few_at_a_time(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "WORDS_AT_ONCE", 3)
    for kind in ("characters", "word table"):
        known = Known(kind, corpus.vocabulary.words)
        found = perplexity(known.bilm, known.vocabulary, corpus, corpus.heldout, carried=False)
        assert_same(found, known.score(fresh(HELDOUT)))


def test_several_shards(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """No state is carried from one shard to the next."""
    monkeypatch.setattr(evaluate, "ROWS", 1)
    known = Known("characters", corpus.vocabulary.words)
    assert len(corpus.train) == 2
    assert_same(perplexity(known.bilm, known.vocabulary, corpus, corpus.train), known.score(TRAIN))
    every = [*corpus.train, *corpus.heldout]
    assert_same(perplexity(known.bilm, known.vocabulary, corpus, every), known.score([*TRAIN, HELDOUT]))


@pytest.mark.parametrize("carried", [True, False])
@pytest.mark.parametrize("tokens", [1, 19, 20, 60, 10_000])
def test_a_limit_is_cut_at_the_end_of_a_sentence(
    tokens: int, carried: bool, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of the text, boundaries included: the sentence in which the limit falls is read to its end."""
    monkeypatch.setattr(evaluate, "ROWS", 1)
    known = Known("characters", corpus.vocabulary.words)
    left, rows = tokens, []
    for shard in [*TRAIN, HELDOUT]:
        some = []
        for sentence in shard:
            if left > 0:
                some.append(sentence)
                left -= len(sentence) + 2
        rows += [some] if some else []
    every = [*corpus.train, *corpus.heldout]
    found = perplexity(known.bilm, known.vocabulary, corpus, every, tokens=tokens, carried=carried)
    assert_same(found, known.score(rows if carried else fresh([sentence for row in rows for sentence in row])))


def test_a_limit_ends_in_the_second_shard(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "ROWS", 1)
    known = Known("characters", corpus.vocabulary.words)
    first = len(corpus.train[0])
    exact = perplexity(known.bilm, known.vocabulary, corpus, corpus.train, tokens=first)
    assert_same(exact, known.score(TRAIN[:1]))
    more = perplexity(known.bilm, known.vocabulary, corpus, corpus.train, tokens=first + 1)
    assert_same(more, known.score([TRAIN[0], TRAIN[1][:1]]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("carried", [True, False])
def test_a_vocabulary_of_its_own(kind: str, carried: bool, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another size and order than the corpus's, with `<UNK>` at its end and words that are in no text."""
    monkeypatch.setattr(evaluate, "ROWS", 1)
    words = ["zebra", "</S>", *WORDS[::-2], "rare3", "<S>", "lion", "<UNK>"]
    known = Known(kind, words)
    found = perplexity(known.bilm, known.vocabulary, corpus, corpus.heldout, carried=carried)
    expected = known.score([HELDOUT] if carried else fresh(HELDOUT))
    assert_same(found, expected)
    own = Known(kind, corpus.vocabulary.words)
    assert perplexity(own.bilm, own.vocabulary, corpus, corpus.heldout).unknown != found.unknown


# What is counted


def test_counts_of_the_text(corpus: Corpus) -> None:
    known = Known("characters", corpus.vocabulary.words)
    found = perplexity(known.bilm, known.vocabulary, corpus, corpus.heldout)
    (shard,) = corpus.heldout
    assert found.tokens == shard.tokens + shard.sentences == sum(len(sentence) + 1 for sentence in HELDOUT)
    unknown = sum(word not in corpus.vocabulary for sentence in HELDOUT for word in sentence)
    assert unknown > 5
    assert found.unknown == unknown / found.tokens


def test_a_softmax_that_knows_nothing_has_the_perplexity_of_its_size(corpus: Corpus) -> None:
    known = Known("characters", corpus.vocabulary.words)
    with torch.no_grad():
        known.bilm.softmax.weight.zero_()
        known.bilm.softmax.bias.fill_(0.7)
    found = perplexity(known.bilm, known.vocabulary, corpus, corpus.heldout)
    for value in (found.forward, found.backward, found.mean, found.geometric_mean, found.as_bilm_tf):
        assert value == pytest.approx(VOCABULARY_SIZE, rel=1e-6)


def test_means_of_both_directions() -> None:
    both = Perplexity(forward=4.0, backward=9.0, as_bilm_tf=5.0, tokens=1, unknown=0.0)
    assert (both.mean, both.geometric_mean) == (6.5, 6.0)
    one = replace(both, backward=None)
    assert (one.mean, one.geometric_mean) == (4.0, 4.0)


def test_nothing_is_left_behind(corpus: Corpus) -> None:
    """Weights and random numbers are as they were, and no gradient is recorded."""
    known = Known("characters", corpus.vocabulary.words)
    before = {name: value.clone() for name, value in known.bilm.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    perplexity(known.bilm, known.vocabulary, corpus, corpus.heldout)
    assert torch.equal(torch.rand(2), expected)
    for name, value in known.bilm.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None for parameter in known.bilm.parameters())


# Many processes


@pytest.mark.parametrize("carried", [True, False])
@pytest.mark.parametrize("size", [2, 3])
def test_the_processes_parts_add_up_to_the_whole(
    size: int, carried: bool, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "ROWS" if carried else "SENTENCES", 5)
    known = Known("characters", corpus.vocabulary.words)
    every = [*corpus.train, *corpus.heldout]
    whole = perplexity(known.bilm, known.vocabulary, corpus, every, carried=carried)
    parts: list[torch.Tensor] = []
    groups = rows_read(corpus, monkeypatch)
    monkeypatch.setattr(World, "sum", lambda self, tensors: parts.append(tensors[0].clone()))
    for rank in range(size):
        perplexity(known.bilm, known.vocabulary, corpus, every, carried=carried, world=World(rank, size))
    read = [sentence for group in groups for row in group for sentence in row]
    assert sorted(read) == sorted([*TRAIN[0], *TRAIN[1], *HELDOUT])
    assert len(parts) == size
    monkeypatch.setattr(World, "sum", lambda self, tensors: tensors[0].copy_(sum(parts)))
    for rank in range(size):
        found = perplexity(known.bilm, known.vocabulary, corpus, every, carried=carried, world=World(rank, size))
        assert found.tokens == whole.tokens
        for name in ("forward", "backward", "as_bilm_tf", "unknown"):
            assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=1e-6)


def rows_read(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> list[list[list[list[str]]]]:
    """What is scored from now on, as groups of rows of sentences of words; both directions must agree on it."""
    groups: list[list[list[list[str]]]] = []
    score = evaluate._score

    def sentences(text: NDArray[np.uint32], reverse: bool) -> list[list[str]]:
        found: list[list[str]] = []
        begin, end = ("</S>", "<S>") if reverse else ("<S>", "</S>")
        for word in (corpus.words[int(row)] for row in text):
            if word == begin:
                found.append([])
            elif word != end:
                found[-1].append(word)
        return [sentence[::-1] for sentence in found] if reverse else found

    def recorded(bilm: BiLM, rows: list[Any], *rest: Any) -> torch.Tensor:
        forward, backward = ([sentences(row.directions[way], bool(way)) for row in rows] for way in (0, 1))
        assert forward == backward
        groups.append(forward)
        return score(bilm, rows, *rest)

    monkeypatch.setattr(evaluate, "_score", recorded)
    return groups
