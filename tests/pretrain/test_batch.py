"""The batch of a step, compared with its window: words, characters, targets, negatives, padding and parts."""


import numpy as np
import pytest
import torch

from corpora import write_corpus
from elmo.pretrain import batch as module
from elmo.pretrain.batch import Batch, Batches
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.sampler import LogUniform
from elmo.pretrain.streams import Streams
from elmo.text.characters import word_ids

SIZE, UNROLL, CHARACTERS, VOCABULARY_SIZE = 6, 4, 7, 12


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    rng = np.random.default_rng(1)
    sentences = [[f"w{k}" for k in rng.integers(0, 25, size=rng.integers(1, 6))] for _ in range(60)]
    return Corpus.open(write_corpus(tmp_path_factory.mktemp("batch") / "corpus", [sentences], [], VOCABULARY_SIZE))


def streams(corpus: Corpus) -> Streams:
    return Streams(corpus, SIZE, UNROLL, seed=5)


def batches(
    corpus: Corpus, negatives: int | None = 3, characters: int | None = CHARACTERS, parts: int = 1, round_to: int = 1
) -> Batches:
    return Batches(
        corpus, streams(corpus), corpus.vocabulary,
        max_characters=characters, negatives=negatives, accumulate=parts, round_to=round_to,
    )  # fmt: skip


def words_read(corpus: Corpus, step: int, rows: slice = slice(None)) -> tuple[list[list[str]], list[list[str]]]:
    """The words that a step reads and predicts, by direction, time-major."""
    window = streams(corpus).window(step)[:, rows]
    read = [[corpus.words[row] for row in one[:, :-1].T.flatten()] for one in window]
    predicted = [[corpus.words[row] for row in one[:, 1:].T.flatten()] for one in window]
    return read, predicted


def predicted_row(corpus: Corpus, word: str) -> int:
    words = corpus.vocabulary.words
    return words.index(word) if word in words else words.index("<UNK>")


@pytest.mark.parametrize("step", [0, 3])
def test_inputs_are_the_words_of_the_window(step: int, corpus: Corpus) -> None:
    (batch,) = batches(corpus).of_step(step)
    read, _ = words_read(corpus, step)
    distinct = {word for words in read for word in words}
    assert len(batch.words) == len(distinct)
    for words, inputs in zip(read, batch.inputs, strict=True):
        np.testing.assert_array_equal(batch.words[inputs].numpy(), word_ids(words, CHARACTERS))


@pytest.mark.parametrize("frequent", [1, 4, 100_000])
def test_characters_of_frequent_words_are_cached(
    frequent: int, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = batches(corpus).of_step(2)[0].words
    monkeypatch.setattr(module, "FREQUENT", frequent)
    assert torch.equal(batches(corpus).of_step(2)[0].words, expected)


def test_a_model_of_words_reads_ids_of_its_vocabulary(corpus: Corpus) -> None:
    (batch,) = batches(corpus, characters=None).of_step(1)
    read, _ = words_read(corpus, 1)
    for words, inputs in zip(read, batch.inputs, strict=True):
        assert batch.words[inputs].tolist() == [predicted_row(corpus, word) + 1 for word in words]


def test_targets_of_the_full_softmax_are_rows_of_the_vocabulary(corpus: Corpus) -> None:
    (batch,) = batches(corpus, negatives=None).of_step(1)
    _, predicted = words_read(corpus, 1)
    assert batch.targets.tolist() == [[predicted_row(corpus, word) for word in words] for words in predicted]
    assert (batch.predicted, batch.negatives, batch.log_q, batch.filled) == (None, None, None, 0)


def test_targets_and_negatives_of_the_sampled_softmax(corpus: Corpus) -> None:
    (batch,) = batches(corpus).of_step(1)
    _, predicted = words_read(corpus, 1)
    assert batch.predicted is not None and batch.negatives is not None and batch.log_q is not None
    rows = batch.predicted
    assert rows.tolist() == sorted(set(rows.tolist()))
    expected = [[predicted_row(corpus, word) for word in words] for words in predicted]
    assert rows[batch.targets].tolist() == expected
    p = [np.log((k + 2) / (k + 1)) / np.log(VOCABULARY_SIZE + 1) for k in range(VOCABULARY_SIZE)]
    for direction in range(2):
        rng = np.random.default_rng([5, 2, 1, direction])  # the seed, the sequence of negatives, the step
        draw = LogUniform(VOCABULARY_SIZE).draw(rng, 3)
        assert rows[batch.negatives[direction]].tolist() == draw.words.tolist()
        log_q = [np.log(1 - (1 - p[row]) ** draw.tries) for row in rows.tolist()]
        assert batch.log_q[direction].tolist() == pytest.approx(log_q, rel=1e-5)


@pytest.mark.parametrize("round_to", [2, 16])
def test_sizes_are_padded_to_a_multiple(round_to: int, corpus: Corpus) -> None:
    (plain,), (padded,) = batches(corpus).of_step(1), batches(corpus, round_to=round_to).of_step(1)
    assert plain.predicted is not None and padded.predicted is not None
    for before, after in ((plain.words, padded.words), (plain.predicted, padded.predicted)):
        assert len(after) % round_to == 0
        assert 0 <= len(after) - len(before) < round_to
        assert torch.equal(after[: len(before)], before)
        assert all(torch.equal(row, before[0]) for row in after[len(before) :])
    assert padded.filled == len(padded.predicted) - len(plain.predicted)
    assert torch.equal(padded.inputs, plain.inputs)
    assert torch.equal(padded.targets, plain.targets)


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_divide_the_rows_of_text(parts: int, corpus: Corpus) -> None:
    found = batches(corpus, parts=parts).of_step(1)
    assert len(found) == parts
    size = SIZE // parts
    for number, batch in enumerate(found):
        read, predicted = words_read(corpus, 1, slice(number * size, (number + 1) * size))
        assert batch.predicted is not None
        for direction in range(2):
            ids = batch.words[batch.inputs[direction]].numpy()
            np.testing.assert_array_equal(ids, word_ids(read[direction], CHARACTERS))
            rows = batch.predicted[batch.targets[direction]].tolist()
            assert rows == [predicted_row(corpus, word) for word in predicted[direction]]


@pytest.mark.parametrize("ahead", [1, 2, 50])
def test_batches_prepared_ahead_are_those_of_their_steps(
    ahead: int, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AHEAD", ahead)
    made = batches(corpus)
    found = list(made.from_step(2, 7))
    assert len(found) == 5
    for step, (batch,) in zip(range(2, 7), found, strict=True):
        (expected,) = made.of_step(step)
        assert_equal(batch, expected)
    started = made.from_step(0, 5)
    next(started)
    started.close()  # an interrupted run


def test_a_batch_is_overwritten_by_another_of_its_sizes(corpus: Corpus) -> None:
    (first,), (second,) = (batches(corpus, round_to=64).of_step(step) for step in (0, 1))
    copy = first.to(torch.device("cpu"), copy=True)
    copy.copy_(second)
    assert copy.filled == first.filled
    for name in ("words", "inputs", "targets", "predicted", "negatives", "log_q"):
        assert torch.equal(getattr(copy, name), getattr(second, name))
        assert getattr(copy, name) is not getattr(first, name)


def assert_equal(one: Batch, other: Batch) -> None:
    for name, value in vars(one).items():
        expected = getattr(other, name)
        assert torch.equal(value, expected) if isinstance(value, torch.Tensor) else value == expected, name


def test_distinct_integers_are_found_without_sorting() -> None:
    distinct = module._Distinct(10)
    found, places = distinct(np.array([[7, 2], [2, 9]]), np.array([0, 7]))
    assert found.tolist() == [0, 2, 7, 9]
    assert places.tolist() == [[2, 1], [1, 3]]
    assert distinct.places(np.array([9, 0])).tolist() == [3, 0]
    again, places = distinct(np.array([5]))
    assert (again.tolist(), places.tolist()) == ([5], [0])
