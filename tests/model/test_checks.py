"""Checks of config values."""

from collections.abc import Callable

import pytest

from elmo.errors import ConfigError
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.checks import check_integer
from elmo.model.lstm import LSTMConfig


@pytest.mark.parametrize(("value", "minimum"), [(1, 1), (1 << 24, 1), (0, 0), (-3, -3)])
def test_an_integer_that_is_large_enough_passes(value: int, minimum: int) -> None:
    check_integer("n", value, minimum)


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (1.0, "1.0"), ("3", "'3'"), (None, "None"), (True, "True")])
def test_anything_else_is_refused_with_its_name_and_value(value: object, shown: str) -> None:
    with pytest.raises(ConfigError, match=rf"^lstm\.dim is {shown}; expected an integer of at least 1$"):
        check_integer("lstm.dim", value)


def test_a_size_that_no_tensor_could_have() -> None:
    with pytest.raises(ConfigError, match=r"^lstm\.dim is 16,777,217; expected at most 16,777,216$"):
        check_integer("lstm.dim", (1 << 24) + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LSTMConfig(n_layers=101), "lstm.n_layers is 101; expected at most 100"),
        (lambda: LSTMConfig(cell_clip=1e308), "lstm.cell_clip is 1e[+]308; expected a positive number"),
        (lambda: CharCNNConfig(n_highway=10**9), "char_cnn.n_highway is 1,000,000,000; expected at most 100"),
        (lambda: CharCNNConfig(filters=((1, 1),) * 101), "the number of char_cnn.filters is 101; expected at most 100"),
        (lambda: CharCNNConfig(max_characters_per_token=1001), "char_cnn.max_characters_per_token is 1,001; expected"),
    ],
)
def test_a_config_of_a_model_that_would_fill_the_memory(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
