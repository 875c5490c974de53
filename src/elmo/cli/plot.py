"""`elmo plot`: the curves of training runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.messages import counted


def plot(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs of `elmo pretrain`, `elmo finetune` or `elmo train`.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .png, .svg or .pdf file.  [default: curves.png in the first run]"),
    ] = None,
) -> None:
    """Draw the training curves of runs.

    The figure shows the training loss, the held-out perplexity or dev score, and the learning rate. Several runs of the
    same kind are drawn in one figure. A run can be drawn while it is training. An existing figure is replaced.

    \b
    Examples:
      $ elmo plot run-a
      $ elmo plot run-a run-b --output compared.svg
    """
    from elmo.training.plot import plot as write

    path = write(runs, output)
    print(f"{path}: {counted(len(runs), 'run')}", file=sys.stderr)
