"""Checks of config values."""

from elmo.errors import ConfigError


def check_integer(name: str, value: object, minimum: int = 1) -> None:
    """Raise a ConfigError unless the value is an integer of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigError(f"{name} is {value!r}; expected an integer of at least {minimum}")
