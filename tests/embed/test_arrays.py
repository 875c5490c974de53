"""Sentences to arrays: skipped sentences change nothing for the others, and arguments are checked at once."""

import inspect

import numpy as np
import pytest
import torch

import elmo
from elmo.embed.arrays import STATES, SentenceArrays, Staging, embed_sentences
from elmo.embed.selection import Selection
from elmo.errors import ConfigError
from elmo.model.packing import Packing
from embedders import assert_same_bits, embedder
from models import random_sentences

SENTENCES = random_sentences(np.random.default_rng(1), 30)


@pytest.mark.parametrize("state", STATES)
def test_skipped_sentences_are_read_and_not_returned(state: str) -> None:
    every = list(embedder().embed(SENTENCES, state=state, batch_tokens=12, batch_size=4))
    for skip in (0, 1, 3, 4, 17, 29, 30, 40):
        runner = embedder().runner
        rest = list(embed_sentences(runner, SENTENCES, state=state, batch_tokens=12, batch_size=4, skip=skip))
        assert_same_bits(rest, every[skip:])


def test_skip_is_no_argument_of_the_public_embed() -> None:
    assert "skip" not in inspect.signature(elmo.Embedder.embed).parameters


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "cold"}, "state is 'cold'; expected one of fresh, carried, warm"),
        ({"batch_size": 0}, "batch_size is 0; expected 1 or more"),
        ({"batch_tokens": 0}, "batch_tokens is 0; expected 1 or more"),
        ({"dtype": "int8"}, "dtype is 'int8'; expected one of float32, float16"),
    ],
)
def test_arguments_are_checked_before_a_sentence_is_read(changes: dict[str, object], message: str) -> None:
    def unread() -> object:
        raise AssertionError("a sentence was read")
        yield []

    with pytest.raises(ConfigError, match=message):
        embed_sentences(embedder().runner, unread(), **changes)  # type: ignore[arg-type]


def test_packed_layers_become_the_arrays_of_their_sentences() -> None:
    batch = [["a"], ["b", "c", "d"], ["e", "f"]]
    packing = Packing.of([1, 3, 2])
    # The value of a token is 10 times its sentence plus its place in it; layer 1 is 100 more.
    values = torch.tensor([[10.0 * s + t] for s, t in zip(packing.sentence, packing.step, strict=True)])
    arrays = SentenceArrays(Selection(None), Staging())(batch, [values, values + 100], packing)
    for row, (sentence, array) in enumerate(zip(batch, arrays, strict=True)):
        expected = 10.0 * row + np.arange(len(sentence))[:, None]
        np.testing.assert_array_equal(array, np.stack([expected, expected + 100]))
