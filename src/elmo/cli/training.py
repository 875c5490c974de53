"""Options, recipes and printing that `elmo pretrain` and `elmo finetune` share, and some of it `elmo train`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from elmo.pretrain.config import PretrainConfig
    from elmo.pretrain.plan import Plan

CorpusArgument = Annotated[
    Path,
    typer.Argument(help="A folder that `elmo prepare` wrote; or text, one sentence per line: a file or a folder."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with the recipe, or a part of it.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Set one field of the recipe. May be repeated."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")]
MemoryOption = Annotated[
    bool, typer.Option("--ignore-memory", help="Train even if the run is estimated not to fit into memory.")
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(help="For text: moses, whitespace, or PATH:FUNC, a function of yours.  [default: moses]"),
]
VocabularyOption = Annotated[
    Path | None,
    typer.Option(help="For text: a vocabulary file, in bilm-tf's format. By default all words of the text."),
]


def recipe(
    task: str,
    out: Path,
    resume: bool,
    file: Path | None,
    assignments: list[str] | None,
    preset: str | None = None,
) -> "PretrainConfig":
    """Defaults ◀ preset ◀ file ◀ --set; a resumed run begins with the recipe it was started with."""
    from elmo.pretrain.config import PretrainConfig
    from elmo.pretrain.finetune import SOFTMAX
    from elmo.training.run import RECORD, Run

    started_with = None
    if resume:
        folder = next((folder for folder in (out, out / SOFTMAX) if (folder / RECORD).exists()), out)
        started_with = Run(folder).config_of(task)
    finetuning = task == "finetune"
    return PretrainConfig.load(preset, file, assignments or [], finetuning=finetuning, started_with=started_with)


@contextmanager
def owned(out: Path, rank: int = 0) -> Iterator[None]:
    """Own the output folder of a run; of several processes, the first owns it for all."""
    from elmo.files import locked

    if rank != 0:
        yield
        return
    with locked(out):
        yield


class Reporter:
    """Prints to standard error: a plan, then a bar on a terminal, and a line for every line of the log."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("")
        self._seen = ""

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def planned(self, plan: "Plan", done: int) -> None:
        """Print the plan."""
        gib = 1 << 30
        free = f" of {plan.bytes_available / gib:.1f} GiB free" if plan.bytes_available is not None else ""
        against = f"{plan.negatives:,} negatives" if plan.negatives is not None else "full softmax"
        self._print(f"parameters   {plan.parameters:,}, and {plan.softmax_parameters:,} of the softmax")
        self._print(f"step         {plan.tokens_per_step:,} tokens in each direction, {against}")
        self._print(f"run          {plan.steps:,} steps, {plan.steps / plan.steps_per_epoch:.2f} epochs, {done:,} done")
        self._print(f"memory       about {plan.bytes_needed / gib:.1f} GiB{free} on {plan.device}")
        self._bar.start()
        self._bar.update(self._task, total=plan.steps, completed=done)

    def stepped(self, step: int, plan: "Plan") -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=step, description=self._seen)

    def logged(self, values: dict[str, Any]) -> None:
        """Print a line of the log."""
        step = f"step {values['step']:,} epoch {values['epoch']:.2f}"
        if "perplexity" in values:
            forward, backward = values["forward_perplexity"], values["backward_perplexity"]
            ways = f" (forward {forward:.2f}, backward {backward:.2f})" if backward is not None else ""
            self._print(f"{step}: held-out perplexity {values['perplexity']:.2f}{ways}")
        else:
            self._seen = f"loss {values['loss']:.3f} {values['tokens_per_second']:,.0f} tokens/s"
            self._print(f"{step}: {self._seen}, gradient {values['gradient_norm']:.2f}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False)


def interrupted(out: Path, unit: str, done: int, rank: int = 0) -> typer.Exit:
    """Say what an interrupted run has saved, in steps or epochs; gives the exit of the command."""
    if done:
        message = f"interrupted after {unit} {done}. Use --resume to continue from there"
    else:
        message = f"interrupted in the first {unit}: nothing to keep yet. --resume starts over with the same recipe"
    if rank == 0:
        print(f"elmo: {out}: {message}", file=sys.stderr)
    return typer.Exit(130)
