"""THE TRAINING LOOP: batches ─▶ steps ─▶ log, held-out perplexity, checkpoints ─▶ a model folder.

    OUT/run.json, metrics.jsonl    what was asked for, and what came of it
    OUT/checkpoints/step-…         the last few, and the best
    OUT/model                      at the end: the best by held-out perplexity, or the last where nothing is held out
"""

import math
import shutil
import threading
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from elmo import checkpoint
from elmo.checkpoint import Checkpoint
from elmo.config import differences
from elmo.errors import ConfigError, DataError, ElmoError, WeightsError
from elmo.model.bilm import BiLM
from elmo.model.device import PRECISIONS, device_named
from elmo.model.lstm import State
from elmo.pretrain.batch import Batch, Batches
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.evaluate import Perplexity, perplexity
from elmo.pretrain.graph import ROUND_TO, Recorded, can_be_recorded
from elmo.pretrain.optimizer import Optimizer, learning_rate
from elmo.pretrain.plan import Plan
from elmo.pretrain.step import accumulate, clip, tables_of
from elmo.pretrain.streams import Streams
from elmo.run import METRICS, RECORD, Run
from elmo.text.vocabulary import Vocabulary
from elmo.weights import folder
from elmo.weights.folder import Pretrained

CHECKPOINTS, MODEL = "checkpoints", "model"
DROPOUT, RESTART = 3, 4  # what random numbers are for: see streams.SHUFFLE


class Report(Protocol):
    """Who is told how the training goes; the command line prints it."""

    def planned(self, plan: Plan, done: int) -> None:
        """Training begins after so many steps."""

    def stepped(self, step: int, plan: Plan) -> None:
        """A step is done."""

    def logged(self, values: dict[str, Any]) -> None:
        """A line was added to the metrics."""


@dataclass
class Progress:
    """How far a run is; saved with every checkpoint."""

    step: int = 0
    sums: list[float] = field(default_factory=list)  # losses since the last line of the log, by direction
    since: int = 0  # steps since then
    lowest: float | None = None  # of the losses in the log
    best: float | None = None  # held-out perplexity
    best_step: int | None = None
    worse: int = 0  # evaluations since then


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
        world: World | None = None,
        report: Report | None = None,
    ) -> None:
        """`start` is a model to go on from instead of a new one; `softmax_only` leaves everything else as it is."""
        self.corpus, self.out, self.config, self.run = corpus, out, config, Run(out)
        self.world, self.report = world or World(), report
        if config.batch.size % (self.world.size * config.batch.accumulate):
            raise ConfigError(
                f"batch.size is {config.batch.size}; expected a multiple of {self.world.size} processes "
                f"× {config.batch.accumulate} parts"
            )
        self.vocabulary: Vocabulary = (start and start.vocabulary) or corpus.vocabulary
        self.device = device_named(config.device)
        saved = self._last_checkpoint(resume)
        if saved is not None:
            self._check(saved)
        self.bilm = self._model(start, saved).to(self.device).train()
        self.bilm.plain = config.kernels == "plain"
        if softmax_only:
            self.bilm.requires_grad_(False)
            assert self.bilm.softmax is not None
            self.bilm.softmax.requires_grad_(True)
        negatives = config.sampled(len(self.vocabulary))
        tables = tables_of(self.bilm.config, sampled=negatives is not None)
        self.optimizer = Optimizer(config.optimizer, self.bilm.named_parameters(), tables)
        own = self.world.rows(config.batch.size)
        directions = self.bilm.config.directions
        self.streams = Streams(
            corpus, config.batch.size, config.batch.unroll,
            seed=config.seed, directions=directions, same_text=config.batch.same_text, rows=own,
        )  # fmt: skip
        cnn = self.bilm.config.char_cnn
        # A second part of a batch would write its gradients over those of the first.
        recorded = config.batch.accumulate == 1 and can_be_recorded(self.bilm)
        self.batches = Batches(
            corpus, self.streams, self.vocabulary,
            max_characters=cnn.max_characters_per_token if cnn is not None else None,
            negatives=negatives, accumulate=config.batch.accumulate, round_to=ROUND_TO if recorded else 1,
        )  # fmt: skip
        self._recorded = Recorded() if recorded else None
        self.state = self.bilm.zero_state(len(own))
        self.progress = Progress(sums=[0.0] * directions)
        self.plan = Plan.of(config, self.bilm, self.streams, self.device, self.world.size)
        if saved is not None:
            self._restore(saved, own)
        if self.world.rank == 0:
            if saved is None:
                Run.begin(out, config, corpus=str(corpus.folder), negatives=negatives)
            else:
                self.run.forget_after(self.progress.step)

    def train(self, stop: threading.Event | None = None) -> bool:
        """Train to the last step, or until `stop` is set; whether it came to its end. Either way all is saved."""
        stop = stop or threading.Event()
        config, progress = self.config, self.progress
        if self.report and self.world.rank == 0:
            self.report.planned(self.plan, progress.step)
        writer = self._tensorboard()
        pending: tuple[int, Tensor] | None = None  # the last step's losses and norm, not looked at yet
        clock, timed_from = time.perf_counter(), progress.step
        interrupted, exhausted = False, self._patience_is_over()
        batches = self.batches.from_step(progress.step, self.plan.steps, pinned=self.device.type == "cuda")
        while progress.step < self.plan.steps and not (interrupted or exhausted):
            rate = learning_rate(config.optimizer, progress.step, self.plan.steps)
            losses, norm = self.step(progress.step, next(batches), rate)
            progress.step += 1
            # Looking at a number waits for the device, so it is looked at while the next step runs.
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
                    self._log(writer, norm_now, rate, speed)
                paused = time.perf_counter()
                if (evaluates or ended) and self.corpus.heldout:
                    saves = self._evaluate(writer) or saves
                    exhausted = self._patience_is_over()
                if saves or last or exhausted:
                    self._save()
                if logs:
                    clock, timed_from = time.perf_counter(), progress.step
                else:
                    clock += time.perf_counter() - paused
        batches.close()
        if writer is not None:
            writer.close()
        if not interrupted:
            self._export()
        return not interrupted

    def step(self, number: int, batch: list[Batch], rate: float) -> tuple[Tensor, Tensor]:
        """One step at this learning rate: the losses (S,) and the gradient's norm, on the device."""
        config, precision = self.config, PRECISIONS[self.config.precision]
        torch.manual_seed(self._seed(number))
        self._restart_some(number)
        losses, self.state = accumulate(
            self.bilm, batch if self._recorded else [part.to(self.device) for part in batch], self.state,
            dropout=config.dropout, world=self.world, precision=precision, recorded=self._recorded,
            scale=float(config.batch.unroll) if config.optimizer.loss_times_unroll else 1.0,
        )  # fmt: skip
        norm = clip(self.optimizer.parameters, config.optimizer.clip_norm)
        self.optimizer.step(rate)
        return losses, norm

    def evaluate_start(self) -> None:
        """Score the model before its first step, and keep it: training may not make it better."""
        found = self.heldout()
        self.progress.best, self.progress.best_step = found.mean, 0
        self._save()
        if self.world.rank == 0:
            self.run.add(start=asdict(found))
        self.world.barrier()

    def heldout(self) -> Perplexity:
        """Perplexity on the held-out text, or on as much of it as the config says."""
        self.bilm.eval()
        try:
            return perplexity(
                self.bilm, self.vocabulary, self.corpus, self.corpus.heldout,
                tokens=self.config.evaluation.tokens, world=self.world,
            )  # fmt: skip
        finally:
            self.bilm.train()

    # Before the first step

    def _last_checkpoint(self, resume: bool) -> Checkpoint | None:
        if not resume:
            return None
        saved = checkpoint.all_of(self.out / CHECKPOINTS)
        if not saved:
            if (self.out / RECORD).exists():  # it ended before its first checkpoint: nothing is lost
                self.world.barrier()
                if self.world.rank == 0:
                    (self.out / RECORD).unlink()
                    (self.out / METRICS).unlink(missing_ok=True)
                return None
            raise DataError(f"{self.out}: nothing to resume; train without --resume first")
        return saved[-1]

    def _model(self, start: Pretrained | None, saved: Checkpoint | None) -> BiLM:
        config = self.config.for_vocabulary(len(self.vocabulary)).model if start is None else start.bilm.config
        if saved is None:
            if start is not None:
                return start.bilm
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.config.seed)
                return BiLM(config)
        model = folder.read(saved.path, softmax=True)
        if model.bilm.config != config:
            different = differences(asdict(config), asdict(model.bilm.config))
            raise WeightsError(f"{saved.path}: a checkpoint of another architecture: {different}. Resume with its own")
        return model.bilm

    def _check(self, saved: Checkpoint) -> None:
        """Refuse a checkpoint of another corpus or another recipe."""
        facts = saved.facts()
        if facts["corpus"] != self.corpus.digest:
            raise DataError(
                f"{self.corpus.folder}: not the corpus that {saved.path} was trained on; a shard or the vocabulary has "
                f"changed since. Give the same corpus, or start a new run"
            )
        asked, before = self.config.values(), facts["config"]
        fixed = ("seed", "batch", "negatives", "optimizer", "dropout", "precision")
        for name in fixed:
            if asked[name] != before[name]:
                raise ConfigError(
                    f"{saved.path}: was trained with {differences({name: asked[name]}, {name: before[name]})}; a run "
                    f"is resumed with the recipe it began with (steps, epochs, evaluation and checkpoints may change)"
                )

    def _restore(self, saved: Checkpoint, own: range) -> None:
        self.progress = Progress(**saved.facts()["progress"])
        tensors = saved.tensors()
        rows = slice(own.start, own.stop)
        self.state = State(*(tensors.pop(f"state.{part}")[:, :, rows].to(self.device) for part in ("h", "c")))
        self.optimizer.restore({name.removeprefix("optimizer."): value for name, value in tensors.items()})

    # During training

    def _seed(self, step: int) -> int:
        sequence = np.random.SeedSequence([self.config.seed, DROPOUT, step, self.world.rank])
        return int(sequence.generate_state(1, np.uint64)[0] >> 1)

    def _restart_some(self, step: int) -> None:
        """Some rows of text begin at zeros again, as a sentence that is embedded by itself will."""
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
            f"step {step}: loss {', '.join(map(str, losses))}, gradient norm {norm}, in the batch whose first row is "
            f"{text!r}; {self._way_out()}"
        )

    def _way_out(self) -> str:
        saved = checkpoint.all_of(self.out / CHECKPOINTS)
        good = [one for one in saved if one.step == self.progress.best_step] or saved
        where = f"the last good checkpoint is {good[-1].path}" if good else "no checkpoint was saved before"
        return f"{where}. Try a lower optimizer.learning_rate or optimizer.clip_norm"

    def _log(self, writer: Any, norm: float, rate: float, speed: float) -> None:
        progress = self.progress
        each = [total / progress.since for total in progress.sums]
        loss = sum(each) / len(each)
        lowest = loss if progress.lowest is None else min(loss, progress.lowest)
        names = ("forward_loss", "backward_loss")
        self._record(
            writer,
            loss=loss,
            **dict(zip(names, each, strict=False)),
            gradient_norm=norm,
            learning_rate=rate,
            tokens_per_second=speed,
            **({"memory": torch.cuda.max_memory_reserved(self.device)} if self.device.type == "cuda" else {}),
        )
        if self.config.diverged is not None and loss > lowest + self.config.diverged:
            raise ElmoError(f"step {progress.step}: loss {loss:.2f}, once {lowest:.2f}: diverged; {self._way_out()}")
        progress.sums, progress.since, progress.lowest = [0.0] * len(progress.sums), 0, lowest

    def _patience_is_over(self) -> bool:
        patience = self.config.evaluation.patience
        return patience is not None and self.progress.worse >= patience

    def _evaluate(self, writer: Any) -> bool:
        """Held-out perplexity; whether it is the best so far."""
        found = self.heldout()
        progress = self.progress
        better = progress.best is None or found.mean < progress.best
        if better:
            progress.best, progress.best_step, progress.worse = found.mean, progress.step, 0
        else:
            progress.worse += 1
        self._record(
            writer,
            perplexity=found.mean,
            forward_perplexity=found.forward,
            backward_perplexity=found.backward,
            unknown=found.unknown,
        )
        return better

    def _record(self, writer: Any, **values: Any) -> None:
        if self.world.rank != 0:
            return
        step = self.progress.step
        reached = {"epoch": step / self.plan.steps_per_epoch, "tokens": step * self.plan.tokens_per_step}
        values = {"step": step, **reached, **values, "time": time.time()}
        self.run.log(**values)
        if self.report:
            self.report.logged(values)
        if writer is not None:
            for name, value in values.items():
                if name not in ("step", "time") and value is not None:
                    writer.add_scalar(name, value, step)

    def _save(self) -> None:
        # The state is saved for all rows of text, so that another number of processes can go on with it.
        rows = [self.world.gather(part.transpose(0, 2).contiguous()) for part in self.state]
        if self.world.rank == 0:
            state = {f"state.{n}": torch.cat(part).transpose(0, 2) for n, part in zip("hc", rows, strict=True)}
            tensors = {**state, **{f"optimizer.{name}": value for name, value in self.optimizer.state().items()}}
            facts = {"progress": asdict(self.progress), "corpus": self.corpus.digest, "config": self.config.values()}
            root = self.out / CHECKPOINTS
            fill = partial(folder.fill, model=Pretrained(self.bilm, self.vocabulary))
            checkpoint.save(root, self.progress.step, fill, tensors, facts)
            checkpoint.keep_last(root, self.config.checkpoints.keep, self.progress.best_step)
        self.world.barrier()

    def _export(self) -> None:
        """The best model, or the last, as a folder of its own."""
        if self.world.rank == 0:
            saved = {one.step: one for one in checkpoint.all_of(self.out / CHECKPOINTS)}
            best = saved[self.progress.best_step if self.progress.best_step is not None else self.progress.step]
            model = self.out / MODEL
            if model.exists():
                shutil.rmtree(model)
            folder.write(folder.read(best.path, softmax=True), model)
        self.world.barrier()

    def _tensorboard(self) -> Any:
        if not self.config.tensorboard or self.world.rank != 0:
            return None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("tensorboard = true needs an extra: pip install 'elmo-torch[tensorboard]'") from None
        return SummaryWriter(str(self.out / "tensorboard"), purge_step=self.progress.step)
