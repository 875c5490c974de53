"""`elmo reproduce`: all analyses of the paper ─▶ one report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.analyse import JobsOption, MinutesOption
from elmo.cli.arguments import ThreadsOption, use_threads
from elmo.cli.progress import StageReport
from elmo.cli.training import SetOption


def reproduce(
    out: Annotated[Path, typer.Argument(help="The folder for the report and all results; report.html is the report.")],
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A folder of datasets, each in a folder of its own."),
    ] = None,
    configs: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Recipes: TOML files named after analyses, such as pos.toml."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model of all analyses.  [default: the packaged one]")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run this analysis. Can be given several times.")
    ] = None,
    set: SetOption = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run everything in miniature, on small invented datasets that are written first."),
    ] = False,
    jobs: JobsOption = None,
    minutes: MinutesOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Run all analyses of the paper, and write a report.

    The report is one HTML file with every table, figure, command, seed and machine. After Ctrl-C, or --minutes, run the
    same command again: what is finished is not computed again. An analysis whose data are missing is left out, with a
    message. A field begins with the name of its analysis: --set pos.seeds=5.

    \b
    Examples:
      $ elmo reproduce mini --quick --model model --only pos --only similarity
    """
    from elmo.analysis.from_paths import reproduce as run

    use_threads(threads)
    with StageReport() as progress:
        found = run(
            out,
            data,
            configs=configs,
            model=model,
            settings=set or [],
            only=only or [],
            quick=quick,
            jobs=jobs,
            minutes=minutes,
            catch_signals=True,
            progress=progress.show,
        )
    for name, problem in found.problems.items():
        print(f"elmo: {name}: {problem}", file=sys.stderr)
    print(f"{found.report}: the report", file=sys.stderr)
    if found.interrupted:
        raise typer.Exit(130)
    if found.problems:
        raise typer.Exit(2)
