"""THE TRAINING LOOP OF A TASK: examples ─▶ epochs ─▶ dev score, patience ─▶ the best model, and its test score.

    OUT/run.json, OUT/metrics.jsonl    the config; a line per epoch: loss, scores, mixes, seconds, memory
    OUT/checkpoints/step-…             the last epoch and the best one; a step is an epoch
    OUT/model/                         the model of the best epoch as a trained task (`elmo.load_task`)

The order of the batches and the dropout of an epoch follow from the seed and the epoch alone, so a resumed run gives
the same result as one that was never interrupted.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from elmo.errors import DataError, ElmoError
from elmo.model.device import device_named
from elmo.model.kernels.products import onednn_products
from elmo.tasks import folder, sources, word_vectors
from elmo.tasks.batches import answers, batches
from elmo.tasks.examples import Example, Splits, fraction
from elmo.tasks.folder import TrainedTask
from elmo.tasks.inputs import Inputs
from elmo.tasks.learner import Learner
from elmo.tasks.recorded import RecordedSteps, with_gradients
from elmo.tasks.task import PreparedModel, Task, TaskModel
from elmo.tasks.train_config import TrainConfig
from elmo.training import checkpoint, memory
from elmo.training.best import Best
from elmo.training.run import CHECKPOINTS, Run
from elmo.training.tensorboard import tensorboard

CHECK_EVERY = 50  # batches


class Report(Protocol):
    """Callbacks for progress reporting."""

    def prepared(self, done: int, of: int) -> None:
        """Called while layers are computed: `done` of `of` tokens have theirs."""

    def began(self, epoch: int, batches: int) -> None:
        """Called when an epoch begins, with its number of batches."""

    def stepped(self) -> None:
        """Called after every batch."""

    def logged(self, values: Mapping[str, Any]) -> None:
        """Called with every line that is added to the metrics, one per epoch."""


@dataclass
class TrainingState(Best):
    """The numbers that are saved with every checkpoint; the best score is the highest dev score."""

    epoch: int = 0
    learning_rate: float = 0.0
    scores: dict[str, Any] = field(default_factory=dict)  # of the best epoch, on dev


class TaskTraining:
    """One run of a task, from its first epoch or from its last checkpoint."""

    def __init__(
        self,
        task: Task,
        config: Any,
        splits: Splits,
        out: Path,
        *,
        data: str = "",
        resume: bool = False,
        report: Report | None = None,
        cache: Path | None = None,
    ) -> None:
        self.task, self.out, self.report, self.run = task, out, report, Run(out)
        self.train_config: TrainConfig = config.train
        if report:
            self.run.listeners.append(report.logged)
        for part in ("train", "dev"):
            if not splits.get(part):
                raise DataError(f"{data}: no {part} part; expected train to learn from, dev to choose the best epoch")
        if resume:
            self.run.refuse_missing()
        else:
            self.run.refuse_used()
        self.splits = {**splits, "train": fraction(splits["train"], config.train.train_fraction, config.train.seed)}
        self.device = device_named(self.train_config.device)
        embedder = sources.load_embedder(config, self.device)
        request = sources.request(task, config, splits, data, embedder)
        saved = self.run.resume(request) if resume else None
        labels = task.labels(self.splits["train"])
        vectors = word_vectors.for_task(config.inputs, self.splits, self.train_config.seed)
        progress = report.prepared if report else None
        frozen = sources.prepare_layers(splits, config, embedder, folder=cache, progress=progress)
        torch.manual_seed(self.train_config.seed)  # after the layers: what computes them may draw random numbers
        inputs = Inputs(
            config.inputs,
            vectors.words if vectors else (),
            torch.from_numpy(vectors.matrix) if vectors else None,
            frozen=frozen,
            bilm=embedder.bilm.requires_grad_(True) if embedder and config.inputs.elmo.trainable else None,
        )
        self.model: TaskModel = task.model(config, inputs, labels).to(self.device)
        self._recorded: RecordedSteps | None = None
        if self.train_config.recorded and self.device.type == "cuda" and isinstance(self.model, PreparedModel):
            self._recorded = RecordedSteps(self.model) if inputs.bilm is None else None
        self.trained = TrainedTask(task, config, labels, vectors.words if vectors else [], self.model)
        self.learner = Learner(self.model, self.train_config, config.inputs.elmo.learning_rate)
        self.progress = TrainingState(learning_rate=self.train_config.learning_rate)
        self.rate = self.train_config.learning_rate  # of the last step
        if saved is not None:
            with saved.reading():
                self.progress = TrainingState(**saved.facts()["progress"])
                self.learner.restore(saved.tensors())
        if resume:
            self.run.rewind(request, self.progress.epoch)
        else:
            self.run.begin(request)

    def train(self, stop: threading.Event | None = None) -> bool:
        """Train to the last epoch, or until `stop` is set; return whether it finished. Complete epochs are saved."""
        with tensorboard(self.run, self.progress.epoch) if self.train_config.tensorboard else nullcontext():
            finished = self._train_epochs(stop or threading.Event())
        if finished:
            self._export()
        return finished

    def _train_epochs(self, stop: threading.Event) -> bool:
        config, progress = self.train_config, self.progress
        while progress.epoch < config.epochs and not progress.exhausted(config.patience):
            began = time.perf_counter()
            with onednn_products(self.device):
                loss = self._train_epoch(stop)
            if loss is None:
                return False  # a resumed run starts this epoch over
            trained = time.perf_counter()
            with self.learner.averaged():
                scores = self.score("dev")
            progress.epoch += 1
            better = progress.count(next(iter(scores.values())), progress.epoch)
            if better:
                progress.scores = scores
            self._log(loss, scores, train_seconds=trained - began, dev_seconds=time.perf_counter() - trained)
            if config.schedule == "halve" and not better:
                progress.learning_rate /= 2
            self._save()
        return True

    def score(self, part: str) -> dict[str, float]:
        """Score the model as it is on a part of the data."""
        examples = self.splits[part]
        return self.task.score([example.gold for example in examples], self.answers(examples))

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        """Predict an answer for each example."""
        return answers(self.model, examples, 2 * self.train_config.batch_size)

    def _train_epoch(self, stop: threading.Event) -> float | None:
        """Train one epoch; return the mean loss over its examples, or None if `stop` was set."""
        config, epoch, examples = self.train_config, self.progress.epoch, self.splits["train"]
        rng = np.random.default_rng([config.seed, epoch])
        groups = [rows for _ in range(config.passes) for rows in batches(examples, config.batch_size, rng)]
        if self.report:
            self.report.began(epoch + 1, len(groups))
        self.model.train()
        losses: list[Tensor] = []
        for number, rows in enumerate(groups):
            if stop.is_set():
                return None
            step = epoch * len(groups) + number
            self.rate = config.decayed(self.progress.learning_rate, step)
            self.learner.set_learning_rate(self.rate)
            _seed(int(np.random.SeedSequence([config.seed, epoch, number]).generate_state(1)[0]), self.device)
            losses.append(self.gradients([examples[row] for row in rows]))
            self.learner.step(step)
            if number % CHECK_EVERY == 0:
                self._check(losses[-CHECK_EVERY:], groups[: number + 1])
            if self.report:
                self.report.stepped()
        self._check(losses[-CHECK_EVERY:], groups)
        sizes = torch.tensor([len(rows) for rows in groups], dtype=torch.float64)
        return float((torch.stack(losses).double().cpu() * sizes).sum() / sizes.sum())

    def gradients(self, examples: Sequence[Example]) -> Tensor:
        """Compute the gradients of the loss of a batch and of the penalty on the mixes; return the loss."""
        if self._recorded is not None:
            return self._recorded(examples)
        return with_gradients(self.model, self.model.loss(examples))

    def _check(self, losses: list[Tensor], groups: list[list[int]]) -> None:
        """End the run at a loss that is not finite. Reading one waits for the GPU, so not after every batch."""
        for value, rows in zip(torch.stack(losses).tolist(), groups[-len(losses) :], strict=True):
            if not np.isfinite(value):
                text = " ".join(self.splits["train"][rows[0]].texts[0][:12])
                advice = self.run.advice(self.progress.best_step, "train.learning_rate", "train.clip_norm")
                raise ElmoError(
                    f"epoch {self.progress.epoch + 1}: loss {value}, in the batch that begins with {text!r}; {advice}"
                )

    def _log(self, loss: float, scores: Mapping[str, float], **seconds: float) -> None:
        """Add the line of an epoch to the metrics."""
        self.run.log(
            step=self.progress.epoch,
            loss=loss,
            **{f"dev_{name}": value for name, value in scores.items()},
            learning_rate=self.rate,
            mixes=self.model.inputs.mixes(),
            **seconds,
            memory=memory.peak(self.device),
        )

    def _save(self) -> None:
        root = self.out / CHECKPOINTS
        facts = {"progress": asdict(self.progress)}
        checkpoint.save(root, self.progress.epoch, lambda _: None, self.learner.tensors(), facts)
        checkpoint.keep_last(root, 1, self.progress.best_step)

    def _export(self) -> None:
        """Write the model of the best epoch as OUT/model, with its scores on dev and test."""
        assert self.progress.best_step is not None
        saved = self.run.checkpoint(self.progress.best_step)
        with saved.reading():
            self.learner.restore_weights(saved.tensors())
        scores: dict[str, Any] = {"dev": self.progress.scores}
        with self.learner.averaged():
            if self.splits.get("test"):
                scores["test"] = self.score("test")
            self.run.export(partial(folder.save, trained=replace(self.trained, scores=scores)))
        self.run.add(best_epoch=self.progress.best_step, scores=scores)


def _seed(seed: int, device: torch.device) -> None:
    """Seed PyTorch's random numbers on the CPU and on a device, as `torch.manual_seed` does on all kinds of devices.

    For each kind that is not in use, that function formats the stack of calls: 0.2 ms together, in every step.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
