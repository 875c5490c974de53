"""`elmo plot`: the curves of training runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `elmo pretrain` wrote, or is writing.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .png, .svg or .pdf.  [default: curves.png in the first RUN]"),
    ] = None,
) -> None:
    """Draw training loss, held-out perplexity, speed and learning rate; several runs on one figure, to compare.

    A run that goes on may be drawn again and again: the figure that is there is replaced.

    \b
    Examples:
      $ elmo plot run-a
      $ elmo plot run-a run-b --output compared.svg
    """
    from elmo.pretrain.plot import plot as write

    path = write(runs, output)
    print(f"{path}: {len(runs)} run{'' if len(runs) == 1 else 's'}", file=sys.stderr)
