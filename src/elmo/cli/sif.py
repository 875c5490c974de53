"""`elmo sif`: a model folder and a text ─▶ the statistics of `--pool sif`, in the folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, TextArgument, ThreadsOption, TokenizedOption, use_threads
from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.progress import StageReport
from elmo.messages import counted


def sif(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model folder.")],
    input: TextArgument,
    tokenized: TokenizedOption = False,
    a: Annotated[float, typer.Option("--a", help="The weight of a word of probability p is a / (a + p).")] = 1e-4,
    layers: Annotated[str, typer.Option(help="top, average, or the number of a layer.")] = "0",
    components: Annotated[int, typer.Option(help="Number of common components to remove.", min=0)] = 35,
    words: Annotated[int, typer.Option(help="Number of frequent words to store.", min=0)] = 20_000,
    sentences: Annotated[
        int, typer.Option(help="Number of sentences, drawn at random, to compute the components from.", min=1)
    ] = 10_000,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Add the statistics that `--pool sif` needs to a model folder.

    With them, `elmo embed --pool sif` computes sentence vectors by smooth inverse frequency (docs/sentences.md). They
    are computed from a text in the model's language: the frequencies of its words, and what the vectors of its
    sentences have in common. They are two small files, sif.safetensors and sif_words.txt. The English model of this
    package has them already.

    \b
    Examples:
      $ elmo sif model sentences.txt --components 2
      $ cat sentences.txt | elmo sif model - --layers average --components 1
    """
    from elmo.embed.sif import add_sif

    use_threads(threads)
    with interrupted_by_sigterm(), StageReport() as report:
        try:
            made = add_sif(
                folder,
                input,
                tokenized=tokenized,
                a=a,
                layers=layers,
                components=components,
                words=words,
                sentences=sentences,
                device=device,
                report=report.show,
            )
        except KeyboardInterrupt:
            print("elmo: interrupted; nothing was written", file=sys.stderr)
            raise typer.Exit(130) from None
    size = f"{counted(made.total, 'token')}, {counted(len(made.counts), 'frequent word')}"
    print(f"{folder}: {size}, {counted(len(made.components), 'component')}", file=sys.stderr)
