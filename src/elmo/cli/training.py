"""What `elmo pretrain` and `elmo finetune` share, and some of it `elmo train`: options, the recipe, what they print."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from elmo.pretrain.config import PretrainConfig
    from elmo.pretrain.plan import Plan

CorpusArgument = Annotated[
    Path,
    typer.Argument(help="A folder that `elmo prepare` wrote; or tokenised text, a sentence a line: a file or folder."),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="A TOML file with (part of) the recipe.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="One field of the recipe, such as seed=1. May be repeated."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")]
VocabularyOption = Annotated[
    Path | None, typer.Option(help="A vocabulary file for tokenised text (bilm-tf's); built from the text otherwise.")
]


def recipe(
    out: Path,
    resume: bool,
    file: Path | None,
    assignments: list[str] | None,
    preset: str | None,
    finetuning: bool = False,
) -> "PretrainConfig":
    """Defaults ◀ preset ◀ file ◀ --set; a resumed run begins with the recipe it was started with."""
    from elmo.pretrain.config import PretrainConfig
    from elmo.pretrain.finetune import SOFTMAX
    from elmo.run import RECORD, Run

    runs = [folder for folder in (out, out / SOFTMAX) if resume and (folder / RECORD).exists()]
    begun = Run.open(runs[0]).record["config"] if runs else None
    return PretrainConfig.of(preset, file, assignments or [], finetuning=finetuning, begun=begun)


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
        """Print what is about to happen."""
        gib = 1 << 30
        free = f" of {plan.bytes_available / gib:.1f} GiB free" if plan.bytes_available is not None else ""
        against = f"{plan.negatives:,} negatives" if plan.negatives is not None else "full softmax"
        self._print(f"parameters   {plan.parameters:,}, and {plan.softmax_parameters:,} of the softmax")
        self._print(f"step         {plan.tokens_per_step:,} tokens in each direction, {against}")
        self._print(f"run          {plan.steps:,} steps, {plan.steps / plan.steps_per_epoch:.2f} epochs, {done:,} done")
        self._print(f"memory       about {plan.bytes_needed / gib:.1f} GiB{free} on {plan.device}")
        if plan.bytes_available is not None and plan.bytes_needed > plan.bytes_available:
            self._print("warning      that will not fit: raise batch.accumulate, or lower batch.size or the preset")
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


def interrupted(out: Path, rank: int) -> typer.Exit:
    """What is said, by the first process, and returned after an interruption."""
    if rank == 0:
        print(f"elmo: interrupted; everything is saved in {out}, --resume goes on", file=sys.stderr)
    return typer.Exit(130)
