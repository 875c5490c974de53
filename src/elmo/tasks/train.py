"""THE TASKS' TRAINING LOOP: examples ─▶ epochs ─▶ dev score, patience ─▶ the best model, and its test score.

    OUT/run.json, OUT/metrics.jsonl    what was asked for; a line per epoch: loss, scores, mixes, seconds, memory
    OUT/checkpoints/step-…             the last epoch and the best one; a step is an epoch
    OUT/model/                         the best as a trained task (`elmo.load_task`)

What is read and dropped in an epoch follows from the seed and the epoch alone: a resumed run continues as if it had
never stopped.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from elmo.config import Bounds, CheckedConfig, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Probability
from elmo.embed.embedder import Embedder, load
from elmo.errors import DataError, ElmoError
from elmo.model.device import device_named
from elmo.tasks import folder, word_vectors
from elmo.tasks.batches import answers, batches, fingerprint, fraction, texts_of, words_in
from elmo.tasks.folder import Trained
from elmo.tasks.frozen import FrozenLayers, layers_folder
from elmo.tasks.task import Example, Splits, Task, TaskModel
from elmo.training import checkpoint, memory
from elmo.training.best import Best
from elmo.training.checkpoint import Checkpoint
from elmo.training.run import CHECKPOINTS, Request, Run, Source, fingerprint_of_file, fingerprint_of_tensors

MAY_CHANGE = ("train.epochs", "train.patience", "train.device")  # the fields that may change when a run is resumed
CHECK_EVERY = 50  # batches


@dataclass(frozen=True)
class TrainConfig(CheckedConfig):
    """How a task is trained."""

    epochs: PositiveInt = 75
    patience: PositiveInt | None = 25  # stop after this many epochs in a row without a better dev score
    batch_size: PositiveInt = 64
    optimizer: Literal["adam", "adadelta"] = "adam"
    learning_rate: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 0.0
    rho: Probability = 0.95  # Adadelta's
    clip_norm: PositiveFloat | None = 5.0
    clip_value: PositiveFloat | None = None
    schedule: Literal["constant", "halve"] = "constant"  # halve: the rate, after every epoch without a better score
    ema: Annotated[float, Bounds(gt=0, lt=1)] | None = None  # scores are those of a running mean of the weights
    train_fraction: Annotated[float, Bounds(gt=0, le=1)] = 1.0
    seed: NonNegativeInt = 0
    device: str = "auto"


class Report(Protocol):
    """Callbacks for progress reporting."""

    def prepared(self, done: int, of: int) -> None:
        """The layers of `done` of `of` tokens are computed."""

    def began(self, epoch: int, batches: int) -> None:
        """An epoch begins."""

    def stepped(self) -> None:
        """A batch is done."""

    def logged(self, values: Mapping[str, Any]) -> None:
        """A line was added to the metrics: an epoch is done."""


@dataclass
class Progress(Best):
    """The progress of a run, saved with every checkpoint; the best is the highest dev score."""

    epoch: int = 0
    learning_rate: float = 0.0
    scores: dict[str, Any] = field(default_factory=dict)  # of the best epoch, on dev


class TaskTraining:
    """One run of one seed."""

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
        self.task, self.config, self.out, self.report, self.run = task, config, out, report, Run(out)
        self.train_config: TrainConfig = config.train
        for part in ("train", "dev"):
            if not splits.get(part):
                raise DataError(f"{data}: no {part} part; training needs examples to learn from and to choose by")
        if resume:
            self.run.refuse_nothing()
        else:
            self.run.refuse_used()
        self.splits = {**splits, "train": fraction(splits["train"], config.train.train_fraction, config.train.seed)}
        self.device = device_named(self.train_config.device)
        embedder = load_embedder(config, self.device)
        self.request = request(task, config, splits, data, embedder)
        saved = self.run.resume(self.request) if resume else None
        labels = task.labels(self.splits["train"])
        torch.manual_seed(self.train_config.seed)
        words, matrix = self._words()
        trainable = config.inputs.elmo.trainable
        self.model: TaskModel = folder.assemble(
            task, config, labels, words, matrix,
            frozen=prepare_layers(splits, config, self.device, cache, report, embedder),
            bilm=embedder.bilm.requires_grad_(True) if embedder is not None and trainable else None,
        ).to(self.device)  # fmt: skip
        self.trained = Trained(task, config, labels, words, self.model)
        self.learned = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = self._optimizer()
        self.mean = {name: p.detach().clone() for name, p in self.learned.items()} if self.train_config.ema else {}
        self.progress = Progress(learning_rate=self.train_config.learning_rate)
        if saved is not None:
            self._restore(saved)
        if resume:
            self.run.rewind(self.request, self.progress.epoch)
        else:
            self.run.begin(self.request)

    def train(self, stop: threading.Event | None = None) -> bool:
        """Train to the last epoch, or until `stop` is set; whether it ended by itself. Complete epochs are saved."""
        stop, config, progress = stop or threading.Event(), self.train_config, self.progress
        while progress.epoch < config.epochs and not progress.exhausted(config.patience):
            began = time.perf_counter()
            loss = self._epoch(stop)
            if loss is None:
                return False  # the epoch is done again from its beginning
            progress.epoch += 1
            trained = time.perf_counter()
            with self._means():
                scores = self.score("dev")
            first = next(iter(scores.values()))
            better = progress.count(first, progress.epoch)
            if better:
                progress.scores = scores
            values = {
                "step": progress.epoch,
                "loss": loss,
                **{f"dev_{name}": value for name, value in scores.items()},
                "learning_rate": progress.learning_rate,
                "mixes": self.model.inputs.mixes(),
                "train_seconds": trained - began,
                "dev_seconds": time.perf_counter() - trained,
                "memory": memory.peak(self.device),
            }
            self.run.log(**values)
            if self.report:
                self.report.logged(values)
            if config.schedule == "halve" and not better:
                progress.learning_rate /= 2
            self._save()
        self._export()
        return True

    def score(self, part: str) -> dict[str, float]:
        """The scores of the model as it is on a part of the data."""
        examples = self.splits[part]
        return self.task.score([example.gold for example in examples], self.answers(examples))

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        """An answer for each example."""
        return answers(self.model, examples, 2 * self.train_config.batch_size, self.device)

    def _epoch(self, stop: threading.Event) -> float | None:
        config, epoch = self.train_config, self.progress.epoch
        groups = batches(self.splits["train"], config.batch_size, np.random.default_rng([config.seed, epoch]))
        if self.report:
            self.report.began(epoch + 1, len(groups))
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.progress.learning_rate * group["share"]
        losses: list[Tensor] = []
        for number, rows in enumerate(groups):
            if stop.is_set():
                return None
            torch.manual_seed(int(np.random.SeedSequence([config.seed, epoch, number]).generate_state(1)[0]))
            examples = [self.splits["train"][row] for row in rows]
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.model.loss(texts_of(self.model, examples, self.device), [one.gold for one in examples])
            torch.autograd.backward(loss + self.model.inputs.penalty())
            self._clip()
            self.optimizer.step()
            self._follow(epoch * len(groups) + number)
            losses.append(loss.detach())
            if number % CHECK_EVERY == 0:
                self._check(losses[-CHECK_EVERY:], groups[: number + 1])
            if self.report:
                self.report.stepped()
        self._check(losses[-CHECK_EVERY:], groups)
        sizes = torch.tensor([len(rows) for rows in groups], dtype=torch.float64)
        return float((torch.stack(losses).double().cpu() * sizes).sum() / sizes.sum())

    def _check(self, losses: list[Tensor], groups: list[list[int]]) -> None:
        """End the run at a loss that is not finite. Reading one waits for the GPU, so not after every batch."""
        for value, rows in zip(torch.stack(losses).tolist(), groups[-len(losses) :], strict=True):
            if not np.isfinite(value):
                text = " ".join(self.splits["train"][rows[0]].texts[0][:12])
                advice = self.run.advice(self.progress.best_step, "train.learning_rate", "train.clip_norm")
                raise ElmoError(
                    f"epoch {self.progress.epoch + 1}: loss {value}, in the batch that begins with {text!r}; {advice}"
                )

    # Before the first epoch

    def _words(self) -> tuple[list[str], Tensor | None]:
        """The words of the vector file, its first ones and those of the data, and frequent words that it lacks."""
        inputs = self.config.inputs
        if inputs.vectors is None:
            return [], None
        counts = {part: words_in(examples, inputs.lowercase) for part, examples in self.splits.items()}
        read = word_vectors.read(Path(inputs.vectors), inputs.max_words, set().union(*counts.values()))
        if inputs.own_words is not None:
            often = [word for word, count in counts["train"].items() if count >= inputs.own_words]
            read = word_vectors.with_own(read, often, np.random.default_rng(self.train_config.seed))
        return read.words, torch.from_numpy(read.matrix)

    def _optimizer(self) -> torch.optim.Optimizer:
        config, elmo = self.train_config, self.config.inputs.elmo
        slow = elmo.learning_rate / config.learning_rate if elmo.learning_rate is not None else 1.0
        parts: dict[float, list[nn.Parameter]] = {}
        for name, parameter in self.learned.items():
            parts.setdefault(slow if name.startswith("inputs.bilm.") else 1.0, []).append(parameter)
        groups = [{"params": parameters, "share": share} for share, parameters in parts.items()]
        if config.optimizer == "adadelta":
            return torch.optim.Adadelta(groups, config.learning_rate, rho=config.rho, weight_decay=config.weight_decay)
        fused = self.device.type == "cuda"
        return torch.optim.Adam(groups, config.learning_rate, weight_decay=config.weight_decay, fused=fused)

    # During training

    def _clip(self) -> None:
        parameters = self.learned.values()
        if self.train_config.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self.train_config.clip_value)
        if self.train_config.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.train_config.clip_norm)

    @torch.no_grad()
    def _follow(self, step: int) -> None:
        """The running mean moves towards the weights: faster at first, so that the initial ones are soon forgotten."""
        if self.train_config.ema is not None:
            decay = min(self.train_config.ema, (1 + step) / (10 + step))
            for name, parameter in self.learned.items():
                self.mean[name].lerp_(parameter, 1 - decay)

    def _means(self) -> "_Swapped":
        return _Swapped(self.learned, self.mean)

    def _save(self) -> None:
        frozen = {name for name, parameter in self.model.named_parameters() if not parameter.requires_grad}
        tensors = {f"model.{name}": v for name, v in self.model.state_dict().items() if name not in frozen}
        states = self.optimizer.state_dict()["state"]
        tensors |= {f"optimizer.{n}.{key}": value for n, state in states.items() for key, value in state.items()}
        tensors |= {f"mean.{name}": value for name, value in self.mean.items()}
        facts = {"progress": asdict(self.progress)}
        root = self.out / CHECKPOINTS
        checkpoint.save(root, self.progress.epoch, lambda _: None, tensors, facts)
        checkpoint.keep_last(root, 1, self.progress.best_step)

    def _restore(self, saved: Checkpoint) -> None:
        with saved.reading():
            self.progress = Progress(**saved.facts()["progress"])
            states: dict[int, dict[str, Tensor]] = {}
            for name, value in self._load(saved)["optimizer"].items():
                number, _, key = name.partition(".")
                states.setdefault(int(number), {})[key] = value
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": states})

    def _load(self, saved: Checkpoint) -> dict[str, dict[str, Tensor]]:
        """Take the weights of a checkpoint; all its tensors by kind."""
        kinds: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "mean": {}}
        with saved.reading():
            for name, value in saved.tensors().items():
                kind, _, rest = name.partition(".")
                kinds[kind][rest] = value
            missing = self.learned.keys() - kinds["model"].keys()
            if missing:
                raise KeyError(f"no tensor {min(missing)!r}")
            try:
                self.model.load_state_dict(kinds["model"], strict=False)
            except RuntimeError as error:  # shapes; on several lines
                raise ValueError(str(error).split("\n")[1].strip()) from None
        self.mean = {name: value.to(self.device) for name, value in kinds["mean"].items()}
        return kinds

    def _export(self) -> None:
        """Write the best epoch's model as OUT/model, with its scores, the test part's among them."""
        assert self.progress.best_step is not None
        self._load(self.run.checkpoint(self.progress.best_step))
        scores: dict[str, Any] = {"dev": self.progress.scores}
        with self._means():
            if self.splits.get("test"):
                scores["test"] = self.score("test")
            self.run.export(partial(folder.fill, trained=replace(self.trained, scores=scores)))
        self.run.add(best_epoch=self.progress.best_step, scores=scores)


def request(task: Task, config: Any, splits: Splits, data: str, embedder: Embedder | None) -> Request:
    """What a run of this recipe on these data is asked to compute."""
    inputs = config.inputs
    sources = {"data": Source(data, fingerprint(splits))}
    if inputs.vectors is not None:
        sources["vectors"] = Source(inputs.vectors, fingerprint_of_file(Path(inputs.vectors)))
    if embedder is not None:
        sources["biLM"] = Source(inputs.elmo.model, fingerprint_of_tensors(embedder.bilm.state_dict()))
    return Request(task.name, config, sources, MAY_CHANGE)


def prepare_layers(
    splits: Splits,
    config: Any,
    device: torch.device,
    cache: Path | None = None,
    report: Report | None = None,
    embedder: Embedder | None = None,
) -> FrozenLayers | None:
    """The layers of all texts by the config's biLM, computed now unless they are in the cache; None if not frozen."""
    elmo = config.inputs.elmo
    if elmo.placement == "none" or elmo.trainable:
        return None
    texts = (text for part in splits.values() for example in part for text in example.texts)
    progress = report.prepared if report else None
    return FrozenLayers(embedder or load(elmo.model, device=str(device)), texts, cache or layers_folder(), progress)


def load_embedder(config: Any, device: torch.device) -> Embedder | None:
    """Load the config's biLM; None if it has none."""
    elmo = config.inputs.elmo
    return load(elmo.model, device=str(device)) if elmo.placement != "none" else None


class _Swapped:
    """Exchange the values of parameters inside a `with` block."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
        self._pairs = [(parameters[name], value) for name, value in values.items()]

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *_: object) -> None:
        self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for parameter, value in self._pairs:
            kept = parameter.detach().clone()
            parameter.copy_(value)
            value.copy_(kept)
