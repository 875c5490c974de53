"""`elmo embed`: a text file, one sentence per line ─▶ a file of arrays."""

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, ModelOption
from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.lines import Lines
from elmo.cli.progress import Progress
from elmo.errors import DataError
from elmo.packaged import DEFAULT


def embed(
    input: Annotated[str, typer.Argument(help="A text file, one sentence per line; - is standard input.")],
    output: Annotated[Path, typer.Argument(help="The file to write; its ending tells the format.")],
    model: ModelOption = DEFAULT,
    layers: Annotated[str, typer.Option(help="all, top, average, or a layer's number.")] = "all",
    pool: Annotated[str | None, typer.Option(help="One vector per sentence: mean, max or first-last.")] = None,
    format: Annotated[str | None, typer.Option(help="hdf5, parquet or npz, where the ending does not tell.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float16.")] = "float32",
    tokenized: Annotated[
        bool, typer.Option("--tokenized/--raw", help="Split at white space, or tokenise raw text.")
    ] = False,
    state: Annotated[str, typer.Option(help="Where each sentence starts: fresh, warm or carried.")] = "fresh",
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens computed together.", min=1)] = None,
    batch_size: Annotated[int, typer.Option(help="Sentences in a batch, where state is carried.", min=1)] = 64,
    device: DeviceOption = "auto",
    precision: Annotated[str, typer.Option(help="float32, or bfloat16: faster and less exact.")] = "float32",
    threads: Annotated[int | None, typer.Option(help="CPU threads; PyTorch's choice if not given.", min=1)] = None,
    forget_sentences: Annotated[bool, typer.Option(help="Leave the sentences themselves out of the file.")] = False,
    resume: Annotated[bool, typer.Option(help="Go on with an interrupted run.")] = False,
) -> None:
    """Embed a text file, one sentence per line; a blank line is an empty sentence.

    The HDF5 file is laid out as AllenNLP's `elmo` command did: an array "0", "1", … per line, (layers, tokens, dim),
    and `sentence_to_index`. An interrupted run goes on with --resume and ends in the same file.

    \b
    Examples:
      $ elmo embed sentences.txt vectors.hdf5
      $ elmo embed sentences.txt others.hdf5 --model model
      $ elmo embed sentences.txt top.hdf5 --model model --layers top --tokenized
      $ elmo embed sentences.txt means.parquet --model model --pool mean --layers average --dtype float16
      $ cat sentences.txt | elmo embed - vectors.npz --model model
    """
    from elmo.embed.pooling import pooling
    from elmo.embed.selection import Selection
    from elmo.embed.store import Store, format_of
    from elmo.text.tokens import words

    form = format_of(output, format)
    if pool:
        pooling(pool)  # a name that is none is refused before anything is read
    lines = Lines(input)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    from elmo.embed.embedder import load

    embedder = load(model, device=device, precision=precision)
    Selection.parse(layers, embedder.n_layers, dtype)
    pooled = pooling(pool, embedder.config.directions) if pool else None
    settings = {
        "layers": layers,
        "pool": pool,
        "dtype": dtype,
        "tokenized": tokenized,
        "state": state,
        "batch_size": batch_size if state == "carried" else None,
        "batch_tokens": batch_tokens,
        "precision": precision,
        "model": embedder.fingerprint(),
    }
    store = Store(output, settings, resume)
    skip, before = store.sentences, store.tokens()
    waiting: deque[tuple[list[str], int]] = deque()

    def sentences() -> Iterator[list[str]]:
        for number, line in enumerate(lines):
            tokens = line.split() if tokenized else words(line)
            if number >= skip:
                waiting.append((tokens, lines.position))
            elif tokens != next(before):
                raise DataError(f"{input}: line {number + 1} has changed since the run to resume; remove {store.part}")
            yield tokens
        if lines.count < skip:
            raise DataError(f"{input}: {lines.count} lines, but the run to resume had done {skip}; remove {store.part}")

    arrays = embedder.embed(
        sentences(), layers, dtype=dtype, state=state, batch_tokens=batch_tokens, batch_size=batch_size, skip=skip
    )
    with interrupted_by_sigterm(), Progress(lines.size) as progress:
        try:
            for array in arrays:
                tokens, position = waiting.popleft()
                store.add(tokens, pooled(array) if pooled else array)
                progress.advance(len(tokens), position)
            store.finish(form, sentences=not forget_sentences)
        except KeyboardInterrupt:
            store.flush()
            print(f"elmo: interrupted after {store.sentences} sentences; --resume goes on there", file=sys.stderr)
            raise typer.Exit(130) from None
    print(f"{output}: {store.sentences:,} sentences, {store.n_tokens:,} tokens", file=sys.stderr)
