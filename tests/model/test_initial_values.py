"""A new model starts where the original did: the ranges and deviations of the spec."""

import pytest
import torch

from elmo.model.bilm import BiLM, BiLMConfig, WordTable
from elmo.model.char_cnn import CharCNN, CharCNNConfig
from elmo.model.lstm import LSTMConfig
from elmo.model.softmax import Softmax


@pytest.fixture(scope="module")
def bilm() -> BiLM:
    torch.manual_seed(0)
    return BiLM(BiLMConfig.preset("small"))


def within(values: torch.Tensor, limit: float) -> bool:
    """Uniform in ±limit: never beyond, and nearly reaching it, with the deviation of a uniform."""
    largest = values.abs().max().item()
    return 0.98 * limit < largest <= limit and abs(values.std().item() / (limit / 3**0.5) - 1) < 0.05


def test_char_cnn(bilm: BiLM) -> None:
    encoder = bilm.token_encoder
    assert isinstance(encoder, CharCNN)
    assert encoder.embedding[0].abs().sum() == 0
    assert within(encoder.embedding[1:], 1.0)
    assert all(within(weight, 0.05) for weight in encoder.filters)
    assert all(bias.abs().sum() == 0 for bias in encoder.biases)
    weight, bias = encoder.highways[0].weight, encoder.highways[0].bias
    assert weight.std().item() == pytest.approx(2048**-0.5, rel=0.01)
    assert bias[:2048].tolist() == [-2.0] * 2048
    assert bias[2048:].abs().sum() == 0
    assert encoder.projection is not None and encoder.projection_bias is not None
    assert encoder.projection.std().item() == pytest.approx(2048**-0.5, rel=0.01)
    assert encoder.projection_bias.abs().sum() == 0


def test_tanh_filters_are_normal_by_fan_in() -> None:
    torch.manual_seed(0)
    encoder = CharCNN(CharCNNConfig(activation="tanh", filters=((5, 4096),)), dim=8)
    assert encoder.filters[0].std().item() == pytest.approx((5 * 16) ** -0.5, rel=0.02)


def test_lstms_are_glorot_uniform_over_inputs_and_state_together(bilm: BiLM) -> None:
    for lstm in bilm.lstms:
        assert within(lstm.weight_input, (6 / (256 + 4096)) ** 0.5)
        assert within(lstm.weight_hidden, (6 / (256 + 4096)) ** 0.5)
        assert within(lstm.weight_projection, (6 / (1024 + 128)) ** 0.5)
        assert lstm.bias.abs().sum() == 0


def test_softmax_and_word_table() -> None:
    torch.manual_seed(0)
    softmax, table = Softmax(5000, 64), WordTable(5000, 64)
    assert softmax.weight.std().item() == pytest.approx(1 / 8, rel=0.02)
    assert softmax.bias.abs().sum() == 0
    assert table.embedding[0].abs().sum() == 0
    assert table.embedding[1:].std().item() == pytest.approx(1 / 8, rel=0.02)


def test_on_the_meta_device_nothing_is_computed() -> None:
    with torch.device("meta"):
        bilm = BiLM(BiLMConfig(LSTMConfig(dim=8, projection_dim=4), None, n_words=3, n_softmax=3))
    assert all(parameter.is_meta for parameter in bilm.parameters())
