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
    float16: Annotated[
        bool, typer.Option("--float16", help="Store the weights as float16: half the size. Only for a folder.")
    ] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="Store the weights as int8: a quarter of the size. Only for a folder.")
    ] = False,
    threads: ThreadsOption = None,
) -> None:
    """Convert a model to another format.

    A folder has the weights in safetensors; the published format is options.json and an HDF5 file, which older tools
    read. Converting to the other and back gives exactly the same numbers. The published format cannot store a softmax
    and the statistics of `elmo sif`, so they are left out.

    A folder may store the weights rounded; computations stay in float32. --float16 keeps about three decimal digits.
    --int8 keeps 255 levels for each output of a matrix, and writes files of at most 48 MB with an index of them; biases
    and the table of characters stay float32.

    \b
    Examples:
      $ elmo convert weights.hdf5 converted
      $ elmo convert model back/weights.hdf5
      $ elmo convert model half --float16
      $ elmo convert model quarter --int8
      $ elmo convert model embeddings.hdf5 --vocabulary words.txt
    """
    chosen = [flag for flag, given in (("--float16", float16), ("--int8", int8)) if given]
    if len(chosen) > 1:
        raise ConfigError("--float16 and --int8 exclude each other; leave out one of them")
    if chosen and vocabulary is not None:
        raise ConfigError(f"{chosen[0]} is for a folder; token embeddings are float32. Leave out one of the options")
    import torch

    from elmo.embed.convert import convert as run
    from elmo.embed.convert import convert_tokens

    use_threads(threads)
    if vocabulary is not None:
        words, dim = convert_tokens(model, output, vocabulary)
        print(f"{output}: {counted(words, 'word')} of {dim}", file=sys.stderr)
        return
    dtype = torch.int8 if int8 else torch.float16 if float16 else None
    written = run(model, output, dtype=dtype)
    names = " and ".join([str(output), *(file.name for file in written.files[1:])])
    print(f"{names}: {written.n_parameters:,} parameters", file=sys.stderr)
