"""`elmo convert`: published files ◀─▶ our folder, and the token embeddings of a vocabulary."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ModelArgument, ThreadsOption, use_threads
from elmo.errors import ConfigError


def convert(
    model: ModelArgument,
    output: Annotated[
        Path, typer.Argument(help="A new folder, or a name that ends in .hdf5 for the published format.")
    ],
    vocabulary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the token embeddings of the words in this file instead, as an .hdf5."),
    ] = None,
    float16: Annotated[bool, typer.Option("--float16", help="Write a folder of half the size.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Convert a model to a folder (safetensors), or to the options.json and HDF5 files that older tools read.

    HDF5 to folder and back gives exactly the same numbers. The HDF5 format cannot store a softmax: it is left out.
    With --float16 the weights are rounded to three digits; computations stay in float32.

    \b
    Examples:
      $ elmo convert weights.hdf5 converted
      $ elmo convert model back/weights.hdf5
      $ elmo convert model half --float16
      $ elmo convert model embeddings.hdf5 --vocabulary words.txt
    """
    import torch

    from elmo.embed.embedder import Embedder
    from elmo.files import locked, refuse_existing, replacing
    from elmo.text.vocabulary import Vocabulary
    from elmo.weights import bilm_tf, source
    from elmo.weights.folder import Pretrained

    use_threads(threads)
    published = output.suffix in (".hdf5", ".h5")
    options = source.options_names(output)[0]
    beside = output.with_name("vocabulary.txt")
    if float16 and published:
        raise ConfigError(f"{output}: the published format is float32; --float16 is for a folder")
    if vocabulary is not None and not published:
        raise ConfigError(f"{output}: token embeddings are an .hdf5 file; give a name that ends in .hdf5")
    outputs = [output, options] if published and vocabulary is None else [output]
    for path in outputs:
        refuse_existing(path)
    with locked(output):
        for path in outputs:
            refuse_existing(path)  # another process may have written it just before it was locked
        words = Vocabulary.read(vocabulary) if vocabulary is not None else None
        read = source.read(model, softmax=not published)
        if words is not None:
            vectors = Embedder(read, cache_bytes=0).token_vectors(words.words)
            bilm_tf.write_token_embeddings(vectors, output)
            print(f"{output}: {len(words):,} words of {vectors.shape[1]}", file=sys.stderr)
        elif published:
            if read.bilm.config.n_words is not None and read.vocabulary is not None:  # words enter by their row
                refuse_existing(beside)
                with replacing(beside) as path:
                    read.vocabulary.write(path)
            bilm_tf.write(read.bilm, options, output)
            print(f"{output} and {options.name}: {read.bilm.n_parameters():,} parameters", file=sys.stderr)
        else:
            if float16:  # the warm state must be that of the rounded weights
                read = Pretrained(read.bilm.half().float(), read.vocabulary)
            Embedder(read).save(output, torch.float16 if float16 else None)
            print(f"{output}: {read.bilm.n_parameters():,} parameters", file=sys.stderr)
