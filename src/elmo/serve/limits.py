"""THE LIMITS OF A SERVER: one place for all of them. A request beyond a limit is refused with a status of its own."""

from dataclasses import dataclass, fields

from elmo.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """What a server accepts. Every value is a positive number."""

    body_bytes: int = 1 << 20  # of one request; above: 413
    tokens: int = 8192  # of one request; above: 422
    waiting: int = 256  # requests that wait to be computed; above: 429
    seconds: float = 30.0  # from a request's arrival to its answer; above: 503
    batch_tokens: int = 4096  # requests are gathered up to this number of tokens; one request may have more

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{field.name} is {value}; expected a positive number")
