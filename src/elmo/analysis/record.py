"""THE FILES OF AN ANALYSIS: it is run, or read if it was run before, and its table and figure are written.

OUT/results.json    the results, with the config, the command, the machine and the time
OUT/table.md        the table
OUT/figure.png      the picture, where there is one; also figure.svg
"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmo.analysis.analysis import Analysis, StoppedError, Workspace
from elmo.analysis.figures import require_matplotlib, write_figure
from elmo.analysis.machine import command_line, machine
from elmo.config import differences
from elmo.errors import ConfigError, DataError
from elmo.files import locked, replacing

RESULTS, TABLE, FIGURE = "results.json", "table.md", "figure"


def run_analysis(analysis: Analysis, config: Any, workspace: Workspace) -> dict[str, Any] | None:
    """Run an analysis, or read its results if they are there; write all its files."""
    if analysis.figure is not None:
        require_matplotlib()  # now, not after hours of training
    asked = json.loads(json.dumps(asdict(config)))
    with locked(workspace.out):
        record = read_record(analysis, workspace.out)
        if record is not None and record["config"] != asked:
            raise ConfigError(
                f"{workspace.out}: contains results of another config ({differences(asked, record['config'])}). Give "
                f"the same config, or choose another folder"
            )
        if record is None:
            began = time.perf_counter()
            try:
                results = analysis.run(config, workspace)
            except StoppedError:
                return None
            record = {
                "analysis": analysis.name,
                "command": command_line(),
                "machine": machine(),
                "seconds": round(time.perf_counter() - began, 1),
                "config": asked,
                "results": results,
            }
            _write(workspace.out / RESULTS, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        _write(workspace.out / TABLE, analysis.table(record["results"]))
        if analysis.figure is not None:
            write_figure(analysis.figure, record["results"], workspace.out / FIGURE)
    return record


def read_record(analysis: Analysis, out: Path) -> dict[str, Any] | None:
    """Read the results of an analysis; None if there are none yet."""
    path = out / RESULTS
    if not path.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if record["analysis"] == analysis.name and isinstance(record["config"], dict) and "results" in record:
            return record
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}). Remove it, and it is computed again") from None
    raise DataError(f"{path}: results of {record['analysis']}, not of {analysis.name}. Choose another folder")


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
