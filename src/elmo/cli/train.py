"""`elmo train`: a task's data ─▶ a trained task, for one seed or several."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from elmo.cli.interrupt import stopping
from elmo.cli.training import ConfigOption, SetOption, interrupted

if TYPE_CHECKING:
    from elmo.tasks.task import Task

TaskArgument = Annotated[str, typer.Argument(help="ner, sst or snli; or a folder with a task of your own.")]
DataArgument = Annotated[
    Path, typer.Argument(help="A folder with the task's files, under the names their owners gave.")
]


def train(
    task: TaskArgument,
    data: DataArgument,
    out: Annotated[Path, typer.Argument(help="The run's folder; OUT/model is the trained task.")],
    config: ConfigOption = None,
    set: SetOption = None,
    seeds: Annotated[int, typer.Option(help="Train so many seeds, and report mean and deviation.", min=1)] = 1,
    jobs: Annotated[int | None, typer.Option(help="Seeds side by side; all of them on a GPU, else one.", min=1)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after the last epoch.")] = False,
) -> None:
    """Train a task's model, with ELMo at its input, its output, both or nowhere.

    The recipe of the paper is the default. Its fields are those of the task's config, such as
    elmo.tasks.ner.model.NerConfig; --set inputs.elmo.placement=none is the baseline. The layers of a frozen biLM are
    computed once for a corpus and kept in $ELMO_CACHE. Ctrl-C and SIGTERM lose the epoch at most.

    \b
    Examples:
      $ elmo train ner entities run --set inputs.elmo.model=model --set train.epochs=2
      $ elmo train ner entities seeds --set inputs.elmo.model=model --set train.epochs=1 --seeds 2
    """
    from elmo.tasks.recipe import recipe
    from elmo.tasks.train import TaskTraining

    found, built = recipe(task, config, set or [])
    if seeds > 1:
        arguments = [task, str(data), *(["--config", str(config)] if config is not None else [])]
        arguments += [part for assignment in set or [] for part in ("--set", assignment)]
        _train_seeds(arguments, found, built, data, out, seeds, jobs)
        return
    with _Epochs() as bar, stopping() as stop:
        training = TaskTraining(found, built, found.read(data), out, data=str(data), resume=resume, report=bar)
        ended = training.train(stop)
    if not ended:
        raise interrupted(out, 0)
    from elmo.run import Run

    record = Run.open(out).record
    for part, scores in record["scores"].items():
        shown = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        print(f"{out / 'model'}: {part} {shown} (epoch {record['best_epoch']})", file=sys.stderr)


def _train_seeds(
    arguments: list[str], task: "Task", built: Any, data: Path, out: Path, seeds: int, jobs: int | None
) -> None:
    from elmo.model.device import device_named
    from elmo.tasks.seeds import REPORT, train_seeds
    from elmo.tasks.train import prepare_layers

    numbers = list(range(built.train.seed, built.train.seed + seeds))
    device = device_named(built.train.device)
    with _Epochs() as bar:  # once, for all seeds
        prepare_layers(task.read(data), built, device, report=bar)
    with _Seeds(numbers, built.train.epochs) as bars, stopping() as stop:
        side_by_side = jobs or (seeds if device.type == "cuda" else 1)
        report = train_seeds(arguments, out, numbers, side_by_side, stop, bars.told)
    if report is None:
        raise interrupted(out, 0)
    for part, scores in report["scores"].items():
        shown = ", ".join(f"{name} {value['mean']:.2f} ± {value['sd']:.2f}" for name, value in scores.items())
        print(f"{out / REPORT}: {part} {shown}, {seeds} seeds", file=sys.stderr)


class _Bars:
    """Bars on a terminal, and lines that are printed above them."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bars = Progress(*columns, console=self._console, disable=not self._console.is_terminal)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


class _Epochs(_Bars):
    """A bar over the batches of an epoch, and a line for every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._epoch = self._bars.add_task("")

    def prepared(self, done: int, of: int) -> None:
        """So many tokens have their layers."""
        self._bars.update(self._epoch, completed=done, total=of, description="layers")

    def began(self, epoch: int, batches: int) -> None:
        """An epoch begins."""
        self._bars.reset(self._epoch, total=batches, description=f"epoch {epoch}")

    def stepped(self) -> None:
        """A batch is done."""
        self._bars.advance(self._epoch)

    def logged(self, values: Mapping[str, Any]) -> None:
        """An epoch is over."""
        name, score = _dev_score(values)
        seconds = values["train_seconds"] + values["dev_seconds"]
        line = f"epoch {values['step']}: loss {values['loss']:.4f}, dev {name} {score:.2f}, {seconds:.1f} s"
        self._console.print(line, markup=False)


class _Seeds(_Bars):
    """A bar for every seed."""

    def __init__(self, seeds: list[int], epochs: int) -> None:
        super().__init__()
        self._seeds = {seed: self._bars.add_task(f"seed {seed}", total=epochs) for seed in seeds}

    def told(self, logs: Mapping[int, list[dict[str, Any]]]) -> None:
        """How far each seed is, and its last score."""
        for seed, lines in logs.items():
            shown = f"seed {seed}, dev {_dev_score(lines[-1])[1]:.2f}" if lines else f"seed {seed}"
            self._bars.update(self._seeds[seed], completed=len(lines), description=shown)


def _dev_score(values: Mapping[str, Any]) -> tuple[str, float]:
    """The first of an epoch's scores: the one that models are chosen by."""
    return next((name.removeprefix("dev_"), value) for name, value in values.items() if name.startswith("dev_"))
