"""Checks of config values."""

import pytest

from elmo.errors import ConfigError
from elmo.model.checks import check_integer


@pytest.mark.parametrize(("value", "minimum"), [(1, 1), (10**9, 1), (0, 0), (-3, -3)])
def test_an_integer_that_is_large_enough_passes(value: int, minimum: int) -> None:
    check_integer("n", value, minimum)


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (1.0, "1.0"), ("3", "'3'"), (None, "None"), (True, "True")])
def test_anything_else_is_refused_with_its_name_and_value(value: object, shown: str) -> None:
    with pytest.raises(ConfigError, match=rf"^lstm\.dim is {shown}; expected an integer of at least 1$"):
        check_integer("lstm.dim", value)
