"""`elmo plot`: the curves of training runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs: of `elmo pretrain` and `finetune`, or of `elmo train`.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .png, .svg or .pdf.  [default: curves.png in the first RUN]"),
    ] = None,
) -> None:
    """Draw the curves of runs: training loss, held-out perplexity or dev score, learning rate.

    Several runs of one kind are drawn in one figure, to compare them. A run may be drawn while it is training; a figure
    that exists is replaced.

    \b
    Examples:
      $ elmo plot run-a
      $ elmo plot run-a run-b --output compared.svg
    """
    from elmo.training.plot import plot as write

    path = write(runs, output)
    print(f"{path}: {len(runs)} run{'' if len(runs) == 1 else 's'}", file=sys.stderr)
