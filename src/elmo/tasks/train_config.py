"""How a task is trained: the part of every task's config that the training loop reads."""

from dataclasses import dataclass
from typing import Annotated, Literal

from elmo.config import Bounds, CheckedConfig, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Probability


@dataclass(frozen=True)
class TrainConfig(CheckedConfig):
    """How a task is trained."""

    epochs: PositiveInt = 75
    passes: PositiveInt = 1  # through the training part in an epoch; the dev part is scored after an epoch
    patience: PositiveInt | None = 25  # stop after this many epochs in a row without a better dev score
    batch_size: PositiveInt = 64
    optimizer: Literal["adam", "adadelta"] = "adam"
    learning_rate: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 0.0
    rho: Probability = 0.95  # Adadelta's
    clip_norm: PositiveFloat | None = 5.0
    clip_value: PositiveFloat | None = None
    schedule: Literal["constant", "halve", "decay"] = "constant"  # halve: after every epoch without a better dev score
    decay: Annotated[float, Bounds(gt=0, le=1)] = 0.999  # of the schedule "decay": the factor, after so many steps:
    decay_steps: PositiveInt = 100
    ema: Annotated[float, Bounds(gt=0, lt=1)] | None = None  # decay of an average of the weights; it is what is scored
    train_fraction: Annotated[float, Bounds(gt=0, le=1)] = 1.0  # the share of the training part to learn from
    seed: NonNegativeInt = 0
    device: str = "auto"
    recorded: bool = True  # on a GPU, replay CUDA graphs of the steps of tasks that can be recorded
    tensorboard: bool = False  # also write the metrics for TensorBoard, to OUT/tensorboard

    def decayed(self, learning_rate: float, step: int) -> float:
        """Return the learning rate at a step of the run, counted from 0."""
        return learning_rate * self.decay ** (step // self.decay_steps) if self.schedule == "decay" else learning_rate
