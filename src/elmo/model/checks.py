"""Checks of config values."""

from elmo.errors import ConfigError

LARGEST = 1 << 24  # of any size of a model: the product of two is a size that a tensor can have
MOST_LAYERS = 100  # LSTM layers, highways or filter widths: each is a module, and a config can come from anywhere


def check_integer(name: str, value: object, minimum: int = 1, maximum: int = LARGEST) -> None:
    """Raise a ConfigError unless the value is an integer from `minimum` to `maximum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigError(f"{name} is {value!r}; expected an integer of at least {minimum}")
    if value > maximum:
        raise ConfigError(f"{name} is {value:,}; expected at most {maximum:,}")
