"""A RUN'S FOLDER: what was asked for, with which versions, and what came of it, step by step.

    run.json         the resolved config, versions, command, corpus or data
    metrics.jsonl    one JSON object a line; each has its step
"""

import dataclasses
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmo import __version__
from elmo.errors import DataError
from elmo.files import replacing, write_error

if TYPE_CHECKING:
    import torch

RECORD, METRICS = "run.json", "metrics.jsonl"


class Run:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def begin(cls, folder: Path, config: Any, **facts: Any) -> "Run":
        """A new run; a folder that holds one already is left alone."""
        if (folder / RECORD).exists():
            raise DataError(f"{folder}: holds a run already; --resume goes on with it, or give a new name")
        versions = {name: version(name) for name in ("torch", "numpy")}
        record = {
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "versions": {"elmo-torch": __version__, "python": platform.python_version(), **versions},
            **facts,
            "config": dataclasses.asdict(config),
        }
        _replace(folder / RECORD, json.dumps(record, indent=1) + "\n")
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """A run that was begun."""
        if not (folder / RECORD).is_file():
            raise DataError(f"{folder}: no {RECORD} in it; expected the folder of a run")
        return cls(folder)

    @property
    def record(self) -> dict[str, Any]:
        """What was asked for."""
        record: dict[str, Any] = _json((self.folder / RECORD).read_text(encoding="utf-8"), str(self.folder / RECORD))
        return record

    def add(self, **facts: Any) -> None:
        """Add facts to the record."""
        _replace(self.folder / RECORD, json.dumps({**self.record, **facts}, indent=1) + "\n")

    def log(self, **values: Any) -> None:
        """Add a line to the metrics."""
        path = self.folder / METRICS
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise write_error(path, error) from None

    def metrics(self) -> list[dict[str, Any]]:
        """Every line of the metrics; one that was being written when the run was killed is left out."""
        path = self.folder / METRICS
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        return [_json(line, f"{path}: line {number}") for number, line in enumerate(lines[:-1], 1)]

    def forget_after(self, step: int) -> None:
        """Take back what was logged after a step: a resumed run does it again."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        _replace(self.folder / METRICS, "".join(json.dumps(line) + "\n" for line in kept))


def memory_peak(device: "torch.device") -> int | None:
    """Bytes that this process has held at most: of the GPU's memory, or in all; none where the system does not say."""
    if device.type == "cuda":
        from torch.cuda import max_memory_allocated

        return max_memory_allocated(device)
    try:  # getrusage's figure is no use: a child inherits its parent's
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    _, said, rest = status.partition("VmHWM:")
    return 1024 * int(rest.split()[0]) if said else None


def _replace(path: Path, text: str) -> None:
    """Write a file anew, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise DataError(f"{where} is damaged: {text[:40]!r} is not JSON; the run cannot be read") from None
