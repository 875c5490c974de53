"""The mix of the layers, its penalty and both layer norms against the reference's formulas."""

import numpy as np
import pytest
import torch

import numpy_reference
from elmo.errors import ConfigError
from elmo.model.layers import Layers
from elmo.model.scalar_mix import ScalarMix, bilm_tf_layer_norm, token_layer_norm

L, B, T, DIM = 3, 4, 5, 6


@pytest.fixture
def layers() -> Layers:
    rng = np.random.default_rng(0)
    mask = torch.arange(T) < torch.tensor([5, 3, 1, 4])[:, None]
    activations = torch.from_numpy(
        rng.normal([[[[0.5]]], [[[2.0]]], [[[-1.0]]]], [[[[1]]], [[[3]]], [[[0.1]]]], (L, B, T, DIM))
    )
    return Layers(activations * mask[..., None], mask)


def mixed(mix: ScalarMix, layers: Layers) -> np.ndarray:
    result: np.ndarray = mix.double()(layers).detach().numpy()
    return result


# The formula


def test_a_learned_mix_starts_as_the_average(layers: Layers) -> None:
    mix = ScalarMix(L)
    assert mix.weights.tolist() == pytest.approx([1 / 3] * 3)
    np.testing.assert_allclose(mixed(mix, layers), layers.activations.numpy().mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize(("scalars", "gamma"), [([0, 0, 0], 1.0), ([1.5, -2.0, 0.25], 0.7), ([30, -30, 0], -2.0)])
def test_a_learned_mix_is_the_formula(layers: Layers, scalars: list[float], gamma: float) -> None:
    mix = ScalarMix(L).double()
    with torch.no_grad():
        mix.scalars.copy_(torch.tensor(scalars))
        mix.gamma.fill_(gamma)
    expected = numpy_reference.scalar_mix(layers.activations.numpy(), scalars, gamma)
    np.testing.assert_allclose(mixed(mix, layers), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("last", [0, 0, 1]),
        ("average", [1 / 3, 1 / 3, 1 / 3]),
        ("layer:0", [1, 0, 0]),
        ("layer:1", [0, 1, 0]),
        ("layer:2", [0, 0, 1]),
    ],
)
def test_fixed_mixes_have_a_gamma_of_their_own(layers: Layers, name: str, shares: list[float]) -> None:
    mix = ScalarMix(L, name, gamma=1.5)
    assert mix.weights.tolist() == pytest.approx(shares)
    assert [name for name, _ in mix.named_parameters()] == ["gamma"]
    expected = 1.5 * sum(share * layer for share, layer in zip(shares, layers.activations.numpy(), strict=True))
    np.testing.assert_allclose(mixed(mix, layers), expected, rtol=1e-6, atol=1e-12)
    mix(layers).sum().backward()
    np.testing.assert_allclose(mix.gamma.grad, expected.sum() / 1.5, rtol=1e-6)


def test_gradients_of_a_learned_mix(layers: Layers) -> None:
    mix = ScalarMix(L, gamma=1.3).double()

    def run(scalars: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        given = {"scalars": scalars, "gamma": gamma}
        result: torch.Tensor = torch.func.functional_call(mix, given, (layers,))
        return result

    scalars = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (scalars, torch.tensor(1.3, dtype=torch.float64, requires_grad=True)))


@pytest.mark.parametrize("weights", [[0.2, 0.5, 0.3], [0.001, 0.009, 0.99], [2, 5, 3]])
def test_a_mix_started_at_shares_has_them(layers: Layers, weights: list[float]) -> None:
    mix = ScalarMix(L, weights=weights, gamma=2.0)
    shares = np.array(weights) / sum(weights)
    np.testing.assert_allclose(mix.weights.detach(), shares, rtol=1e-5)
    assert mix.scalars.requires_grad
    expected = 2.0 * np.einsum("l,lbtd->btd", shares, layers.activations.numpy())
    np.testing.assert_allclose(mixed(mix, layers), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gamma", [2, 2.0])
def test_gamma_may_be_a_whole_number(layers: Layers, gamma: float) -> None:
    expected = 2.0 * layers.activations.numpy().mean(axis=0)
    np.testing.assert_allclose(mixed(ScalarMix(L, gamma=gamma), layers), expected, rtol=1e-6)


def test_padding_stays_zero(layers: Layers) -> None:
    for norm in (None, "token", "bilm-tf"):
        result = mixed(ScalarMix(L, layer_norm=norm), layers)
        np.testing.assert_array_equal((result != 0).any(axis=2), layers.mask.numpy())


# The penalty


@pytest.mark.parametrize("coefficient", [0.0, 0.001, 10.0])
def test_the_penalty_is_on_the_raw_scalars(coefficient: float) -> None:
    mix = ScalarMix(L, l2=coefficient)
    assert mix.penalty().item() == 0.0
    with torch.no_grad():
        mix.scalars.copy_(torch.tensor([1.0, -2.0, 0.5]))
    penalty = mix.penalty()
    assert penalty.item() == pytest.approx(numpy_reference.l2([1.0, -2.0, 0.5], coefficient))
    penalty.backward()
    assert mix.scalars.grad.tolist() == pytest.approx([2 * coefficient * s for s in (1.0, -2.0, 0.5)])


def test_a_fixed_mix_has_no_penalty() -> None:
    assert ScalarMix(L, "last", l2=10.0).penalty().item() == 0.0


# The layer norms


def test_the_token_s_layer_norm_is_the_reference_s(layers: Layers) -> None:
    x = layers.activations
    ours = token_layer_norm(x).numpy()
    np.testing.assert_allclose(ours, numpy_reference.layer_norm_per_token(x.numpy()), rtol=1e-9, atol=1e-12)


def test_bilm_tf_s_layer_norm_is_the_reference_s_layer_by_layer(layers: Layers) -> None:
    ours = bilm_tf_layer_norm(layers.activations, layers.mask).numpy()
    mask = layers.mask.numpy()
    for layer, result in zip(layers.activations.numpy(), ours, strict=True):
        expected = numpy_reference.layer_norm_whole_batch(layer, mask)
        np.testing.assert_allclose(result[mask], expected[mask], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("norm", ["token", "bilm-tf"])
def test_a_mix_with_layer_norm_mixes_normalised_layers(layers: Layers, norm: str) -> None:
    mix = ScalarMix(L, weights=[0.2, 0.5, 0.3], gamma=0.5, layer_norm=norm)
    x, mask = layers.activations.numpy(), layers.mask.numpy()
    if norm == "token":
        normal = numpy_reference.layer_norm_per_token(x)
    else:
        normal = np.stack([numpy_reference.layer_norm_whole_batch(layer, mask) for layer in x])
    expected = numpy_reference.scalar_mix(normal, np.log([0.2, 0.5, 0.3]), 0.5)
    np.testing.assert_allclose(mixed(mix, layers)[mask], expected[mask], rtol=1e-5, atol=1e-6)


def test_only_bilm_tf_s_layer_norm_depends_on_the_batch(layers: Layers) -> None:
    alone = Layers(layers.activations[:, :1], layers.mask[:1])
    for norm, depends in (("token", False), ("bilm-tf", True)):
        mix = ScalarMix(L, layer_norm=norm).double()
        difference = float((mix(layers)[:1] - mix(alone)).detach().abs().max())
        assert (difference > 0.01) if depends else (difference < 1e-12)


def test_padding_is_no_part_of_bilm_tf_s_statistics(layers: Layers) -> None:
    padded = Layers(
        torch.nn.functional.pad(layers.activations, (0, 0, 0, 3)), torch.nn.functional.pad(layers.mask, (0, 3))
    )
    mix = ScalarMix(L, layer_norm="bilm-tf").double()
    torch.testing.assert_close(mix(padded)[:, :T], mix(layers), rtol=0, atol=1e-12)


# What is refused, and what is printed


@pytest.mark.parametrize("mix", ["layer:3", "layer:-1", "layer:", "layer:x", "first", "", "layer:1.0", "Last"])
def test_a_mix_that_is_not_there(mix: str) -> None:
    with pytest.raises(ConfigError, match=f"^mix is '{mix}'; expected learned, last, average or layer:0 to layer:2$"):
        ScalarMix(L, mix)


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.5, 0.5, 0.0], [1, 1, -1], []])
def test_shares_that_cannot_be(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"^weights are \[.*\]; expected 3 positive shares, one per layer$"):
        ScalarMix(L, weights=weights)


def test_shares_for_a_mix_that_is_not_learned() -> None:
    with pytest.raises(ConfigError, match=r"^weights start a learned mix; this one is 'last'$"):
        ScalarMix(L, "last", weights=[0.2, 0.5, 0.3])


def test_a_layer_norm_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"^layer_norm is 'batch'; expected 'token', 'bilm-tf' or none$"):
        ScalarMix(L, layer_norm="batch")


def test_shares_are_printed() -> None:
    assert repr(ScalarMix(L, weights=[0.2, 0.5, 0.3], gamma=0.75)) == (
        "ScalarMix(learned: [0.200, 0.500, 0.300] × 0.750)"
    )
    assert repr(ScalarMix(L, "layer:1")) == "ScalarMix(layer:1: [0.000, 1.000, 0.000] × 1.000)"
