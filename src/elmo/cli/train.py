"""`elmo train`: a task's data ─▶ a trained task, for one seed or several."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from elmo.cli.arguments import ThreadsOption, use_threads
from elmo.cli.interrupt import stopping
from elmo.cli.training import ConfigOption, SetOption, interrupted, owned

TaskArgument = Annotated[str, typer.Argument(help="ner, sst or snli; or a folder with a task of your own.")]
DataArgument = Annotated[
    Path, typer.Argument(help="A folder with the task's files, under the names their owners gave.")
]


def train(
    task: TaskArgument,
    data: DataArgument,
    out: Annotated[Path, typer.Argument(help="The folder of the run; OUT/model is the trained task.")],
    config: ConfigOption = None,
    set: SetOption = None,
    seeds: Annotated[
        int, typer.Option(help="Number of random seeds to train; mean and standard deviation are reported.", min=1)
    ] = 1,
    jobs: Annotated[
        int | None, typer.Option(help="Seeds to train side by side.  [default: all on a GPU, else one]", min=1)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last complete epoch.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Train a task's model, with ELMo at its input, its output, both or nowhere.

    The default recipe is the paper's. Its fields are those of the task's config, such as
    elmo.tasks.ner.model.NerConfig; --set inputs.elmo.placement=none is the baseline. The layers of a frozen biLM are
    computed once for a corpus and kept in $ELMO_CACHE.

    Ctrl-C and SIGTERM lose the current epoch at most; --resume continues with the same recipe. With --seeds, the same
    command continues: finished seeds are not trained again.

    \b
    Examples:
      $ elmo train ner entities run --set inputs.elmo.model=model --set train.epochs=2
      $ elmo train ner entities seeds --set inputs.elmo.model=model --set train.epochs=1 --seeds 2
    """
    from elmo.tasks.recipe import recipe
    from elmo.tasks.train import TaskTraining
    from elmo.training.run import Run

    use_threads(threads)
    with owned(out):
        if seeds > 1:
            _train_seeds(task, recipe(task, config, set or [])[1], data, out, seeds, jobs, threads)
            return
        found, built = recipe(task, config, set or [], out if resume else None)
        with _Epochs() as bar, stopping() as stop:
            training = TaskTraining(found, built, found.read(data), out, data=str(data), resume=resume, report=bar)
            ended = training.train(stop)
        if not ended:
            raise interrupted(out, "epoch", training.progress.epoch)
        record = Run.open(out).record
    for part, scores in record["scores"].items():
        shown = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        print(f"{out / 'model'}: {part} {shown} (epoch {record['best_epoch']})", file=sys.stderr)


def _train_seeds(
    task: str, built: Any, data: Path, out: Path, seeds: int, jobs: int | None, threads: int | None
) -> None:
    from elmo.tasks.seeds import train_seeds
    from elmo.training.seeds import REPORT

    numbers = list(range(built.train.seed, built.train.seed + seeds))
    with _Seeds(numbers, built.train.epochs) as bars, stopping() as stop:
        report = train_seeds(
            task, built, data, out,
            count=seeds, jobs=jobs, threads=threads, stop=stop, report=bars, progress=bars.show,
        )  # fmt: skip
    if report is None:
        print(f"elmo: {out}: interrupted. Run the same command again to continue", file=sys.stderr)
        raise typer.Exit(130)
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
        """Show for how many tokens the layers are computed."""
        self._bars.update(self._epoch, completed=done, total=of, description="layers")

    def began(self, epoch: int, batches: int) -> None:
        """Begin the bar of an epoch."""
        self._bars.reset(self._epoch, total=batches, description=f"epoch {epoch}")

    def stepped(self) -> None:
        """Count a batch."""
        self._bars.advance(self._epoch)

    def logged(self, values: Mapping[str, Any]) -> None:
        """Print the line of an epoch."""
        from elmo.tasks.seeds import epoch_line

        self._console.print(epoch_line(values), markup=False)


class _Seeds(_Epochs):
    """A bar for the layers, which are computed first, and one for every seed."""

    def __init__(self, seeds: list[int], epochs: int) -> None:
        super().__init__()
        self._seeds = {seed: self._bars.add_task(f"seed {seed}", total=epochs) for seed in seeds}

    def show(self, logs: Mapping[int, list[dict[str, Any]]]) -> None:
        """Show the epochs and the latest score of each seed."""
        from elmo.tasks.seeds import dev_score

        for seed, lines in logs.items():
            shown = f"seed {seed}, dev {dev_score(lines[-1])[1]:.2f}" if lines else f"seed {seed}"
            self._bars.update(self._seeds[seed], completed=len(lines), description=shown)
