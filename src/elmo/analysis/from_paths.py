"""ONE CALL PER COMMAND, from paths: what `elmo analyse` and `elmo reproduce` do."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elmo.analysis.analysis import Progress, Workspace, analysis_named
from elmo.analysis.record import run_analysis
from elmo.config import build, merged, parse_assignments, read_toml
from elmo.training.interrupt import stopping

RUNS = "runs"


def analyse(
    name: str,
    data: str | Path,
    out: str | Path,
    *,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    runs: str | Path | None = None,
    jobs: int | None = None,
    catch_signals: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any] | None:
    """Run an analysis on a folder of datasets; OUT gets its results, table and figure.

    The config is the default, changed by the TOML file `config` and then by `settings` ("seeds=5"). `runs` is a folder
    of training runs that analyses share, by default OUT/runs. Results of the same config that are there already are not
    computed again. Return the content of results.json; None if a signal ended it early, and the same call continues.
    """
    analysis = analysis_named(name)
    values = read_toml(Path(config)) if config is not None else {}
    built = build(analysis.config, merged(values, parse_assignments(settings)))
    with stopping(catch_signals) as stop:
        workspace = Workspace(
            Path(data), Path(out), Path(runs) if runs is not None else Path(out) / RUNS, jobs, stop,
            progress or (lambda what, done, total: None),
        )  # fmt: skip
        return run_analysis(analysis, built, workspace)
