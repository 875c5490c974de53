"""Ids that a biLM cannot read are refused, with what was found and what is expected."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from elmo.errors import DataError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.elmo import Elmo
from elmo.model.lstm import LSTMConfig
from models import ids_of, small

C = 20  # characters of a word
SENTENCES = [["the", "cat"], [], ["x"]]


@pytest.fixture
def bilm(tmp_path: Path) -> BiLM:
    bilm, _ = small(tmp_path, "skip")
    assert bilm.config.char_cnn is not None
    assert bilm.config.char_cnn.max_characters_per_token == C
    return bilm


def words() -> BiLM:
    return BiLM(BiLMConfig(LSTMConfig(dim=6, projection_dim=4), char_cnn=None, n_words=9))


def changed(ids: Tensor, value: int) -> Tensor:
    ids = ids.clone()
    ids[0, 1, 2] = value
    return ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda ids: ids[..., :-1],
            rf"^ids have shape \(3, 4, 19\); expected character ids of shape \(B, T, {C}\), as ",
        ),
        (lambda ids: ids[0], rf"^ids have shape \(4, 20\); expected character ids of shape \(B, T, {C}\)"),
        (lambda ids: ids[None], rf"^ids have shape \(1, 3, 4, 20\); expected character ids of shape \(B, T, {C}\)"),
        (lambda ids: ids[0, 0, 0], rf"^ids have shape \(\); expected character ids of shape \(B, T, {C}\)"),
        (lambda ids: ids.numpy(), r"^ids are a ndarray; expected a tensor of character ids, as Embedder\.ids gives"),
        (lambda ids: ids.float(), r"^ids are of type torch\.float32; expected character ids as integers"),
        (lambda ids: ids > 0, r"^ids are of type torch\.bool; expected character ids as integers"),
        (lambda ids: changed(ids, -1), r"^ids are from -1 to 261; expected character ids from 0 \(no token\) to 261$"),
        (lambda ids: changed(ids, 262), r"^ids are from 0 to 262; expected character ids from 0 \(no token\) to 261$"),
    ],
)
def test_character_ids_that_cannot_be_read(bilm: BiLM, change: Any, message: str) -> None:
    ids = change(ids_of(bilm, SENTENCES))
    for model in (bilm, Elmo(bilm)):
        with pytest.raises(DataError, match=message):
            model(ids)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.ones(2, 3, 50).long(), r"^ids have shape \(2, 3, 50\); expected word ids of shape \(B, T\), as "),
        (torch.tensor([[1, 10]]), r"^ids are from 1 to 10; expected word ids from 0 \(no token\) to 9$"),
        (torch.tensor([[1, -2]]), r"^ids are from -2 to 1; expected word ids from 0 \(no token\) to 9$"),
        (torch.tensor([[1.0, 2.0]]), r"^ids are of type torch\.float32; expected word ids as integers"),
    ],
)
def test_word_ids_that_cannot_be_read(ids: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        words()(ids)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_integers_of_any_width_are_the_same(bilm: BiLM, dtype: torch.dtype) -> None:
    ids = ids_of(bilm, SENTENCES)
    assert torch.equal(bilm(ids.to(dtype))[0].activations, bilm(ids)[0].activations)


def test_small_word_ids_are_no_mask() -> None:
    model, ids = words(), torch.tensor([[1, 2, 0], [9, 1, 3]])
    assert torch.equal(model(ids.to(torch.uint8))[0].activations, model(ids)[0].activations)


def test_no_sentences_have_no_layers(bilm: BiLM) -> None:
    layers, _ = bilm(torch.zeros(0, 3, C, dtype=torch.long))
    assert layers.activations.shape == (bilm.config.n_layers, 0, 3, bilm.config.output_dim)
