"""`elmo prepare`: raw text ─▶ a corpus folder to train on."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.progress import FileReport
from elmo.messages import counted


def prepare(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXTS... OUTPUT",
            help="Text files, or folders of them; - is standard input. The last one is the corpus folder to write.",
        ),
    ],
    tokenizer: Annotated[
        str, typer.Option(help="moses, whitespace, or your own function as PATH:FUNC.")
    ] = "moses",
    lines: Annotated[
        bool, typer.Option("--lines/--split", help="Each line is one sentence; or split lines into sentences.")
    ] = False,
    heldout: Annotated[
        str, typer.Option(help="Held-out sentences: a percentage, a fraction in [0, 1), or a text file.")
    ] = "0.5%",
    vocab_size: Annotated[
        int | None, typer.Option(metavar="N", help="Vocabulary size, including <S>, </S> and <UNK>.")
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Words that occur less often are not in the vocabulary. Not with --vocab-size.  [default: 2]",
            min=1,
        ),
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Use this vocabulary: <S>, </S>, <UNK>, then one word per line, most frequent first."
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of training files.  [default: one per 10 million tokens]", min=1),
    ] = None,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates/--dedup", help="Keep duplicate sentences; or keep one of each.")
    ] = False,
    field: Annotated[str, typer.Option(help="The field or column of the text in JSON lines and Parquet.")] = "text",
    seed: Annotated[int, typer.Option(help="Random seed of the shuffling and the held-out part.")] = 0,
    longest_line: Annotated[
        int, typer.Option(metavar="BYTES", help="Refuse a longer line, which is probably not text.", min=1)
    ] = 1_000_000,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Number of processes.  [default: one per core]", min=1)
    ] = None,
) -> None:
    """Turn raw text into a corpus to train on.

    The text is split into sentences and tokens; duplicates are removed, the sentences are shuffled, and a part of them
    is held out. Reads plain text and JSON lines (.jsonl), also compressed (.gz, .xz, .bz2, .zst), and .parquet. The
    text may be larger than memory: only the distinct words are kept in memory, the rest in the folder OUTPUT.part. Run
    the same command again to continue an interrupted run. The result does not depend on the number of --jobs.

    \b
    Examples:
      $ elmo prepare text.txt corpus
      $ elmo prepare text.txt corpus --vocab-size 20 --heldout 10% --jobs 2
      $ elmo prepare text.txt corpus --tokenizer whitespace --lines --heldout sentences.txt --min-count 1
      $ cat text.txt | gzip > text.gz && elmo prepare text.gz sentences.txt corpus --shards 2
    """
    if len(paths) < 2:
        context.fail("Missing argument 'OUTPUT': the corpus folder to write.")
    *texts, last = paths
    output = Path(last)
    from elmo.pretrain.prepare import prepare as make

    with interrupted_by_sigterm(), FileReport(None) as report:
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
                jobs=jobs,
                progress=report.show_stage,
            )
        except KeyboardInterrupt:
            print("elmo: interrupted; run the same command again to continue", file=sys.stderr)
            raise typer.Exit(130) from None
    counts = manifest["counts"]
    held = sum(shard["sentences"] for shard in manifest["heldout"])
    print(
        f"{output}: {counted(counts['sentences'], 'sentence')}, {counted(counts['tokens'], 'token')} in "
        f"{counted(len(manifest['train']), 'shard')}; {counted(held, 'sentence')} held out, "
        f"{counted(counts['duplicates'], 'duplicate')} left out; "
        f"{manifest['vocabulary']:,} of {counted(manifest['words'], 'word')} predicted",
        file=sys.stderr,
    )
