"""What `layers=` and `dtype=` may say, and the sums they stand for, done by NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elmo.embed.selection import Selection
from elmo.errors import ConfigError

LAYERS = np.random.default_rng(0).standard_normal((3, 4, 10)).astype(np.float32)  # (L+1, N, 2D)


def select(layers: Any, dtype: str = "float32") -> NDArray[Any]:
    chosen = Selection.parse(layers, 3, dtype).apply([torch.from_numpy(layer) for layer in LAYERS])
    return chosen.numpy()


def test_all_is_every_layer() -> None:
    assert np.array_equal(select("all"), LAYERS)


@pytest.mark.parametrize(("layers", "which"), [(0, 0), (1, 1), (2, 2), ("0", 0), ("1", 1), ("2", 2), ("top", 2)])
def test_one_layer_is_that_layer_to_the_bit(layers: str | int, which: int) -> None:
    assert np.array_equal(select(layers), LAYERS[which])


def test_average_is_the_mean_over_layers() -> None:
    assert np.allclose(select("average"), LAYERS.mean(axis=0, dtype=np.float64), atol=1e-6)


@pytest.mark.parametrize("weights", [[0.2, 0.5, 0.3], [1, 1, 1], (0, 2, 0), [-1.5, 0.0, 0.25], [0, 0, 0], [0, 1, 0]])
def test_weights_are_a_sum_that_nothing_normalises(weights: list[float]) -> None:
    expected = np.einsum("l,lnd->nd", np.array(weights, dtype=np.float64), LAYERS)
    assert np.allclose(select(weights), expected, atol=1e-6)


def test_weights_may_be_an_array_or_a_tensor() -> None:
    weights = [0.2, 0.5, 0.3]
    assert np.array_equal(select(np.array(weights)), select(weights))
    assert np.array_equal(select(torch.tensor(weights, dtype=torch.float64)), select(weights))


def test_a_layer_may_be_numbered_by_numpy() -> None:
    assert np.array_equal(select(np.int64(1)), LAYERS[1])


def test_half_precision_is_the_nearest_to_single() -> None:
    for layers in ("all", "average", 1):
        assert select(layers, "float16").dtype == np.float16
        assert np.array_equal(select(layers, "float16"), select(layers).astype(np.float16))


@pytest.mark.parametrize("layers", [3, 7, -1, "3", "7", "-1", "", "last", "1.0", [], [1.0], [1.0, 0.0], [1.0] * 4])
def test_other_layers_are_refused(layers: Any) -> None:
    assert_refused(layers)


@pytest.mark.parametrize("layers", [None, 1.5, ["a", "b", "c"], {"all"}])
def test_other_kinds_of_layers_are_refused_in_the_same_words(layers: Any) -> None:
    assert_refused(layers)


def assert_refused(layers: Any) -> None:
    with pytest.raises(ConfigError) as error:
        Selection.parse(layers, 3)
    found = layers if isinstance(layers, str) and layers.isdecimal() else repr(layers)
    assert str(error.value) == (
        f"layers is {found}; this model has 3: expected all, top, average, 0 to 2, or a list of 3 weights"
    )


def test_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^dtype is 'float64'; expected one of float32, float16$"):
        Selection.parse("all", 3, "float64")
