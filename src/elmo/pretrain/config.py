"""A recipe for training: the defaults are the original's, all of it (paper, section 3.4 and bilm-tf).

TOML tables are the dataclasses: `steps`, `epochs` and `seed` stand at the top, `[model]`, `[batch]`, … below.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from elmo.config import build, check_at_least, check_positive, check_shares, merged, read_toml, settings
from elmo.errors import ConfigError
from elmo.model.bilm import BiLMConfig

# The fields that a resumed run may change.
FREE = (
    "epochs", "steps", "evaluation", "checkpoints", "device", "kernels", "log_every", "diverged", "tensorboard",
)  # fmt: skip


@dataclass(frozen=True)
class BatchConfig:
    """What one step reads."""

    size: int = 128  # B: rows of text, over all processes
    unroll: int = 20  # T: tokens of each row, through which gradients flow
    same_text: bool = False  # both directions read the same sentences in a step; the original's are independent
    restart: float = 0.0  # the share of rows whose state begins at zeros again in a step; the original's never does
    accumulate: int = 1  # the rows are computed in so many parts: less memory, the same gradient


@dataclass(frozen=True)
class OptimizerConfig:
    """How weights follow gradients."""

    name: Literal["adagrad", "adam", "adamw"] = "adagrad"
    learning_rate: float = 0.2
    initial_accumulator: float = 1.0  # Adagrad's
    betas: tuple[float, float] = (0.9, 0.99)  # Adam's
    weight_decay: float = 0.01  # AdamW's
    clip_norm: float | None = 10.0  # of all gradients together
    loss_times_unroll: bool = True  # the original's gradient is that of loss × T
    schedule: Literal["constant", "linear", "cosine"] = "constant"  # linear and cosine fall to zero at the last step
    warmup_steps: int = 0


@dataclass(frozen=True)
class EvaluationConfig:
    """Held-out perplexity while training."""

    every: int = 1000  # steps; 0 is never
    tokens: int = 200_000  # of the held-out text, at most
    patience: int | None = None  # stop after so many evaluations without a better one


@dataclass(frozen=True)
class CheckpointConfig:
    """What a run can be resumed from."""

    every: int = 1000  # steps; the end and an interruption save, too
    keep: int = 2


@dataclass(frozen=True)
class PretrainConfig:
    """A whole recipe."""

    epochs: float = 10.0
    steps: int | None = None  # instead of epochs
    seed: int = 0
    model: BiLMConfig = field(default_factory=BiLMConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    dropout: float = 0.1
    negatives: int | None = 8192  # of the sampled softmax, in each direction; none is the full softmax
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    precision: Literal["float32", "bfloat16"] = "float32"  # of matrix products; weights and cells stay float32
    kernels: Literal["auto", "reference"] = "auto"  # reference: the readable implementation, without kernels
    device: str = "auto"
    log_every: int = 100  # steps
    diverged: float | None = 2.0  # stop where a logged loss is so far above the lowest before it
    tensorboard: bool = False

    def __post_init__(self) -> None:
        positive = {
            "batch.size": self.batch.size,
            "batch.unroll": self.batch.unroll,
            "batch.accumulate": self.batch.accumulate,
            "log_every": self.log_every,
            "evaluation.tokens": self.evaluation.tokens,
            "checkpoints.every": self.checkpoints.every,
            "checkpoints.keep": self.checkpoints.keep,
            "optimizer.learning_rate": self.optimizer.learning_rate,
            "epochs": self.epochs,
            "steps": self.steps,
            "negatives": self.negatives,
            "optimizer.clip_norm": self.optimizer.clip_norm,
            "evaluation.patience": self.evaluation.patience,
            "diverged": self.diverged,
        }
        check_positive(positive)
        not_negative = {
            "seed": self.seed,
            "evaluation.every": self.evaluation.every,
            "optimizer.warmup_steps": self.optimizer.warmup_steps,
            "optimizer.initial_accumulator": self.optimizer.initial_accumulator,
            "optimizer.weight_decay": self.optimizer.weight_decay,
        }
        check_at_least(0, not_negative)
        check_shares({"dropout": self.dropout, "batch.restart": self.batch.restart})
        if self.batch.size % self.batch.accumulate:
            raise ConfigError(
                f"batch.size is {self.batch.size}, batch.accumulate {self.batch.accumulate}; expected equal parts"
            )

    @classmethod
    def of(
        cls,
        preset: str | None,
        file: Path | None = None,
        assignments: Iterable[str] = (),
        *,
        finetuning: bool = False,
        begun: Mapping[str, Any] | None = None,
    ) -> "PretrainConfig":
        """Defaults ◀ preset ◀ file ◀ assignments.

        A fine-tuning's defaults are one epoch's; a run that has begun has the values it began with instead.
        """
        values = cls(model=BiLMConfig.preset(preset or "original"), **(FINETUNING if finetuning else {})).values()
        if begun is not None:
            values = {**begun, "model": begun["model"] if preset is None else values["model"]}
        values = merged(merged(values, read_toml(file) if file is not None else {}), settings(assignments))
        if isinstance(values["model"], dict) and values["model"]["char_cnn"] in (None, "none"):
            values["model"]["n_words"] = 1  # as many as the corpus has, once it is known: see `for_vocabulary`
        return build(cls, values)

    def values(self) -> dict[str, Any]:
        """Every field, as JSON would give it back."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    def for_vocabulary(self, n_words: int) -> "PretrainConfig":
        """The recipe with a model that predicts these words, and reads them if it reads no characters."""
        table = n_words if self.model.char_cnn is None else None
        return replace(self, model=replace(self.model, n_words=table, n_softmax=n_words))

    def sampled(self, n_words: int) -> int | None:
        """How many negatives are drawn; none where the full softmax costs no more."""
        return self.negatives if self.negatives is not None and 2 * self.negatives < n_words else None


# Of a trained model on a domain's text: one epoch (paper, section 3.4). Adam gained more in it than the original's
# Adagrad (experiments/RESULTS.md).
FINETUNING: dict[str, Any] = {
    "epochs": 1.0,
    "optimizer": OptimizerConfig(
        name="adam", learning_rate=1e-3, clip_norm=1.0, loss_times_unroll=False, schedule="linear", warmup_steps=10
    ),
}
