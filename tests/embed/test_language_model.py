"""Scores and substitutes against the NumPy reference and brute force; and models of one direction, wherever they go."""

import itertools
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

import elmo
from elmo.embed.language_model import Scores, Substitute
from elmo.embed.pooling import pooling
from elmo.embed.warm_up import TEXT
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.model.bilm import BiLM
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf
from elmo.weights.folder import Pretrained
from embedders import OPTIONS, WEIGHTS, assert_close, assert_same_bits, embedder
from embedders import elmo as elmo_command
from models import assert_same_datasets, datasets, write_published
from numpy_reference import Options, Reference, State, random_weights

VOCABULARY = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "naïve", ".", "mat", "on"]
SPECIAL = VOCABULARY[:3]
D = 5
SENTENCES = [
    ["the", "cat", "sat", "on", "the", "mat", "."],
    [],
    ["the"],
    ["zebras", "sat"],  # not in the vocabulary
    ["<UNK>", "on", "naïve", "日本語", "the"],
    [],
    ["cat"] * 12,
]


@dataclass(frozen=True)
class Kind:
    """What a model is made of."""

    words: bool = False  # they enter by a table
    shared: bool = False  # which is the softmax's weight too
    bidirectional: bool = True
    skip: bool = True


KINDS = {
    "characters": Kind(),
    "no skip": Kind(skip=False),
    "words": Kind(words=True),
    "shared softmax": Kind(words=True, shared=True),
    "one direction": Kind(bidirectional=False),
    "one direction, words": Kind(words=True, bidirectional=False, skip=False),
    "one direction, shared softmax": Kind(words=True, shared=True, bidirectional=False),
}


class Known:
    """A language model as files, as an Embedder, and as the reference with a softmax in NumPy."""

    def __init__(self, name: str, vocabulary: Sequence[str] = VOCABULARY) -> None:
        self.kind, self.vocabulary = KINDS[name], list(vocabulary)
        rng = np.random.default_rng(list(KINDS).index(name))
        self.options: Options = {**OPTIONS, "lstm": {**OPTIONS["lstm"], "use_skip_connections": self.kind.skip}}
        size = len(vocabulary) if self.kind.words else None
        self.weights = random_weights(self.options, rng, vocabulary_size=size)
        self.reference = Reference(self.options, self.weights, vocabulary if self.kind.words else None)
        self.softmax = rng.standard_normal((len(vocabulary), D)).astype(np.float32)
        if self.kind.shared:
            self.softmax = self.weights["embedding"]
        self.bias = rng.standard_normal(len(vocabulary)).astype(np.float32)

    def published(self, folder: Path) -> tuple[Path, Path]:
        """The files, which have no softmax; a model of one direction has one direction's weights."""
        options = {**self.options, "bidirectional": self.kind.bidirectional}
        if self.kind.words:
            options = {**options, "char_cnn": None, "n_tokens_vocab": len(self.vocabulary)}
        there = ("RNN_1",) if not self.kind.bidirectional else ()
        weights = {name: array for name, array in self.weights.items() if not name.startswith(there)}
        return write_published(folder, options, weights)

    def pretrained(self, softmax: bool = True) -> Pretrained:
        with TemporaryDirectory() as folder:
            bilm = bilm_tf.read(*self.published(Path(folder)))
        if softmax:
            n, shared = len(self.vocabulary), self.kind.shared
            values = {**bilm.state_dict(), "softmax.bias": torch.from_numpy(self.bias)}
            if not shared:
                values["softmax.weight"] = torch.from_numpy(self.softmax)
            bilm = BiLM(replace(bilm.config, n_softmax=n, share_embedding_softmax=shared))
            bilm.load_state_dict(values)
        return Pretrained(bilm, Vocabulary(self.vocabulary))

    def embedder(self, **settings: Any) -> elmo.Embedder:
        return elmo.Embedder(self.pretrained(), **settings)

    def layers(self, sentence: Sequence[str], start: State | None = None) -> NDArray[np.float64]:
        """All layers, (L+1, T+2, 2D) or of one direction D."""
        both = self.reference.layers(sentence, start, keep_boundaries=True)[0]
        return both if self.kind.bidirectional else both[..., :D]

    def log_softmax(self, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of every word, (T, V)."""
        scores = hidden @ self.softmax.astype(np.float64).T + self.bias
        return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def rows(self, words: Sequence[str]) -> list[int]:
        return [self.vocabulary.index(word if word in self.vocabulary else "<UNK>") for word in words]

    def scores(
        self, sentence: list[str], start: State | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """log p of w1 … wn `</S>` forward, and of `<S>` w1 … wn backward."""
        top, rows = self.layers(sentence, start)[-1], self.rows(["<S>", *sentence, "</S>"])
        steps = np.arange(len(sentence) + 1)
        forward = self.log_softmax(top[:-1, :D])[steps, rows[1:]]
        if not self.kind.bidirectional:
            return forward, None
        return forward, self.log_softmax(top[1:, D:])[steps, rows[:-1]]


def assert_scores(scores: Scores, known: Known, sentence: list[str], start: State | None = None) -> None:
    forward, backward = known.scores(sentence, start)
    assert scores.tokens == sentence
    assert scores.known.tolist() == [word in VOCABULARY for word in sentence]
    assert scores.known.dtype == np.bool_
    assert_close(scores.forward, forward[:-1])
    assert math.isclose(scores.forward_end, forward[-1], abs_tol=1e-5)
    if backward is None:
        assert scores.backward is None
        assert scores.backward_end is None
    else:
        assert scores.backward is not None
        assert scores.backward_end is not None
        assert_close(scores.backward, backward[1:])
        assert math.isclose(scores.backward_end, backward[0], abs_tol=1e-5)


# Scores


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_reference_s_with_a_softmax(kind: str) -> None:
    known = Known(kind)
    model = known.embedder()
    for sentence in SENTENCES:
        assert_scores(model.score(sentence), known, sentence)


@pytest.mark.parametrize("kind", ["characters", "shared softmax", "one direction"])
def test_a_warm_sentence_starts_after_the_text(kind: str) -> None:
    known = Known(kind)
    state = None
    for line in TEXT:
        _, state = known.reference.layers(line.split(), state)
    model = known.embedder()
    for sentence in SENTENCES:
        assert_scores(model.score(sentence, "warm"), known, sentence, state)
    assert abs(model.score(["the"], state="warm").forward[0] - model.score(["the"]).forward[0]) > 1e-3


@pytest.mark.parametrize("batch_tokens", [1, 5, 13, None])
@pytest.mark.parametrize("kind", ["characters", "words", "one direction"])
def test_the_batch_does_not_matter(kind: str, batch_tokens: int | None) -> None:
    known = Known(kind)
    model = known.embedder()
    for sentences in (SENTENCES, SENTENCES[::-1], SENTENCES * 3):
        scored = list(model.score_all(sentences, batch_tokens=batch_tokens))
        assert len(scored) == len(sentences)
        for scores, sentence in zip(scored, sentences, strict=True):
            assert_scores(scores, known, sentence)


def test_sentences_may_be_endless() -> None:
    model = Known("characters").embedder()
    stream = model.score_all(itertools.cycle([["the"], [], ["cat", "sat"]]), batch_tokens=4)
    assert [len(scores.tokens) for scores in itertools.islice(stream, 7)] == [1, 0, 2, 1, 0, 2, 1]


def test_a_string_is_raw_text() -> None:
    model = Known("characters").embedder()
    raw, tokens = model.score("the cat sat."), model.score(["the", "cat", "sat", "."])
    assert raw.tokens == tokens.tokens
    assert_same_bits([raw.forward], [tokens.forward])


def test_an_unknown_word_has_the_probability_of_unknown() -> None:
    model = Known("characters").embedder()
    one, other = model.score(["the", "zebra"]), model.score(["the", "<UNK>"])
    assert (one.known.tolist(), other.known.tolist()) == ([True, False], [True, True])
    assert one.forward[1] == pytest.approx(other.forward[1], abs=1e-6)
    assert abs(one.forward_end - other.forward_end) > 1e-3  # but it is read by its characters


def test_an_empty_sentence_has_just_its_ends() -> None:
    scores = Known("characters").embedder().score("")
    assert scores.tokens == []
    assert scores.forward.shape == scores.known.shape == (0,)
    each = [math.exp(-end) for end in (scores.forward_end, scores.backward_end) if end is not None]
    assert scores.perplexity == pytest.approx(sum(each) / len(each))


def test_surprisal_and_perplexity_are_what_they_are_called() -> None:
    scores = Known("characters").embedder().score(SENTENCES[0])
    assert scores.backward is not None
    assert scores.backward_end is not None
    assert scores.backward_surprisal is not None
    for bits, log_p in ((scores.forward_surprisal, scores.forward), (scores.backward_surprisal, scores.backward)):
        assert [2.0**-bit for bit in bits] == pytest.approx([math.exp(value) for value in log_p])
    products = [
        math.prod(math.exp(value) for value in [*log_p, end])
        for log_p, end in ((scores.forward, scores.forward_end), (scores.backward, scores.backward_end))
    ]
    n = len(scores.tokens) + 1
    assert scores.forward_perplexity == pytest.approx(products[0] ** (-1 / n))
    assert scores.backward_perplexity == pytest.approx(products[1] ** (-1 / n))
    assert scores.perplexity == pytest.approx((products[0] ** (-1 / n) + products[1] ** (-1 / n)) / 2)


def test_one_direction_has_a_perplexity_of_one_direction() -> None:
    scores = Known("one direction").embedder().score(SENTENCES[0])
    assert scores.backward_surprisal is scores.backward_total is scores.backward_perplexity is None
    assert scores.perplexity == scores.forward_perplexity
    assert scores.perplexity == pytest.approx(math.exp(-(sum(scores.forward) + scores.forward_end) / 8))


# Probabilities


@pytest.mark.parametrize("kind", KINDS)
def test_the_probabilities_of_all_words_sum_to_one(kind: str) -> None:
    known = Known(kind)
    side = ["the", "cat", "zebra"]
    model = known.embedder()
    after = [scores.forward[-1] for scores in model.score_all([[*side, word] for word in VOCABULARY])]
    assert sum(map(math.exp, after)) == pytest.approx(1, abs=1e-5)
    if known.kind.bidirectional:
        before = [scores.backward[0] for scores in model.score_all([[word, *side] for word in VOCABULARY])]
        assert sum(map(math.exp, before)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", ["characters", "shared softmax"])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_the_probabilities_of_all_sentences_sum_to_one(kind: str, way: str) -> None:
    """Every text either ends within two words or goes on to a third: the chain rule over all of them."""
    words = ["<S>", "</S>", "<UNK>", "the", "cat"]
    last = {"forward": "</S>", "backward": "<S>"}[way]
    others = [word for word in words if word != last]
    ended = [list(sentence) for n in range(3) for sentence in itertools.product(others, repeat=n)]
    going_on = [list(sentence) for sentence in itertools.product(others, repeat=3)]
    model = Known(kind, words).embedder()
    total = sum(math.exp(getattr(scores, f"{way}_total")) for scores in model.score_all(ended))
    total += sum(math.exp(getattr(scores, way).sum()) for scores in model.score_all(going_on))
    assert len(ended + going_on) == 85
    assert total == pytest.approx(1, abs=1e-5)


def test_a_word_s_probability_depends_on_its_own_side_alone() -> None:
    model = Known("characters").embedder()
    one, other = model.score(["the", "cat", "sat", "on"]), model.score(["the", "cat", "mat", "."])
    assert one.forward[:2] == pytest.approx(other.forward[:2], abs=1e-6)
    assert one.backward is not None
    assert other.backward is not None
    assert np.abs(one.backward[:2] - other.backward[:2]).min() > 1e-3
    one, other = model.score(["cat", "sat", "on"]), model.score(["mat", "sat", "on"])
    assert one.backward is not None
    assert other.backward is not None
    assert one.backward[1:] == pytest.approx(other.backward[1:], abs=1e-6)


# Substitutes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("i", range(-4, 4))
def test_substitutes_are_found_by_trying_every_word(kind: str, i: int) -> None:
    model = Known(kind).embedder()
    sentence = ["the", "zebra", "sat", "cat"]
    weights = {}
    for word in VOCABULARY[3:]:
        changed = [*sentence]
        changed[i] = word
        scores = model.score(changed)
        weights[word] = math.exp(scores.forward[i])
        if scores.backward is not None:  # a word's own frequency, by its rank from 0, counts once
            rank = VOCABULARY.index(word)
            weights[word] *= math.exp(scores.backward[i]) / math.log((rank + 2) / (rank + 1))
    best = sorted(weights, key=lambda word: -weights[word])
    found = model.substitutes(sentence, i)
    assert [substitute.word for substitute in found] == best
    expected = [weights[word] / sum(weights.values()) for word in best]
    assert [substitute.probability for substitute in found] == pytest.approx(expected, abs=1e-5)
    assert sum(probability for _, probability in found) == pytest.approx(1, abs=1e-5)
    assert model.substitutes(sentence, i, n=2) == found[:2]
    assert model.substitutes(" ".join(sentence), i, n=2) == found[:2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("i", [0, 1, 3])
def test_each_direction_alone_has_the_probabilities_of_its_softmax(kind: str, i: int) -> None:
    known = Known(kind)
    sentence = ["the", "zebra", "sat", "cat"]
    top = known.layers(sentence)[-1]
    found = known.embedder().substitutes_by_direction(sentence, i, n=7)
    sides = [(found.forward, top[i, :D])]  # `<S>` is row 0: the output at the token before
    if known.kind.bidirectional:
        assert found.backward is not None
        sides.append((found.backward, top[i + 2, D:]))  # the output at the token after
    else:
        assert found.backward is None
    for shown, hidden in sides:
        p = dict(zip(VOCABULARY, np.exp(known.log_softmax(hidden[None])[0]), strict=True))
        best = sorted(VOCABULARY[3:], key=lambda word: -p[word])
        assert [word for word, _ in shown] == best
        assert [probability for _, probability in shown] == pytest.approx([p[word] for word in best], abs=1e-6)
        assert sum(p[word] for word in best) < 1 - 1e-3  # the rest is that of `<S>`, `</S>` and `<UNK>`
    assert found.both == known.embedder().substitutes(sentence, i, n=7)
    fewer = known.embedder().substitutes_by_direction(sentence, i - 4, n=2)
    assert (fewer.both, fewer.forward) == (found.both[:2], found.forward[:2])


def test_the_probability_of_one_direction_is_that_of_the_score() -> None:
    model = Known("characters").embedder()
    sentence = ["the", "cat", "sat"]
    scores, found = model.score(sentence), model.substitutes_by_direction(sentence, 1)
    assert scores.backward is not None
    assert found.backward is not None
    for shown, values in ((found.forward, scores.forward), (found.backward, scores.backward)):
        assert dict(shown)["cat"] == pytest.approx(math.exp(values[1]), rel=1e-5)


def test_the_word_that_stands_there_has_no_say() -> None:
    model = Known("characters").embedder()
    one, other = (dict(model.substitutes(["the", word, "sat"], 1)) for word in ("cat", "zebra"))
    assert one == pytest.approx(other, abs=1e-6)
    assert isinstance(model.substitutes(["the"], 0, n=1)[0], Substitute)


# Models and their files


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_scores_the_same(kind: str, tmp_path: Path) -> None:
    model = Known(kind).embedder()
    model.save(tmp_path / "model")
    again = elmo.load(tmp_path / "model", device="cpu", softmax=True)
    for state in ("fresh", "warm"):
        pairs = zip(model.score_all(SENTENCES, state=state), again.score_all(SENTENCES, state=state), strict=True)
        for one, other in pairs:
            assert_close(one.forward, other.forward)
            assert one.backward_total == pytest.approx(other.backward_total, abs=1e-5)
    assert elmo.load(tmp_path / "model", device="cpu").bilm.softmax is None


def test_vectors_are_those_of_the_model_without_its_softmax() -> None:
    known = Known("characters")
    plain = elmo.Embedder(known.pretrained(softmax=False))
    model = known.embedder()
    assert_same_bits(list(model.embed(SENTENCES)), list(plain.embed(SENTENCES)))
    scored = list(model.score_all(SENTENCES))
    for array, other in zip(model.embed(SENTENCES), plain.embed(SENTENCES), strict=True):
        assert_close(array, other)
    assert_scores(scored[0], known, SENTENCES[0])


def test_bfloat16_is_close() -> None:
    known = Known("characters")
    for scores, sentence in zip(known.embedder(precision="bfloat16").score_all(SENTENCES), SENTENCES, strict=True):
        forward, _ = known.scores(sentence)
        assert scores.forward.dtype == np.float64
        assert_close(scores.forward, forward[:-1], tolerance=0.2)


def test_a_batch_that_memory_does_not_hold_is_halved(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = Known("characters")
    model = known.embedder()
    whole = model.bilm.log_probabilities

    def little_memory(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if len(hidden) > 15:
            raise torch.OutOfMemoryError
        return whole(hidden, targets)

    monkeypatch.setattr(model.bilm, "log_probabilities", little_memory)
    for scores, sentence in zip(model.score_all(SENTENCES), SENTENCES, strict=True):
        assert_scores(scores, known, sentence)
    assert "out of memory: a batch of 7 sentences is halved" in caplog.text


def test_training_the_bilm_changes_its_scores() -> None:
    model = Known("characters").embedder()
    before = {state: model.score(SENTENCES[0], state) for state in ("fresh", "warm")}
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(1.1)
    untouched = elmo.Embedder(Pretrained(model.bilm, model.vocabulary))
    for state, old in before.items():
        scores = model.score(SENTENCES[0], state)
        assert_same_bits([scores.forward], [untouched.score(SENTENCES[0], state).forward])
        assert np.abs(scores.forward - old.forward).max() > 1e-3


def test_a_model_that_was_trained_is_saved_with_its_own_warm_state(tmp_path: Path) -> None:
    Known("characters").embedder().save(tmp_path / "model")
    model = elmo.load(tmp_path / "model", device="cpu")
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(1.1)
    model.save(tmp_path / "trained")
    again = elmo.load(tmp_path / "trained", device="cpu")
    expected = elmo.Embedder(Pretrained(model.bilm)).warm_state()
    assert_same_bits([part.numpy() for part in again.warm_state()], [part.numpy() for part in expected])


# Mistakes


def test_a_model_without_softmax_says_where_to_get_one(tmp_path: Path) -> None:
    message = (
        r"^the model has no softmax, so it predicts no words; load\(…, softmax=True\) reads the one in a model folder. "
        r"Published HDF5 files have none: `elmo finetune` trains one$"
    )
    known = Known("characters")
    known.embedder().save(tmp_path / "model")
    _, weights = known.published(tmp_path)
    models = [
        elmo.load(tmp_path / "model", device="cpu"),
        elmo.load(weights, device="cpu", softmax=True),
        embedder(),
    ]
    for model in models:
        for ask in (
            lambda model: model.score("the cat"),
            lambda model: model.score_all(["the cat"]),
            lambda model: model.substitutes("the cat", 0),
        ):
            with pytest.raises(WeightsError, match=message):
                ask(model)


def test_a_softmax_without_its_words_is_refused() -> None:
    bilm = Known("characters").pretrained().bilm
    with pytest.raises(WeightsError, match=r"^the model has a softmax but no vocabulary with its words; name the file"):
        elmo.Embedder(Pretrained(bilm)).score("the cat")
    other = Vocabulary([*VOCABULARY, "dog"])
    with pytest.raises(WeightsError, match=r"^the softmax has 10 words, the vocabulary 11; expected the same number\."):
        elmo.Embedder(Pretrained(bilm, other)).substitutes("the cat", 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"state": "carried"}, "state is 'carried'; every sentence is scored alone: expected fresh or warm"),
        ({"state": "cold"}, "state is 'cold'; every sentence is scored alone: expected fresh or warm"),
        ({"batch_tokens": 0}, "batch_tokens is 0; expected 1 or more"),
    ],
)
def test_what_cannot_be_is_refused_before_a_sentence_is_read(wrong: dict[str, Any], message: str) -> None:
    def unread() -> Any:
        raise AssertionError("a sentence was read")
        yield

    with pytest.raises(ConfigError) as error:
        Known("characters").embedder().score_all(unread(), **wrong)
    assert str(error.value) == message


def test_one_string_is_no_list_of_sentences() -> None:
    with pytest.raises(DataError, match=r"^expected a list of sentences, found one string; write \[text\]$"):
        Known("characters").embedder().score_all("the cat")


@pytest.mark.parametrize(
    ("sentence", "i", "n", "message"),
    [
        ("the cat", 2, 1, "i is 2; the sentence has 2 tokens, expected -2 to 1"),
        ("the cat", -3, 1, "i is -3; the sentence has 2 tokens, expected -2 to 1"),
        ("", 0, 1, "i is 0; the sentence has 0 tokens, so there is none to replace"),
        ("the cat", 0, 0, "n is 0; expected the number of words to find, 1 or more"),
    ],
)
def test_a_token_that_is_not_there_is_refused(sentence: str, i: int, n: int, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Known("characters").embedder().substitutes(sentence, i, n)
    assert str(error.value) == message


# Vectors of a model of one direction

ONE_WAY = ["one direction", "one direction, words"]


@pytest.mark.parametrize("kind", ONE_WAY)
@pytest.mark.parametrize("batch_tokens", [4, None])
def test_vectors_of_one_direction_are_the_forward_half(kind: str, batch_tokens: int | None) -> None:
    known = Known(kind)
    model = known.embedder()
    assert (model.dim, model.n_layers) == (D, 3)
    for array, sentence in zip(model.embed(SENTENCES, batch_tokens=batch_tokens), SENTENCES, strict=True):
        assert_close(array, known.layers(sentence)[:, 1:-1])
    carried = list(model.embed(SENTENCES, state="carried", batch_size=2))
    batches = [SENTENCES[start : start + 2] for start in range(0, len(SENTENCES), 2)]
    expected = [array[..., :D] for batch in known.reference.carried(batches) for array in batch]
    for array, other in zip(carried, expected, strict=True):
        assert_close(array, other)


@pytest.mark.parametrize("kind", ONE_WAY)
def test_poolings_of_one_direction(kind: str) -> None:
    known = Known(kind)
    model = known.embedder()
    tops = [known.layers(sentence)[-1, 1:-1] for sentence in SENTENCES]
    expected = {
        "mean": lambda top: top.mean(axis=0),
        "max": lambda top: top.max(axis=0),
        "first-last": lambda top: top[-1],  # where it has read everything
    }
    for name, pool in expected.items():
        vectors = model.encode(SENTENCES, name, "top")
        assert_close(vectors, np.stack([pool(top) if len(top) else np.zeros(D) for top in tops]))


def test_first_last_of_one_direction_is_the_last_token_of_any_width() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    assert np.array_equal(pooling("first-last", directions=1)(x), x[:, -1])
    assert not pooling("first-last", directions=1)(x[:, :0]).any()


@pytest.mark.parametrize("kind", ONE_WAY)
def test_a_model_of_one_direction_comes_back_from_its_folder(kind: str, tmp_path: Path) -> None:
    model = Known(kind).embedder()
    model.save(tmp_path / "model")
    again = elmo.load(tmp_path / "model", device="cpu")
    assert not again.config.bidirectional
    for state in ("fresh", "warm"):
        pairs = zip(again.embed(SENTENCES, state=state), model.embed(SENTENCES, state=state), strict=True)
        for array, other in pairs:
            assert_close(array, other)
    assert_same_bits([part.numpy() for part in again.warm_state()], [part.numpy() for part in model.warm_state()])


@pytest.mark.parametrize("kind", ONE_WAY)
def test_a_model_of_one_direction_is_converted_there_and_back(kind: str, tmp_path: Path) -> None:
    known = Known(kind)
    _, weights = known.published(tmp_path)
    Vocabulary(VOCABULARY).write(tmp_path / "vocabulary.txt")
    folder, back = tmp_path / "folder", tmp_path / "back" / "weights.hdf5"
    assert elmo_command("convert", weights, folder).code == 0
    assert elmo_command("convert", folder, back).code == 0
    assert_same_datasets(datasets(back), datasets(weights))
    for path in (folder, back):
        model = elmo.load(path, device="cpu")
        for array, sentence in zip(model.embed(SENTENCES), SENTENCES, strict=True):
            assert_close(array, known.layers(sentence)[:, 1:-1])
        assert elmo_command("info", path).code == 0


def test_a_pooled_file_of_one_direction_is_that_of_encode(tmp_path: Path) -> None:
    model = Known("one direction").embedder()
    model.save(tmp_path / "model")
    (tmp_path / "in.txt").write_text("".join(f"{' '.join(sentence)}\n" for sentence in SENTENCES), encoding="utf-8")
    options = ["--tokenized", "--pool", "first-last", "--layers", "top", "--device", "cpu"]
    ended = elmo_command("embed", tmp_path / "in.txt", tmp_path / "out.npz", "-m", tmp_path / "model", *options)
    assert ended.code == 0, ended.err
    with np.load(tmp_path / "out.npz") as file:
        vectors = [file[str(number)] for number in range(len(SENTENCES))]
    assert_close(np.stack(vectors), model.encode(SENTENCES, "first-last", "top"))


def test_published_files_of_two_directions_are_no_model_of_one(tmp_path: Path) -> None:
    options, weights = write_published(tmp_path, {**OPTIONS, "bidirectional": False}, WEIGHTS)
    with pytest.raises(WeightsError, match=r"'RNN_1/.*' is not in options\.json\. Are the two files"):
        bilm_tf.read(options, weights)


def test_a_sentence_that_is_too_long_is_not_scored() -> None:
    model = Known("characters").embedder()
    for call in (model.score, lambda sentence, **limit: list(model.score_all([sentence], **limit))):
        with pytest.raises(DataError, match=r"^sentence 0 has 4 tokens; expected at most 3\."):
            call(["the"] * 4, max_sentence_tokens=3)
        call(["the"] * 4, max_sentence_tokens=4)
    with pytest.raises(DataError, match=r"^sentence 0 has 100,001 tokens; expected at most 100,000\."):
        model.score(["the"] * 100_001)
