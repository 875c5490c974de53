"""`elmo analyse`: one of the paper's analyses ─▶ results, a table and a figure."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ThreadsOption, use_threads
from elmo.cli.progress import StageReport
from elmo.cli.training import ConfigOption, SetOption

DataOption = Annotated[
    Path, typer.Option("--data", metavar="FOLDER", help="A folder of datasets, each in a folder of its own.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(help="Number of training runs at once.  [default: one per core on a GPU, else 1]", min=1),
]
MinutesOption = Annotated[
    float | None,
    typer.Option(metavar="M", help="Stop after this many minutes. The same command continues.", min=0),
]


def analyse(
    name: Annotated[
        str,
        typer.Argument(
            help="tasks, layer-weighting, placement, neighbours, senses, pos, sample-efficiency, layer-weights, "
            "fine-tuning, state, anisotropy, similarity or trigram."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="The folder for results.json, table.md, figure.png and figure.svg.")],
    data: DataOption = Path(),
    config: ConfigOption = None,
    set: SetOption = None,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of training runs, shared by analyses.  [default: OUT/runs]"),
    ] = None,
    jobs: JobsOption = None,
    minutes: MinutesOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Run one of the paper's analyses.

    The default recipe is the paper's protocol with the English model of this package; --set model=MODEL chooses another
    model. The table, with the paper's figures next to ours, is also printed. After Ctrl-C, or --minutes, run the same
    command again: training runs, and other things that take long, are not computed again.

    \b
    Examples:
      $ elmo analyse pos tags --data datasets --set data=treebank --set model=model --set epochs=2
      $ elmo analyse neighbours play --data datasets --set corpus=text/train.txt --set vectors=none --set model=model
    """
    from elmo.analysis.from_paths import analyse as run
    from elmo.analysis.record import TABLE

    use_threads(threads)
    with StageReport() as report:
        record = run(
            name,
            data,
            out,
            config=config,
            settings=set or [],
            runs=runs,
            jobs=jobs,
            minutes=minutes,
            catch_signals=True,
            progress=report.show,
        )
    if record is None:
        print(f"elmo: {out}: interrupted. Run the same command again to continue", file=sys.stderr)
        raise typer.Exit(130)
    print((out / TABLE).read_text(encoding="utf-8"), end="")
