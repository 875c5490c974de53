"""`elmo convert`: published files ◀─▶ our folder, and the token embeddings of a vocabulary."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ModelArgument
from elmo.errors import ConfigError


def convert(
    model: ModelArgument,
    output: Annotated[Path, typer.Argument(help="A new folder; or a name ending in .hdf5, for the published format.")],
    vocabulary: Annotated[
        Path | None, typer.Option(help="Write the token embeddings of these words instead (an .hdf5).")
    ] = None,
    float16: Annotated[bool, typer.Option("--float16", help="Write a folder of half the size.")] = False,
) -> None:
    """Convert a model: to a folder (safetensors), or to the options.json and HDF5 that older tools read.

    HDF5 to folder to HDF5 gives the same numbers to the bit. A softmax has no place in an HDF5 and stays behind. With
    --float16 a folder's numbers are rounded to three digits; they are computed with in float32 as always.

    \b
    Examples:
      $ elmo convert weights.hdf5 converted
      $ elmo convert model back/weights.hdf5
      $ elmo convert model half --float16
      $ elmo convert model embeddings.hdf5 --vocabulary words.txt
    """
    import torch

    from elmo.embed.embedder import Embedder
    from elmo.files import refuse_existing, replacing
    from elmo.text.vocabulary import Vocabulary
    from elmo.weights import bilm_tf, source
    from elmo.weights.folder import Pretrained

    published = output.suffix in (".hdf5", ".h5")
    options = source.options_names(output)[0]
    beside = output.with_name("vocabulary.txt")
    for path in [output, options] if published and vocabulary is None else [output]:
        refuse_existing(path)
    if float16 and published:
        raise ConfigError(f"{output}: the published format is float32; --float16 goes with a folder")
    if vocabulary is not None and not published:
        raise ConfigError(f"{output}: token embeddings are an .hdf5 file; give a name that ends so")
    words = Vocabulary.read(vocabulary) if vocabulary is not None else None
    read = source.read(model, softmax=not published)
    if words is not None:
        vectors = Embedder(read, cache_bytes=0).token_vectors(words.words)
        bilm_tf.write_token_embeddings(vectors, output)
        print(f"{output}: {len(words):,} words of {vectors.shape[1]}", file=sys.stderr)
    elif published:
        if read.bilm.config.n_words is not None and read.vocabulary is not None:  # its words enter by their row
            refuse_existing(beside)
            with replacing(beside) as path:
                read.vocabulary.write(path)
        bilm_tf.write(read.bilm, options, output)
        print(f"{output} and {options.name}: {read.bilm.n_parameters():,} parameters", file=sys.stderr)
    else:
        if float16:  # the warm state is to be that of the rounded weights
            read = Pretrained(read.bilm.half().float(), read.vocabulary)
        Embedder(read).save(output, torch.float16 if float16 else None)
        print(f"{output}: {read.bilm.n_parameters():,} parameters", file=sys.stderr)
