"""What a config's numbers may be."""

from elmo.errors import ConfigError


def whole(name: str, value: object, least: int = 1) -> None:
    """Refuse anything but a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} is {value!r}; expected a whole number of at least {least}")
