"""`elmo package`: a trained task ─▶ a distribution that pip installs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption
from elmo.cli.evaluate import TaskOption, TrainedArgument


def package(
    model: TrainedArgument,
    out: Annotated[Path, typer.Argument(help="A new folder.")],
    name: Annotated[
        str | None, typer.Option(help="The name of the model once it is installed.  [default: that of OUT]")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The title of its model card.")] = None,
    license: Annotated[str | None, typer.Option(help="Its licence as an SPDX identifier, such as CC-BY-4.0.")] = None,
    language: Annotated[str | None, typer.Option(help="The language of its texts, such as en.")] = None,
    notes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Markdown text to add to its card, such as where the data are from."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Score the weights on this data after they are rounded, for the card."),
    ] = None,
    max_words: Annotated[
        int | None, typer.Option(metavar="N", help="Keep only N word vectors, first those of the training part.", min=0)
    ] = None,
    task: TaskOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Write a trained task as a package for pip.

    The folder has a pyproject.toml, a model card with the scores, and the model with its weights in float16. A biLM
    that is installed is not copied: the package requires the one that contains the biLM. After `pip install ./OUT`, the
    trained task is known by its name: elmo predict NAME FILE.

    \b
    Examples:
      $ elmo package tagger my-tagger
      $ elmo package tagger shipped --name people --license CC-BY-4.0 --language en --data entities
    """
    from elmo.tasks.from_paths import package as run

    written = run(
        model,
        out,
        name=name,
        title=title,
        license=license,
        language=language,
        notes=notes,
        data=data,
        max_words=max_words,
        device=device,
        task=task,
    )
    print(f"{written.folder}: {written.distribution}, {written.size / 1e6:.1f} MB", file=sys.stderr)
