"""Packed weights: the same layers as the reference, and rows that do not depend on the batch."""

from pathlib import Path

import numpy as np
import pytest
import torch

import elmo.model.kernels.lstm_cpu as lstm_cpu
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNN, CharCNNConfig
from elmo.model.kernels.char_cnn_cpu import PackedCharCNN
from elmo.model.kernels.products import PackedProduct, can_pack
from elmo.model.lstm import LSTMConfig, State
from elmo.model.packed import PackedBiLM, packed
from elmo.model.packing import Packing
from embedders import assert_close, embedder, fresh
from models import ids_of, random_sentences, small

needs_packing = pytest.mark.skipif(not can_pack(), reason="this PyTorch cannot pack matrices for oneDNN")


@needs_packing
@pytest.mark.parametrize(("inner", "columns"), [(3, 5), (128, 512), (300, 40)])
def test_products_are_right_and_a_row_does_not_depend_on_the_others(inner: int, columns: int) -> None:
    torch.manual_seed(0)
    x, matrix, other = torch.randn(70, inner), torch.randn(inner, columns), torch.randn(70, columns)
    product = PackedProduct(lambda: matrix)
    exact = x.double() @ matrix.double()
    assert_close(product(x).numpy(), exact.numpy(), 1e-4)
    assert_close(product(x, other[0]).numpy(), (exact + other[0]).numpy(), 1e-4)
    assert_close(product.plus(x, other).numpy(), (exact + other).numpy(), 1e-4)
    for rows in (1, 2, 5, 16, 33, 64):
        assert torch.equal(product(x[:rows], other[0]), product(x, other[0])[:rows])
        assert torch.equal(product.plus(x[:rows], other[:rows]), product.plus(x, other)[:rows])


@needs_packing
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(
    "config",
    [
        LSTMConfig(24, 10, cell_clip=0.2, proj_clip=0.1),
        LSTMConfig(24, 10, n_layers=3, cell_clip=None, proj_clip=None, use_skip_connections=False),
        LSTMConfig(16, 16),
    ],
)
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("lengths", [[5, 9, 1, 9, 3], [7], [2, 2]])
def test_layers_and_states_are_those_of_the_reference(
    joined: bool, config: LSTMConfig, bidirectional: bool, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lstm_cpu, "JOINED_BYTES", 1 << 30 if joined else 0)
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(config, CharCNNConfig(filters=((1, 4),), n_highway=0), bidirectional=bidirectional))
    bilm.requires_grad_(False)
    for lstm in bilm.lstms:
        lstm.bias.normal_()
    bilm.reference = True
    packing, tokens = Packing.of(lengths), torch.randn(sum(lengths), config.projection_dim)
    shape = config.n_layers, bilm.config.directions, len(lengths)
    state = State(torch.randn(*shape, config.projection_dim), torch.randn(*shape, config.dim))
    wanted, after = bilm.contextualize(tokens, packing, state)
    before = [part.clone() for part in state]
    layers, end = PackedBiLM(bilm).contextualize(tokens, packing, state)
    for layer, expected in zip([*layers, *end], [*wanted, *after], strict=True):
        torch.testing.assert_close(layer, expected, rtol=0, atol=2e-6)
    for part, kept in zip(state, before, strict=True):
        assert torch.equal(part, kept)


@needs_packing
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("longest", [9, 8])
def test_words_are_encoded_as_by_the_reference(activation: str, longest: int) -> None:
    """Also words that fill all their characters, which have no window of padding only."""
    torch.manual_seed(0)
    config = CharCNNConfig(activation, 5, ((1, 3), (4, 6), (7, 8)), 2, max_characters_per_token=9)
    cnn = CharCNN(config, 12).requires_grad_(False)
    for bias in cnn.biases:
        bias.normal_()
    ids = torch.randint(1, 257, (150, 9))
    for row, length in zip(ids, torch.randint(3, longest + 1, (150,)), strict=True):
        row[length:] = 261
    torch.testing.assert_close(PackedCharCNN(cnn)(ids), cnn(ids), rtol=0, atol=2e-6)


@needs_packing
def test_what_can_be_packed(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path)
    assert packed(bilm) is not None
    bilm.reference = True
    assert packed(bilm) is None
    bilm.reference = False
    assert packed(bilm.double()) is None
    assert packed(bilm.bfloat16()) is None


def test_without_the_operators_the_biLM_s_own_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    monkeypatch.setattr("elmo.model.packed.can_pack", lambda: False)
    model = embedder()
    sentences = random_sentences(np.random.default_rng(3), 5)
    for array, sentence in zip(model.embed(sentences), sentences, strict=True):
        assert_close(array, fresh(sentence))


@needs_packing
def test_the_reference_can_be_switched_on_at_any_time(tmp_path: Path) -> None:
    model = embedder()
    (first,) = model.embed([["one", "two"]])
    model.bilm.reference = True
    (second,) = model.embed([["one", "two"]])
    layers, _ = model.bilm(ids_of(model.bilm, [["one", "two"]]))
    assert_close(first, second)
    assert_close(second, layers.without_boundaries().activations[:, 0].numpy())
