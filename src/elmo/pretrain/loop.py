"""THE TRAINING LOOP OF A BILM: batches ─▶ steps ─▶ metrics, held-out perplexity, checkpoints ─▶ a model folder.

    OUT/run.json, metrics.jsonl    the config and the metrics: see training/run.py
    OUT/checkpoints/step-…         the last few, and the best
    OUT/model                      at the end: the best model by held-out perplexity, or the last if nothing is held out
"""

import math
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from elmo.config import differences
from elmo.errors import ConfigError, ElmoError, WeightsError
from elmo.messages import counted
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.device import PRECISIONS, device_named
from elmo.model.kernels.products import onednn_products
from elmo.model.lstm import State
from elmo.pretrain.batch import Batch, Batches
from elmo.pretrain.config import MAY_CHANGE, PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.evaluate import Perplexity, perplexity
from elmo.pretrain.graph import ROUND_TO, RecordedPasses, can_be_recorded
from elmo.pretrain.optimizer import Optimizer, learning_rate
from elmo.pretrain.plan import Plan
from elmo.pretrain.step import Pass, accumulate, clip, tables_of
from elmo.pretrain.streams import Streams
from elmo.text.vocabulary import Vocabulary
from elmo.training import checkpoint
from elmo.training.best import Best
from elmo.training.checkpoint import Checkpoint
from elmo.training.run import CHECKPOINTS, Request, Run, Source, fingerprint_of_tensors
from elmo.training.tensorboard import tensorboard
from elmo.weights import folder
from elmo.weights.folder import Pretrained

DROPOUT, RESTART = 3, 4  # independent sequences of random numbers: see streams.SHUFFLE


class Report(Protocol):
    """Callbacks for progress reporting."""

    def planned(self, plan: Plan, done: int) -> None:
        """Called when training starts, or continues after `done` steps."""

    def stepped(self, step: int, plan: Plan) -> None:
        """Called after every step."""

    def logged(self, values: Mapping[str, Any]) -> None:
        """Called with every line that is added to the metrics."""


def request(corpus: Corpus, config: PretrainConfig, start: Pretrained | None) -> Request:
    """Describe a run of this config on this corpus, so that a resumed run can be compared with it."""
    sources = {"corpus": Source(str(corpus.folder), corpus.digest)}
    if start is not None:
        sources["model"] = Source("the model to start from", fingerprint_of_tensors(start.bilm.state_dict()))
    return Request("pretrain" if start is None else "finetune", config, sources, MAY_CHANGE)


@dataclass
class TrainingState(Best):
    """The numbers that are saved with every checkpoint; the best score is the lowest held-out perplexity."""

    step: int = 0
    sums: list[float] = field(default_factory=list)  # of the losses since the last logged line, by direction
    since: int = 0  # steps since the last logged line
    lowest: float | None = None  # the lowest logged loss
    evaluated: int | None = None  # the step of the last evaluation


class Training:
    """One run, from its first step or from its last checkpoint."""

    def __init__(
        self,
        corpus: Corpus,
        out: Path,
        config: PretrainConfig,
        *,
        resume: bool = False,
        start: Pretrained | None = None,
        softmax_only: bool = False,
        ignore_memory: bool = False,
        world: World | None = None,
        report: Report | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin or resume a run.

        `start` is a model to train further instead of a new one; with `softmax_only` the rest of it stays fixed. A run
        that will not fit into memory is refused, unless `ignore_memory` is true. `facts` are added to the record of a
        new run.
        """
        self.corpus, self.out, self.config, self.run = corpus, out, config, Run(out)
        self.world, self.report = world or World(), report
        if config.batch.size % (self.world.size * config.batch.accumulate):
            raise ConfigError(
                f"batch.size is {config.batch.size}; expected a multiple of {self.world.size} processes "
                f"× {config.batch.accumulate} parts"
            )
        self.vocabulary: Vocabulary = (start and start.vocabulary) or corpus.vocabulary
        self.device = device_named(config.device)
        self.request = request(corpus, config, start)
        saved = self.run.resume(self.request) if resume else None
        if not resume and self.world.rank == 0:
            self.run.refuse_used()
        negatives = config.sampled(len(self.vocabulary))
        architecture = config.model.for_vocabulary(len(self.vocabulary)) if start is None else start.bilm.config
        own = self.world.rows(config.batch.size)
        directions = architecture.directions
        self.streams = Streams(
            corpus, config.batch.size, config.batch.unroll,
            seed=config.seed, directions=directions, same_text=config.batch.same_text, rows=own,
        )  # fmt: skip
        self.plan = Plan.of(config, architecture, self.streams, self.device, self.world.size)
        if not ignore_memory:
            self.plan.refuse_too_large()
        self.bilm = self._model(architecture, start, saved).to(self.device).train()
        self.bilm.reference = config.kernels == "reference"
        if softmax_only:
            self.bilm.requires_grad_(False)
            assert self.bilm.softmax is not None
            self.bilm.softmax.requires_grad_(True)
        tables = tables_of(self.bilm.config, sampled=negatives is not None)
        self.optimizer = Optimizer(config.optimizer, self.bilm.named_parameters(), tables)
        cnn = self.bilm.config.char_cnn
        # Recorded, a second part of a batch would overwrite the gradients of the first.
        recorded = config.batch.accumulate == 1 and can_be_recorded(self.bilm)
        self.batches = Batches(
            corpus, self.streams, self.vocabulary,
            max_characters=cnn.max_characters_per_token if cnn is not None else None,
            negatives=negatives, accumulate=config.batch.accumulate, round_to=ROUND_TO if recorded else 1,
        )  # fmt: skip
        self._recorded = RecordedPasses() if recorded else None
        self.state = self.bilm.zero_state(len(own))
        self.progress = TrainingState(sums=[0.0] * directions)
        if report:
            self.run.listeners.append(report.logged)
        if saved is not None:
            self._restore(saved, own)
        self._refuse_fewer_steps()
        if self.world.rank == 0:
            if resume:
                self.run.rewind(self.request, self.progress.step)
            else:
                self.run.begin(self.request, negatives=negatives, **(facts or {}))

    def train(self, stop: threading.Event | None = None) -> bool:
        """Train to the last step, or until `stop` is set; save in both cases. Returns whether the last was reached."""
        if self.report and self.world.rank == 0:
            self.report.planned(self.plan, self.progress.step)
        boarded = self.config.tensorboard and self.world.rank == 0
        try:
            with tensorboard(self.run, self.progress.step) if boarded else nullcontext():
                reached_last = self._train_steps(stop or threading.Event())
        except torch.OutOfMemoryError:
            advice = self.run.advice(None, "batch.size in a new run, or a higher batch.accumulate")
            raise ElmoError(f"out of memory on {self.device} after step {self.progress.step}; {advice}") from None
        if reached_last:
            self._export()
        return reached_last

    def _train_steps(self, stop: threading.Event) -> bool:
        config, progress = self.config, self.progress
        pending: tuple[int, Tensor] | None = None  # losses and norm of the last step, still on the device
        clock, timed_from = time.perf_counter(), progress.step
        if progress.step == self.plan.steps and progress.evaluated != progress.step and self.corpus.heldout:
            self._evaluate_last()
        interrupted, exhausted = False, progress.exhausted(config.evaluation.patience)
        batches = self.batches.from_step(progress.step, self.plan.steps, pinned=self.device.type == "cuda")
        while progress.step < self.plan.steps and not (interrupted or exhausted):
            lr = learning_rate(config.optimizer, progress.step, self.plan.steps)
            losses, norm = self.step(progress.step, next(batches), lr)
            progress.step += 1
            # Reading a number waits for the device, so it is read while the next step runs.
            if pending is not None:
                self._count(*pending)
            pending = progress.step, torch.cat([losses, norm[None]])
            if self.report and self.world.rank == 0:
                self.report.stepped(progress.step, self.plan)
            ended = progress.step == self.plan.steps
            interrupted = self.world.any(stop.is_set(), self.device) and not ended
            last = interrupted or ended
            logs, evaluates, saves = (
                progress.step % every == 0 if every else False
                for every in (config.log_every, config.evaluation.every, config.checkpoints.every)
            )
            if logs or evaluates or saves or last:
                self._count(*pending)
                norm_now, pending = float(norm), None
                if logs:
                    timed = progress.step - timed_from
                    speed = timed * self.plan.tokens_per_step / (time.perf_counter() - clock)
                    self._log(norm_now, lr, speed)
                paused = time.perf_counter()
                if (evaluates or ended) and self.corpus.heldout:
                    saves = self._evaluate() or saves
                    exhausted = progress.exhausted(config.evaluation.patience)
                if saves or last or exhausted:
                    self._save()
                if logs:
                    clock, timed_from = time.perf_counter(), progress.step
                else:
                    clock += time.perf_counter() - paused
        batches.close()
        return not interrupted

    def step(self, number: int, batch: list[Batch], lr: float) -> tuple[Tensor, Tensor]:
        """Do one step; returns the losses (S,) and the norm of the gradient, on the device."""
        config, precision = self.config, PRECISIONS[self.config.precision]
        torch.manual_seed(self._seed(number))
        self._restart_some(number)
        with onednn_products(self.device):
            losses, self.state = accumulate(
                self.bilm, batch if self._recorded else [part.to(self.device) for part in batch], self.state,
                dropout=config.dropout, world=self.world, precision=precision, run_pass=self._recorded or Pass.__call__,
                scale=float(config.batch.unroll) if config.optimizer.loss_times_unroll else 1.0,
            )  # fmt: skip
        norm = clip(self.optimizer.parameters, config.optimizer.clip_norm)
        self.optimizer.step(lr)
        return losses, norm

    def evaluate_start(self) -> None:
        """Evaluate and save the model before its first step: training may not make it better."""
        found = self.heldout()
        self.progress.count(found.mean, 0, lower_is_better=True)
        if self.world.rank == 0:
            self.run.add(start=asdict(found))  # before the checkpoint, so that every checkpoint has it
        self._save()

    def heldout(self) -> Perplexity:
        """Compute the perplexity of the held-out text, or of as much of it as the config says."""
        self.bilm.eval()
        try:
            return perplexity(
                self.bilm, self.vocabulary, self.corpus, self.corpus.heldout,
                tokens=self.config.evaluation.tokens, world=self.world,
            )  # fmt: skip
        finally:
            self.bilm.train()

    # Before the first step

    def _model(self, architecture: BiLMConfig, start: Pretrained | None, saved: Checkpoint | None) -> BiLM:
        if saved is None:
            if start is not None:
                return start.bilm
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.config.seed)
                return BiLM(architecture)
        with saved.reading():
            bilm = folder.read(saved.path, softmax=True).bilm
        if bilm.config != architecture:
            different = differences(asdict(architecture), asdict(bilm.config))
            raise WeightsError(
                f"{saved.path}: a checkpoint of another architecture: {different}. Resume with the same architecture"
            )
        for parameter in bilm.parameters():  # not mapped: on a network disk, a mapped checkpoint cannot be removed
            parameter.data = parameter.data.to(self.device, copy=True)
        return bilm

    def _restore(self, saved: Checkpoint, own: range) -> None:
        rows = slice(own.start, own.stop)
        with saved.reading():
            progress = TrainingState(**saved.facts()["progress"])
            if progress.step != saved.step or len(progress.sums) != len(self.progress.sums):
                raise ValueError(f"it has step {progress.step} and sums {progress.sums}")
            self.progress = progress
            tensors = saved.tensors()
            state = (tensors.pop(f"state.{part}")[:, :, rows] for part in ("h", "c"))
            self.state = State(*(part.to(self.device, copy=True) for part in state))
            self.optimizer.restore({name.removeprefix("optimizer."): value for name, value in tensors.items()})

    def _refuse_fewer_steps(self) -> None:
        """Refuse to resume with fewer steps than are done: the record would say that there were no more."""
        done, asked = self.progress.step, self.plan.steps
        if done > asked:
            raise ConfigError(
                f"{self.out}: the recipe has {counted(asked, 'step')}, but the run has done {done:,}. Set steps to "
                f"{done} or more"
            )

    # During training

    def _seed(self, step: int) -> int:
        sequence = np.random.SeedSequence([self.config.seed, DROPOUT, step, self.world.rank])
        return int(sequence.generate_state(1, np.uint64)[0] >> 1)

    def _restart_some(self, step: int) -> None:
        """Reset the state of some rows of text to zeros, as it is for a sentence that is embedded by itself."""
        if self.config.batch.restart:
            rng = np.random.default_rng([self.config.seed, RESTART, step])
            chosen = rng.random(self.config.batch.size) < self.config.batch.restart  # the same for all processes
            kept = torch.from_numpy(~chosen[self.streams.own.start : self.streams.own.stop]).to(self.device)
            self.state = State(*(part * kept[:, None] for part in self.state))

    def _count(self, step: int, values: Tensor) -> None:
        *losses, norm = values.tolist()
        if not all(map(math.isfinite, (*losses, norm))):
            raise ElmoError(self._not_finite(step, losses, norm))
        self.progress.sums = [total + loss for total, loss in zip(self.progress.sums, losses, strict=True)]
        self.progress.since += 1

    def _not_finite(self, step: int, losses: list[float], norm: float) -> str:
        window = self.streams.window(step - 1)
        text = " ".join(self.corpus.words[row] for row in window[0, 0])
        return (
            f"step {step}: loss {', '.join(map(str, losses))}, gradient norm {norm}, in the batch that begins with "
            f"{text!r}; {self._advice()}"
        )

    def _advice(self) -> str:
        return self.run.advice(self.progress.best_step, "optimizer.learning_rate", "optimizer.clip_norm")

    def _log(self, norm: float, lr: float, speed: float) -> None:
        progress = self.progress
        each = [total / progress.since for total in progress.sums]
        loss = sum(each) / len(each)
        lowest = loss if progress.lowest is None else min(loss, progress.lowest)
        names = ("forward_loss", "backward_loss")
        self._record(
            loss=loss,
            **dict(zip(names, each, strict=False)),
            gradient_norm=norm,
            learning_rate=lr,
            tokens_per_second=speed,
            **({"memory": torch.cuda.max_memory_reserved(self.device)} if self.device.type == "cuda" else {}),
        )
        if self.config.diverged is not None and loss > lowest + self.config.diverged:
            raise ElmoError(
                f"step {progress.step}: diverged: loss {loss:.2f}, the lowest was {lowest:.2f}; {self._advice()}"
            )
        progress.sums, progress.since, progress.lowest = [0.0] * len(progress.sums), 0, lowest

    def _evaluate(self) -> bool:
        """Log the held-out perplexity; returns whether it is the best so far."""
        found = self.heldout()
        better = self.progress.count(found.mean, self.progress.step, lower_is_better=True)
        self.progress.evaluated = self.progress.step
        self._record(
            perplexity=found.mean,
            forward_perplexity=found.forward,
            backward_perplexity=found.backward,
            unknown=found.unknown,
        )
        return better

    def _evaluate_last(self) -> None:
        """Evaluate the last step of a run that was interrupted there, and was given no more steps when it resumed."""
        self._evaluate()
        if self.world.rank == 0:
            self.run.checkpoint(self.progress.step).replace_facts({"progress": asdict(self.progress)})
        self.world.barrier()

    def _record(self, **values: Any) -> None:
        """Add a line to the metrics."""
        if self.world.rank != 0:
            return
        step = self.progress.step
        reached = {"epoch": step / self.plan.steps_per_epoch, "tokens": step * self.plan.tokens_per_step}
        self.run.log(step=step, **reached, **values, time=time.time())

    def _save(self) -> None:
        # The state is saved for all rows of text, so that another number of processes can continue with it.
        rows = [self.world.gather(part.transpose(0, 2).contiguous()) for part in self.state]
        if self.world.rank == 0:
            state = {f"state.{n}": torch.cat(part).transpose(0, 2) for n, part in zip("hc", rows, strict=True)}
            tensors = {**state, **{f"optimizer.{name}": value for name, value in self.optimizer.state().items()}}
            facts = {"progress": asdict(self.progress)}
            root = self.out / CHECKPOINTS
            fill = partial(folder.fill, model=Pretrained(self.bilm, self.vocabulary))
            checkpoint.save(root, self.progress.step, fill, tensors, facts)
            checkpoint.keep_last(root, self.config.checkpoints.keep, self.progress.best_step)
        self.world.barrier()

    def _export(self) -> None:
        """Write the best model, or the last one if nothing is held out, as OUT/model."""
        if self.world.rank == 0:
            best = self.progress.best_step if self.progress.best_step is not None else self.progress.step
            saved = self.run.checkpoint(best)
            with saved.reading():
                model = folder.read(saved.path, softmax=True)
            self.run.export(partial(folder.fill, model=model))
        self.world.barrier()
