"""ONE CALL PER COMMAND, from paths: what `elmo analyse` and `elmo reproduce` do."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from elmo.analysis.analysis import ANALYSES, Progress, StoppedError, Workspace, analysis_named, build_config
from elmo.analysis.machine import command_line
from elmo.analysis.quick import quick_configs
from elmo.analysis.quick_data import write_data
from elmo.analysis.record import RESULTS, run_analysis
from elmo.analysis.report import Section, report
from elmo.analysis.sweep import Sweep
from elmo.config import merged, parse_assignments
from elmo.errors import ConfigError, ElmoError
from elmo.files import optional_path, replacing
from elmo.training.interrupt import stopping

RUNS, DATA, REPORT = "runs", "data", "report.html"


@dataclass(frozen=True)
class Reproduction:
    """The end of `reproduce`."""

    report: Path
    interrupted: bool  # the same call continues
    problems: Mapping[str, str]  # of the analyses that have no results, by name


def analyse(
    name: str,
    data: str | Path,
    out: str | Path,
    *,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    runs: str | Path | None = None,
    jobs: int | None = None,
    minutes: float | None = None,
    catch_signals: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any] | None:
    """Run an analysis on a folder of datasets; OUT gets its results, table and figure.

    The config is the default, changed by the TOML file `config` and then by `settings` ("seeds=5"). `runs` is a folder
    of training runs that analyses share, by default OUT/runs. Results of the same config that are there already are not
    computed again. Return the content of results.json; None if a signal, or the limit of `minutes`, ended it early, and
    the same call continues.
    """
    analysis, out = analysis_named(name), Path(out).expanduser()
    built = build_config(analysis, optional_path(config), parse_assignments(settings))
    with stopping(catch_signals, minutes) as stop:
        workspace = Workspace(
            Path(data).expanduser(), out, optional_path(runs) or out / RUNS, jobs, stop,
            progress or (lambda what, done, total: None),
        )  # fmt: skip
        return run_analysis(analysis, built, workspace)


def reproduce(
    out: str | Path,
    data: str | Path | None = None,
    *,
    configs: str | Path | None = None,
    model: str | None = None,
    settings: Iterable[str] = (),
    only: Sequence[str] = (),
    quick: bool = False,
    jobs: int | None = None,
    minutes: float | None = None,
    catch_signals: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Run all analyses, or those of `only`, and write OUT/report.html; the same call continues after an interruption.

    It is interrupted by a signal, with `catch_signals`, or after `minutes`.
    `data` is a folder of datasets. The config of an analysis is its default, changed by CONFIGS/NAME.toml if that
    exists, by `model`, and by `settings` ("pos.seeds=5"). With `quick`, everything is small, and the datasets are made
    here: OUT/data. An analysis that fails does not keep the others from running; the report says what was wrong. After
    an interruption, the report has every analysis that is finished, or whose training runs are.
    """
    out = Path(out).expanduser()
    if quick and (data is not None or configs is not None):
        raise ConfigError("--quick makes its own small datasets and configs; remove --data and --configs")
    if not quick and data is None:
        raise ConfigError("the folder of the datasets is missing: give --data FOLDER, or --quick")
    names = [analysis_named(name).name for name in only] or list(ANALYSES)
    built = _configs(names, optional_path(configs), model, settings, quick)
    if quick and not (out / DATA).exists():
        write_data(out / DATA)
    sections = {name: Section(analysis_named(name), None, out / name) for name in names}
    with stopping(catch_signals, minutes) as stop:
        shared = Workspace(
            optional_path(data) or out / DATA, out, out / RUNS, jobs, stop, _within(progress, "all tasks")
        )  # fmt: skip

        def run(name: str) -> None:
            shown = _within(progress, f"{names.index(name) + 1} of {len(names)}, {name}")
            workspace = replace(shared, out=out / name, progress=shown)
            sections[name] = _section(name, built[name], workspace)
            with replacing(out / REPORT) as temporary:
                temporary.write_text(report(list(sections.values()), command_line(), quick), encoding="utf-8")

        finished = [name for name in names if (out / name / RESULTS).exists()]
        rest = [name for name in names if name not in finished]
        for name in finished:
            run(name)
        _train_together(rest, built, shared)
        for name in rest:
            run(name)
    problems = {name: section.problem for name, section in sections.items() if section.record is None}
    return Reproduction(out / REPORT, interrupted=stop.is_set() and bool(problems), problems=problems)


def _section(name: str, config: Any, workspace: Workspace) -> Section:
    """Run an analysis, or read its results; without results, the section says why."""
    analysis = analysis_named(name)
    record, problem = None, "interrupted; the same command continues"
    read_only = analysis.cells is not None or (workspace.out / RESULTS).exists()  # if its training runs are finished
    if read_only or not workspace.stop.is_set():
        try:
            record = run_analysis(analysis, config, workspace)
        except ElmoError as error:
            problem = str(error)
    return Section(analysis, record, workspace.out, problem)


def _configs(
    names: Sequence[str], folder: Path | None, model: str | None, settings: Iterable[str], quick: bool
) -> dict[str, Any]:
    """Build all configs, before anything is run."""
    changes = parse_assignments(settings)
    for name in changes:
        if name not in names:
            raise ConfigError(f"--set {name}.…: expected the name of an analysis first, one of {', '.join(names)}")
    small = quick_configs() if quick else {}
    built = {}
    for name in names:
        analysis = analysis_named(name)
        file = folder / f"{name}.toml" if folder is not None else None
        over = dict(small.get(name, {}))
        if model is not None and any(field.name == "model" for field in fields(analysis.config)):
            over["model"] = model
        try:
            built[name] = build_config(
                analysis, file if file is not None and file.exists() else None, merged(over, changes.get(name, {}))
            )
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    return built


def _train_together(names: Sequence[str], configs: Mapping[str, Any], workspace: Workspace) -> None:
    """Train the tasks of all analyses in one sweep: no analysis waits for the last run of another.

    Whatever goes wrong here is met again, and reported, by the analysis that it belongs to.
    """
    sweep, cells = Sweep(workspace), {}
    for name in names:
        analysis = analysis_named(name)
        with suppress(ElmoError):
            if analysis.cells is not None:
                found = analysis.cells(configs[name], workspace)
                sweep.check(found)
                cells.update({f"{name}/{key}": cell for key, cell in found.items()})
    if cells:
        with suppress(ElmoError, StoppedError):
            sweep.run(cells)


def _within(progress: Progress | None, prefix: str) -> Progress:
    """Report the progress of one analysis among others."""

    def show(what: str, done: int, total: int) -> None:
        if progress is not None:
            progress(f"{prefix}: {what}", done, total)

    return show
