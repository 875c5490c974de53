"""How a task is trained: the part of every task's config that the training loop reads."""

from dataclasses import dataclass
from typing import Literal

from elmo.config import check_at_least, check_positive, check_shares
from elmo.errors import ConfigError


@dataclass(frozen=True)
class TrainConfig:
    """How a task is trained."""

    epochs: int = 75
    patience: int | None = 25  # stop after this many epochs in a row without a better dev score
    batch_size: int = 64
    optimizer: Literal["adam", "adadelta"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    rho: float = 0.95  # Adadelta's
    clip_norm: float | None = 5.0
    clip_value: float | None = None
    schedule: Literal["constant", "halve"] = "constant"  # halve it after every epoch without a better dev score
    ema: float | None = None  # decay of the moving average of the weights, which is scored instead of them
    train_fraction: float = 1.0  # the share of the training part to learn from
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        positive = ("epochs", "patience", "batch_size", "learning_rate", "clip_norm", "clip_value", "train_fraction")
        check_positive({f"train.{name}": getattr(self, name) for name in positive})
        check_at_least(0, {"train.weight_decay": self.weight_decay, "train.seed": self.seed})
        check_shares({"train.rho": self.rho})
        if self.train_fraction > 1:
            raise ConfigError(f"train.train_fraction is {self.train_fraction}; expected at most 1")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ConfigError(f"train.ema is {self.ema}; expected more than 0, and less than 1")
