"""Poolings against loops over tokens and dimensions."""

import numpy as np
import pytest

from elmo.embed.pooling import POOLINGS, pooling
from elmo.errors import ConfigError

X = np.random.default_rng(0).standard_normal((3, 7, 10)).astype(np.float32)  # (L+1, T, 2D)


def test_mean_is_the_sum_over_tokens_by_their_number() -> None:
    expected = [sum(float(X[1, token, k]) for token in range(7)) / 7 for k in range(10)]
    assert np.allclose(pooling("mean")(X[1]), expected, atol=1e-6)


def test_max_is_the_largest_of_each_dimension() -> None:
    assert pooling("max")(X[1]).tolist() == [max(float(X[1, token, k]) for token in range(7)) for k in range(10)]


def test_first_last_is_where_each_direction_has_read_everything() -> None:
    forward = [float(X[1, 6, k]) for k in range(5)]
    backward = [float(X[1, 0, k]) for k in range(5, 10)]
    assert pooling("first-last")(X[1]).tolist() == forward + backward


@pytest.mark.parametrize("name", POOLINGS)
def test_leading_axes_are_pooled_one_by_one(name: str) -> None:
    pool = pooling(name)
    assert np.array_equal(pool(X), np.stack([pool(layer) for layer in X]))


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_no_tokens_are_zeros_and_the_type_stays(name: str, dtype: type) -> None:
    empty = pooling(name)(np.zeros((3, 0, 10), dtype=dtype))
    assert (empty.shape, empty.dtype) == ((3, 10), dtype)
    assert not empty.any()
    assert pooling(name)(X.astype(dtype)).dtype == dtype


def test_the_mean_of_half_precision_is_summed_in_single() -> None:
    ones = np.ones((4096, 2), dtype=np.float16)  # half precision cannot count beyond 2048
    assert pooling("mean")(ones).tolist() == [1.0, 1.0]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^pooling is 'sum'; expected one of mean, max, first-last$"):
        pooling("sum")
