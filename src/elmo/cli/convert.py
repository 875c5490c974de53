"""`elmo convert`: published files ◀─▶ our folder, and the token embeddings of a vocabulary."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ModelArgument, ThreadsOption, use_threads
from elmo.errors import ConfigError
from elmo.messages import counted


def convert(
    model: ModelArgument,
    output: Annotated[
        Path, typer.Argument(help="A new folder; or a name that ends in .hdf5, for the published format.")
    ],
    vocabulary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write only the token embeddings of the words in this file."),
    ] = None,
    float16: Annotated[bool, typer.Option("--float16", help="Store the weights of a folder in half the size.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Convert a model to another format.

    A folder has the weights in safetensors; the published format is options.json and an HDF5 file, which older tools
    read. Converting to the other and back gives exactly the same numbers. The published format cannot store a softmax,
    so it is left out. With --float16 the weights are rounded to about three decimal digits; computations stay in
    float32.

    \b
    Examples:
      $ elmo convert weights.hdf5 converted
      $ elmo convert model back/weights.hdf5
      $ elmo convert model half --float16
      $ elmo convert model embeddings.hdf5 --vocabulary words.txt
    """
    from elmo.embed.convert import convert as run
    from elmo.embed.convert import convert_tokens

    use_threads(threads)
    if vocabulary is not None:
        if float16:
            raise ConfigError("--float16 is for a folder; token embeddings are float32. Leave out one of the options")
        words, dim = convert_tokens(model, output, vocabulary)
        print(f"{output}: {counted(words, 'word')} of {dim}", file=sys.stderr)
        return
    written = run(model, output, float16=float16)
    names = " and ".join([str(output), *(file.name for file in written.files[1:])])
    print(f"{names}: {written.n_parameters:,} parameters", file=sys.stderr)
