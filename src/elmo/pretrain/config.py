"""The config of a training run. The defaults are those of the original (paper, section 3.4, and bilm-tf).

In TOML, `steps`, `epochs` and `seed` are at the top level; `[model]`, `[batch]` and so on are tables.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from elmo.config import (
    CheckedConfig,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Probability,
    Seed,
    build,
    merged,
    parse_assignments,
    read_toml,
)
from elmo.errors import ConfigError
from elmo.model.bilm import BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig

# The fields that may change when a run is resumed.
MAY_CHANGE = (
    "epochs", "steps", "evaluation", "checkpoints", "device", "kernels", "log_every", "diverged", "tensorboard",
)  # fmt: skip


@dataclass(frozen=True)
class ArchitectureConfig(CheckedConfig):
    """The model without its vocabulary, which comes from the corpus."""

    lstm: LSTMConfig = field(default_factory=LSTMConfig)
    char_cnn: CharCNNConfig | None = field(default_factory=CharCNNConfig)  # none: the model reads words
    bidirectional: bool = True
    share_embedding_softmax: bool = False  # use the word table as the softmax's weight

    def __post_init__(self) -> None:
        if self.share_embedding_softmax and self.char_cnn is not None:
            raise ConfigError("model.share_embedding_softmax needs a word table to share: set model.char_cnn to none")

    @classmethod
    def preset(cls, name: str) -> "ArchitectureConfig":
        """Return the architecture of a preset."""
        model = BiLMConfig.preset(name)
        return cls(model.lstm, model.char_cnn)

    def for_vocabulary(self, size: int) -> BiLMConfig:
        """Return the config of a model that predicts `size` words, and reads them if it reads no characters."""
        return BiLMConfig(
            self.lstm,
            self.char_cnn,
            n_words=size if self.char_cnn is None else None,
            n_softmax=size,
            bidirectional=self.bidirectional,
            share_embedding_softmax=self.share_embedding_softmax,
        )


@dataclass(frozen=True)
class BatchConfig(CheckedConfig):
    """The text that one step reads."""

    size: PositiveInt = 128  # B: rows of text, over all processes
    unroll: PositiveInt = 20  # T: tokens of each row, through which gradients flow
    same_text: bool = False  # both directions read the same sentences in a step; the original's do not
    restart: Probability = 0.0  # the share of rows whose state is reset to zeros in a step; the original never does
    accumulate: PositiveInt = 1  # compute the rows in this many parts: less memory, the same gradient

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % self.accumulate:
            raise ConfigError(
                f"batch.size is {self.size}; expected a multiple of batch.accumulate, which is {self.accumulate}"
            )


@dataclass(frozen=True)
class OptimizerConfig(CheckedConfig):
    """The optimizer, gradient clipping and the learning-rate schedule."""

    name: Literal["adagrad", "adam", "adamw"] = "adagrad"
    learning_rate: PositiveFloat = 0.2
    initial_accumulator: NonNegativeFloat = 1.0  # Adagrad's
    betas: tuple[Probability, Probability] = (0.9, 0.99)  # Adam's
    weight_decay: NonNegativeFloat = 0.01  # AdamW's
    clip_norm: PositiveFloat | None = 10.0  # of all gradients together
    loss_times_unroll: bool = True  # the original's gradient is that of loss × T
    schedule: Literal["constant", "linear", "cosine"] = "constant"  # linear and cosine reach zero at the last step
    warmup_steps: NonNegativeInt = 0


@dataclass(frozen=True)
class EvaluationConfig(CheckedConfig):
    """Held-out perplexity during training."""

    every: NonNegativeInt = 1000  # steps; 0 is never
    tokens: PositiveInt = 200_000  # of the held-out text, at most
    patience: PositiveInt | None = None  # stop after this many evaluations in a row without a better one


@dataclass(frozen=True)
class CheckpointConfig(CheckedConfig):
    """When checkpoints are saved, and how many are kept."""

    every: PositiveInt = 1000  # steps; the last step and an interruption save, too
    keep: PositiveInt = 2


@dataclass(frozen=True)
class PretrainConfig(CheckedConfig):
    """Everything that defines a training run, except for the corpus."""

    epochs: PositiveFloat = 10.0
    steps: PositiveInt | None = None  # instead of epochs
    seed: Seed = 0
    model: ArchitectureConfig = field(default_factory=ArchitectureConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    dropout: Probability = 0.1
    negatives: PositiveInt | None = 8192  # of the sampled softmax, in each direction; none is the full softmax
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    precision: Literal["float32", "bfloat16"] = "float32"  # of matrix products; weights and cells stay float32
    kernels: Literal["auto", "reference"] = "auto"  # reference: only PyTorch's own operations, slow and readable
    device: str = "auto"
    log_every: PositiveInt = 100  # steps
    diverged: PositiveFloat | None = 2.0  # stop when a logged loss is this much higher than the lowest before it
    tensorboard: bool = False

    @classmethod
    def load(
        cls,
        preset: str | None,
        file: Path | None = None,
        assignments: Iterable[str] = (),
        *,
        finetuning: bool = False,
        started_with: Mapping[str, Any] | None = None,
    ) -> "PretrainConfig":
        """Load a config: defaults ◀ preset ◀ file ◀ assignments.

        Fine-tuning has defaults of its own. For a run that is resumed, `started_with` takes the place of the defaults;
        the preset is then used only if it is given.
        """
        model = ArchitectureConfig.preset(preset or "original")
        values = cls(model=model, **(FINETUNING if finetuning else {})).values()
        if started_with is not None:
            values = {**started_with, "model": started_with.get("model") if preset is None else values["model"]}
        values = merged(merged(values, read_toml(file) if file is not None else {}), parse_assignments(assignments))
        return build(cls, values)

    def values(self) -> dict[str, Any]:
        """Return every field, as JSON would."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    def sampled(self, vocabulary_size: int) -> int | None:
        """Return the number of negatives; None if the full softmax costs no more than sampling."""
        return self.negatives if self.negatives is not None and 2 * self.negatives < vocabulary_size else None


# The defaults of fine-tuning: one epoch (paper, section 3.4), with Adam, which gained more than the original's Adagrad
# (experiments/RESULTS.md).
FINETUNING: dict[str, Any] = {
    "epochs": 1.0,
    "optimizer": OptimizerConfig(
        name="adam", learning_rate=1e-3, clip_norm=1.0, loss_times_unroll=False, schedule="linear", warmup_steps=10
    ),
}
