"""The token encoder against the reference, which always convolves all C characters of one word at a time."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from elmo.errors import ConfigError
from elmo.model.char_cnn import CharCNN, CharCNNConfig, Highway
from elmo.text.characters import word_ids
from models import VARIANTS, WORDS, published, small
from numpy_reference import Reference, sigmoid

MANY = [*WORDS, *(f"word{number}" * (number % 12) for number in range(300))]  # several groups of all lengths


def encode(cnn: CharCNN, words: list[str]) -> torch.Tensor:
    vectors: torch.Tensor = cnn(torch.from_numpy(word_ids(words, cnn.config.max_characters_per_token)))
    return vectors


@pytest.mark.parametrize("variant", [*VARIANTS, *range(10)])
def test_vectors_are_the_reference_s(tmp_path: Path, variant: str | int) -> None:
    bilm, reference = small(tmp_path, variant)
    expected = np.stack([reference.encode(word) for word in WORDS])
    with torch.no_grad():
        in_float32 = encode(bilm.token_encoder, WORDS).numpy()
        in_float64 = encode(bilm.token_encoder.double(), WORDS).numpy()
    assert in_float32.shape == expected.shape
    assert np.abs(in_float32 - expected).max() < 5e-6
    assert np.abs(in_float64 - expected).max() < 1e-12


@pytest.mark.parametrize(
    "variant", ["fifty characters", "twenty characters", "as many characters as the widest filter", "tanh", 1, 2, 3]
)
def test_a_word_s_vector_does_not_depend_on_the_words_beside_it(tmp_path: Path, variant: str | int) -> None:
    bilm, reference = small(tmp_path, variant)
    cnn = bilm.token_encoder
    with torch.no_grad():
        together = encode(cnn, MANY)
        for row, word in list(enumerate(MANY))[::7]:
            alone = encode(cnn, [word])[0]
            torch.testing.assert_close(together[row], alone, rtol=0, atol=1e-6)
            assert np.abs(together[row].numpy() - reference.encode(word)).max() < 5e-6


def test_padding_wins_the_max_only_where_there_is_padding() -> None:
    """A filter that is highest on padding: the words that leave none, or less than its width, must not see it."""
    config = CharCNNConfig(embedding_dim=1, filters=((1, 1), (3, 1)), n_highway=0, max_characters_per_token=10)
    cnn = CharCNN(config, 2)
    with torch.no_grad():
        cnn.embedding.zero_()
        cnn.embedding[261] = 1.0
        for weight in cnn.filters:
            weight.fill_(1.0)
        for words in ([word] for word in ("", "a" * 5, "a" * 6, "a" * 7, "a" * 8, "a" * 9)):
            left = max(8 - len(words[0]), 0)  # positions of padding
            assert encode(cnn, words).tolist() == [[min(left, 1), min(left, 3)]]
            assert encode(cnn, [*words, "", "a" * 20])[0].tolist() == [min(left, 1), min(left, 3)]


def test_a_highway_by_hand() -> None:
    highway = Highway(3).double()
    rng = np.random.default_rng(0)
    carry, transform, x = rng.standard_normal((3, 3)), rng.standard_normal((3, 3)), rng.standard_normal((5, 3))
    b_carry, b_transform = rng.standard_normal(3), rng.standard_normal(3)
    with torch.no_grad():
        highway.weight.copy_(torch.from_numpy(np.concatenate([carry, transform], axis=1)))
        highway.bias.copy_(torch.from_numpy(np.concatenate([b_carry, b_transform])))
        ours = highway(torch.from_numpy(x)).numpy()
    gate = sigmoid(x @ carry + b_carry)
    expected = gate * np.maximum(x @ transform + b_transform, 0) + (1 - gate) * x
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


@pytest.mark.parametrize("variant", ["no highway", "two highways", "tanh", "F == D", *range(5)])
def test_a_gradient_reaches_every_parameter(tmp_path: Path, variant: str | int) -> None:
    bilm, _ = small(tmp_path, variant)
    cnn = bilm.token_encoder.requires_grad_(True)
    encode(cnn, MANY).square().sum().backward()
    assert [name for name, parameter in cnn.named_parameters() if not parameter.grad.any()] == []
    assert not cnn.embedding.grad[0].any()  # no token
    assert cnn.embedding.grad[[259, 260, 261]].any(dim=1).all()  # both marks, and padding


def test_gradients_are_those_of_finite_differences(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path, "two highways")
    cnn = bilm.token_encoder.double().requires_grad_(True)
    words = ["", "naïve", "cat", "z" * 60]
    weight = torch.randn(4, bilm.config.lstm.projection_dim, dtype=torch.float64)
    (encode(cnn, words) * weight).sum().backward()
    rng = np.random.default_rng(1)
    for name, parameter in cnn.named_parameters():
        direction = torch.from_numpy(rng.standard_normal(tuple(parameter.shape)))
        values = []
        with torch.no_grad():
            for step in (1e-6, -2e-6):
                parameter += step * direction
                values.append((encode(cnn, words) * weight).sum())
            parameter += 1e-6 * direction
        difference = (values[0] - values[1]) / 2e-6
        torch.testing.assert_close((parameter.grad * direction).sum(), difference, rtol=1e-5, atol=1e-7, msg=name)


def test_no_words_have_no_vectors(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path)
    assert encode(bilm.token_encoder, []).shape == (0, bilm.config.lstm.projection_dim)


def test_a_new_encoder_is_as_bilm_tf_would_start_it() -> None:
    torch.manual_seed(0)
    cnn = CharCNN(CharCNNConfig(filters=((1, 64), (3, 64)), n_highway=1), 32)
    assert not cnn.embedding[0].any()
    assert 0.9 < cnn.embedding.abs().max() <= 1.0
    assert all(0.045 < weight.abs().max() <= 0.05 for weight in cnn.filters)
    assert cnn.highways[0].bias.tolist() == [-2.0] * 128 + [0.0] * 128  # carry, transform
    assert abs(cnn.highways[0].weight.std().item() * 128**0.5 - 1) < 0.03
    assert abs(cnn.projection.std().item() * 128**0.5 - 1) < 0.05


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"activation": "gelu"}, "char_cnn.activation is 'gelu'; expected one of relu, tanh"),
        ({"filters": ()}, "char_cnn.filters is empty; expected [width, count] pairs"),
        ({"filters": ((1, 0),)}, "a count of char_cnn.filters is 0; expected an integer of at least 1"),
        (
            {"max_characters_per_token": 6},
            "char_cnn.max_characters_per_token is 6; expected at least the width of the widest filter, 7",
        ),
        (
            {"max_characters_per_token": 2, "filters": ((1, 4),)},
            "char_cnn.max_characters_per_token is 2; expected an integer of at least 3",
        ),
    ],
)
def test_encoders_that_cannot_be(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        CharCNNConfig(**given)


def test_the_reference_sees_the_cut() -> None:
    """What the comparison above rests on: words over C bytes that differ after the cut are one, before it two."""
    options, weights = published("twenty characters")
    reference = Reference(options, weights)
    np.testing.assert_array_equal(reference.encode("a" * 18 + "b"), reference.encode("a" * 18 + "cd"))
    assert np.abs(reference.encode("a" * 17 + "b") - reference.encode("a" * 17 + "c")).max() > 1e-4
