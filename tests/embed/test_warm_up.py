"""`state="warm"`: every sentence starts from one state, the model's own or the one after a fixed text."""

from pathlib import Path

import numpy as np
import pytest

import elmo
from elmo.model.lstm import State
from elmo.weights.folder import Pretrained
from embedders import (
    OPTIONS,
    REFERENCE,
    WEIGHTS,
    assert_all_close,
    assert_close,
    assert_same_bits,
    embedder,
    fresh,
    warm_reference,
)
from models import random_sentences, state_of, write_published

SENTENCES = random_sentences(np.random.default_rng(5), 16)


def test_the_warm_state_is_the_one_after_the_text() -> None:
    h, c = state_of([warm_reference()])
    ours = embedder().warm_state()
    assert_close(ours.h.numpy(), h)
    assert_close(ours.c.numpy(), c)


@pytest.mark.parametrize("batch_tokens", [1, 20, None])
def test_every_sentence_starts_warm_whatever_its_batch(batch_tokens: int | None) -> None:
    model, start = embedder(), warm_reference()
    for sentences in (SENTENCES, SENTENCES[::-1]):
        arrays = list(model.embed(sentences, state="warm", batch_tokens=batch_tokens))
        assert_all_close(arrays, [REFERENCE.layers(sentence, start)[0] for sentence in sentences])


def test_warm_is_not_fresh() -> None:
    (array,) = embedder().embed([["the", "cat"]], state="warm")
    assert np.abs(array - fresh(["the", "cat"])).max() > 1e-2
    assert_close(array[0], fresh(["the", "cat"])[0])  # the tokens themselves have no state


def test_warm_is_running_from_the_warm_state() -> None:
    model = embedder()
    sentence = ["the", "cat", "sat"]
    layers, _ = model.bilm(model.ids([sentence]), model.warm_state())
    (array,) = model.embed([sentence], state="warm")
    assert_close(array, layers.without_boundaries().activations[:, 0].numpy())


def test_the_same_warm_calls_give_the_same_bits() -> None:
    first, second = (list(embedder().embed(SENTENCES, state="warm", batch_tokens=30)) for _ in range(2))
    assert_same_bits(first, second)


def test_what_was_embedded_before_does_not_move_the_warm_state() -> None:
    model = embedder(cache_bytes=100)
    list(model.embed(SENTENCES, state="carried"))
    list(model.embed(SENTENCES))
    h, c = state_of([warm_reference()])
    assert_close(model.warm_state().h.numpy(), h)
    assert_close(model.warm_state().c.numpy(), c)


def test_the_warm_state_lies_in_the_folder_and_is_read_back(tmp_path: Path) -> None:
    model = embedder()
    model.save(tmp_path / "model")
    again = elmo.load(tmp_path / "model", device="cpu")
    assert_same_bits([part.numpy() for part in again.warm_state()], [part.numpy() for part in model.warm_state()])


def test_a_stored_warm_state_is_used_instead_of_the_text(tmp_path: Path) -> None:
    _, state = REFERENCE.layers(["quite", "another", "text"])
    h, c = (array.astype(np.float32) for array in state_of([state]))
    model = embedder()
    stored = State(*(model.bilm.zero_state(1).h.new_tensor(part) for part in (h, c)))
    elmo.Embedder(Pretrained(model.bilm, None, stored)).save(tmp_path / "model")
    arrays = list(elmo.load(tmp_path / "model", device="cpu").embed(SENTENCES, state="warm"))
    assert_all_close(arrays, [REFERENCE.layers(sentence, state)[0] for sentence in SENTENCES])


def test_published_files_warm_up_as_the_folder_does(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    embedder().save(tmp_path / "model")
    both = (elmo.load(path, device="cpu").embed(SENTENCES, state="warm") for path in (weights, tmp_path / "model"))
    assert_all_close(*map(list, both))
