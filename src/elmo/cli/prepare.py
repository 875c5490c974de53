"""`elmo prepare`: raw text ─▶ a corpus folder to train on."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.progress import Progress


def prepare(
    texts: Annotated[list[str], typer.Argument(help="Text files, or folders of them; - is standard input.")],
    output: Annotated[Path, typer.Argument(help="The corpus folder to write.")],
    tokenizer: Annotated[
        str, typer.Option(help="moses, whitespace, or PATH:FUNC: a function of yours, sentence to tokens.")
    ] = "moses",
    lines: Annotated[bool, typer.Option("--lines/--split", help="A line is a sentence, or has several.")] = False,
    heldout: Annotated[
        str, typer.Option(help="What is not trained on: a share of the sentences, or a text file.")
    ] = "0.5%",
    vocab_size: Annotated[
        int | None, typer.Option(help="The language model predicts so many words, <S>, </S> and <UNK> among them.")
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(help="It predicts the words that occur so often.  [default: 2]", min=1)
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="It predicts the words of this file, one a line, by falling count.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="Files of training text.  [default: one per 10 million tokens]", min=1)
    ] = None,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates/--dedup", help="Keep equal sentences, or one of each.")
    ] = False,
    field: Annotated[str, typer.Option(help="What holds the text in JSON lines and Parquet.")] = "text",
    seed: Annotated[int, typer.Option(help="Another order, and another held-out part.")] = 0,
    longest_line: Annotated[
        int, typer.Option(help="In bytes; a longer line is taken for a mistake.", min=1)
    ] = 1_000_000,
    jobs: Annotated[int | None, typer.Option(help="Processes.  [default: one per core]", min=1)] = None,
) -> None:
    """Turn raw text into a corpus folder: sentences shuffled, without duplicates, as numbers, a part of them held out.

    Reads plain text, .gz, .xz, .bz2, .zst, .jsonl (compressed too) and .parquet, of any size: the table of distinct
    words is in memory, the rest in OUTPUT.part. An interrupted run, called again, goes on there and ends in the same
    files, whatever --jobs is.

    \b
    Examples:
      $ elmo prepare text.txt corpus
      $ elmo prepare text.txt corpus --vocab-size 20 --heldout 10% --jobs 2
      $ elmo prepare text.txt corpus --tokenizer whitespace --lines --heldout sentences.txt --min-count 1
      $ cat text.txt | gzip > text.gz && elmo prepare text.gz sentences.txt corpus --shards 2
    """
    from elmo.pretrain.prepare import prepare as make

    with interrupted_by_sigterm(), Progress(None) as bar:
        try:
            manifest = make(
                texts,
                output,
                tokenizer=tokenizer,
                sentences="lines" if lines else "split",
                heldout=heldout,
                vocabulary=vocabulary,
                vocab_size=vocab_size,
                min_count=min_count,
                shards=shards,
                deduplicate=not keep_duplicates,
                field=field,
                seed=seed,
                longest_line=longest_line,
                jobs=jobs or _cores(),
                progress=_Steps(bar).show,
            )
        except KeyboardInterrupt:
            print("elmo: interrupted; the same command goes on where it was", file=sys.stderr)
            raise typer.Exit(130) from None
    counts = manifest["counts"]
    held = sum(shard["sentences"] for shard in manifest["heldout"])
    print(
        f"{output}: {counts['sentences']:,} sentences, {counts['tokens']:,} tokens in {len(manifest['train'])} shards; "
        f"{held:,} sentences held out, {counts['duplicates']:,} duplicates left out; "
        f"{manifest['vocabulary']:,} of {manifest['words']:,} words predicted",
        file=sys.stderr,
    )


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Steps:
    """Shows each step of the work on the bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._step = ""

    def show(self, step: str, done: int, total: int | None, tokens: int) -> None:
        """`done` of `total` in this step of the work, `tokens` until now."""
        if step != self._step:
            self._step = step
            self._progress.begin(step, total)
        self._progress.show(tokens, done)
