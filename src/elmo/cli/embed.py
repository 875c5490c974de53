"""`elmo embed`: a text file, one sentence per line ─▶ a file of arrays."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from elmo.cli.arguments import (
    BatchTokensOption,
    DeviceOption,
    MaxTokensOption,
    ModelOption,
    PrecisionOption,
    TextArgument,
    ThreadsOption,
    TokenizedOption,
    WordCacheOption,
    use_threads,
)
from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.progress import FileReport
from elmo.errors import ConfigError
from elmo.messages import counted
from elmo.packaged import DEFAULT

Engine = Literal["local", "ray"]


def embed(
    input: TextArgument,
    output: Annotated[Path, typer.Argument(help="The file to write: .hdf5, .h5, .parquet or .npz.")],
    model: ModelOption = DEFAULT,
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="LAYERS",
            help="all, top, average, or the number of a layer. Not with --pool sif or a sentence head, which have "
            "their own.  [default: all]",
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="One vector per sentence instead of one per token: mean, max, first-last, sif, or a sentence head "
            "(its installed name, or the folder of a trained task `sentences`)."
        ),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="hdf5, parquet or npz. By default the ending of OUTPUT decides.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float16.")] = "float32",
    tokenized: TokenizedOption = False,
    state: Annotated[
        str,
        typer.Option(
            help="LSTM state at the start of each sentence: fresh (zeros), warm (a stored state), or carried (from the "
            "sentences before, as in bilm-tf and AllenNLP)."
        ),
    ] = "fresh",
    batch_tokens: BatchTokensOption = None,
    batch_size: Annotated[int, typer.Option(help="Sentences per batch; only with --state carried.", min=1)] = 64,
    max_sentence_tokens: MaxTokensOption = 100_000,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    word_cache: WordCacheOption = None,
    threads: ThreadsOption = None,
    forget_sentences: Annotated[
        bool, typer.Option("--forget-sentences", help="Do not store the sentences in the file.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    engine: Annotated[
        Engine,
        typer.Option(
            help="local (this process), or ray (processes on a Ray cluster or, if there is none, on this machine; "
            "OUTPUT becomes a folder of Parquet files)."
        ),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of worker processes; only with --engine ray.  [default: one per CPU]", min=1
        ),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="Column of a Parquet INPUT; only with --engine ray.  [default: text]"),
    ] = None,
) -> None:
    """Embed a text file, one sentence per line.

    A blank line is an empty sentence. The HDF5 file has the layout of AllenNLP's `elmo` command: an array (layers,
    tokens, dim) per line, named "0", "1", …, and `sentence_to_index`. An .npz file has the same names, a Parquet file
    one row per line. An existing OUTPUT is refused. Use --resume to continue an interrupted run; the result is the same
    file.

    \b
    Examples:
      $ elmo embed sentences.txt vectors.hdf5
      $ elmo embed sentences.txt others.hdf5 --model model
      $ elmo embed sentences.txt top.hdf5 --model model --layers top --tokenized
      $ elmo embed sentences.txt means.parquet --model model --pool mean --layers average --dtype float16
      $ elmo embed sentences.txt similar.parquet --pool sif
      $ cat sentences.txt | elmo embed - vectors.npz --model model
    """
    from elmo.embed.embed_file import embed_file
    from elmo.text.reader import total_bytes

    if engine == "ray":
        from elmo.integrations.ray import embed_file_on_ray

        if word_cache is not None:
            raise ConfigError("--word-cache is for --engine local; leave it out")
        call = partial(embed_file_on_ray, threads=threads, workers=workers, field=field or "text")
    else:
        if workers is not None or field is not None:
            raise ConfigError(f"{'--workers' if workers else '--field'} is for --engine ray; leave it out")
        use_threads(threads)
        call = partial(embed_file, batch_size=batch_size, word_cache=word_cache)
    with interrupted_by_sigterm(), FileReport(total_bytes([input])) as report:
        try:
            done = call(
                input,
                output,
                model,
                layers=layers,
                pool=pool,
                format=format,
                dtype=dtype,
                tokenized=tokenized,
                state=state,
                batch_tokens=batch_tokens,
                max_sentence_tokens=max_sentence_tokens,
                device=device,
                precision=precision,
                forget_sentences=forget_sentences,
                resume=resume,
                progress=report.show,
            )
        except KeyboardInterrupt as stopped:
            print("; ".join(["elmo: interrupted", *getattr(stopped, "__notes__", [])]), file=sys.stderr)
            raise typer.Exit(130) from None
    print(f"{output}: {counted(done.sentences, 'sentence')}, {counted(done.tokens, 'token')}", file=sys.stderr)
