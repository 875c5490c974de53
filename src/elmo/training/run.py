"""THE FOLDER OF A RUN: its config, its metrics, its checkpoints and its result.

    run.json         the config, versions, command, and fingerprints of the files that were read
    metrics.jsonl    one JSON object per line, each with its step
    checkpoints/     see checkpoint.py
    model/           the result, written at the end

Both training loops begin and resume a run here, so they accept and refuse the same things with the same messages.
"""

import dataclasses
import json
import os
import platform
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmo import __version__
from elmo.config import differences
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.files import new_folder, replacing, write_error
from elmo.training import checkpoint
from elmo.training.checkpoint import Checkpoint

RECORD, METRICS, CHECKPOINTS, MODEL = "run.json", "metrics.jsonl", "checkpoints", "model"
RESULT = ("best_epoch", "scores")  # what the training of a task adds to the record at its end


@dataclasses.dataclass(frozen=True)
class Source:
    """A file or folder that a run reads: its path, and a fingerprint of its content."""

    path: str
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class Request:
    """Everything that a run's result depends on; equal requests give equal results."""

    task: str  # "pretrain", "finetune", or the name of a task
    config: Any  # a frozen dataclass
    sources: Mapping[str, Source]  # by name: "corpus", "data", "vectors", …
    may_change: tuple[str, ...] = ()  # the config's fields that may change when the run is resumed

    def values(self) -> dict[str, Any]:
        """Return the config as JSON would."""
        values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self.config)))
        return values


class Run:
    """The folder of one run, which may not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listeners: list[Callable[[Mapping[str, Any]], None]] = []  # called with every line of the metrics

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """Open the folder of a run that has begun."""
        if not (folder / RECORD).is_file():
            raise DataError(f"{folder}: no {RECORD} in it; expected the folder of a run")
        return cls(folder)

    # Begin or resume

    def refuse_used(self) -> None:
        """Refuse to begin in a folder that contains a run, what is left of one, or files that a run would replace."""
        if (self.folder / RECORD).exists():
            raise DataError(
                f"{self.folder} already contains a run. Use --resume to continue it, or choose another folder"
            )
        model, metrics = self.folder / MODEL, self.folder / METRICS
        there = {
            self.folder / CHECKPOINTS: bool(self.checkpoints()),
            model: model.exists() or model.is_symlink(),
            metrics: metrics.is_file(),
        }
        for path, exists in there.items():
            if exists:
                raise DataError(
                    f"{path}: exists already, without the {RECORD} of a run that could be resumed. Move it away, or "
                    f"choose another folder"
                )

    def begin(self, request: Request, **facts: Any) -> None:
        """Begin a new run: write its record."""
        self.refuse_used()
        record = {
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "versions": {
                "elmo-torch": __version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("torch", "numpy")},
            },
            "task": request.task,
            "sources": {name: dataclasses.asdict(source) for name, source in request.sources.items()},
            **facts,
            "config": request.values(),
        }
        self._write(record)

    def config_of(self, task: str) -> dict[str, Any]:
        """Return the config that a run of this task began with."""
        self.refuse_missing()
        record = self.record
        kinds = {"task": str, "sources": dict, "config": dict}
        if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()) or not all(
            isinstance(source, dict) and {"path", "fingerprint"} <= source.keys()
            for source in record["sources"].values()
        ):
            raise DataError(f"{self.folder / RECORD}: not the record of a run of this version. Choose another folder")
        if record["task"] != task:
            raise ConfigError(f"{self.folder} contains a run of {record['task']}, not of {task}. Choose another folder")
        config: dict[str, Any] = record["config"]
        return config

    def refuse_missing(self) -> None:
        """Refuse to resume where no run was begun."""
        if not (self.folder / RECORD).exists():
            raise DataError(f"{self.folder}: nothing to resume, no {RECORD} in it. Train without --resume first")

    def resume(self, request: Request) -> Checkpoint | None:
        """Return the last checkpoint of a run that began with an equal request; None if there is none yet."""
        self.refuse_missing()
        self.compare(request)
        saved = self.checkpoints()
        return saved[-1] if saved else None

    def compare(self, request: Request) -> None:
        """Refuse a request that differs from the one the run began with."""
        begun = self.config_of(request.task)
        record = self.record
        different = differences(without(request.values(), request.may_change), without(begun, request.may_change))
        if different:
            raise ConfigError(
                f"{self.folder}: the run was started with {different}. Give the same recipe (only "
                f"{', '.join(request.may_change)} may change), or choose another folder"
            )
        for name in {**request.sources, **record["sources"]}:
            asked, found = request.sources.get(name), record["sources"].get(name)
            if asked is None or found is None or asked.fingerprint != found["fingerprint"]:
                where = asked.path if asked is not None else found["path"]
                raise DataError(
                    f"{where}: not the {name} that the run in {self.folder} was started with; its content has changed "
                    f"since. Give the same {name}, or choose another folder"
                )

    def rewind(self, request: Request, step: int) -> None:
        """Continue after a step: remove later metrics and an earlier result, and record the config."""
        self.forget_after(step)
        record = {name: value for name, value in self.record.items() if name not in RESULT}
        self._write({**record, "config": request.values()})

    # What is in the folder

    @property
    def record(self) -> dict[str, Any]:
        """The content of run.json."""
        path = self.folder / RECORD
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: damaged ({error}). Restore it, or choose another folder") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}: not the record of a run. Choose another folder")
        return record

    def add(self, **facts: Any) -> None:
        """Add facts to the record."""
        self._write({**self.record, **facts})

    def _write(self, record: dict[str, Any]) -> None:
        _replace(self.folder / RECORD, json.dumps(record, indent=1) + "\n")

    def log(self, **values: Any) -> None:
        """Add a line to the metrics, and tell the listeners."""
        path = self.folder / METRICS
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise write_error(path, error) from None
        for listener in self.listeners:
            listener(values)

    def metrics(self) -> list[dict[str, Any]]:
        """Read all lines of the metrics, except for a line that was being written when the run was killed."""
        path = self.folder / METRICS
        try:
            lines = path.read_bytes().split(b"\n") if path.exists() else []
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
        return [_line(line, path, number) for number, line in enumerate(lines[:-1], 1)]

    def forget_after(self, step: int) -> None:
        """Remove the metrics of later steps: a resumed run logs them again."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        _replace(self.folder / METRICS, "".join(json.dumps(line) + "\n" for line in kept))

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints, oldest first."""
        return checkpoint.all_of(self.folder / CHECKPOINTS)

    def checkpoint(self, step: int) -> Checkpoint:
        """Return the checkpoint of a step."""
        saved = {one.step: one for one in self.checkpoints()}
        if step not in saved:
            raise WeightsError(f"{self.folder / CHECKPOINTS}: step {step}, the best one, is missing. Start over")
        return saved[step]

    def advice(self, best_step: int | None, *fields: str) -> str:
        """Say what to do after a loss that is not finite, or that diverged."""
        saved = self.checkpoints()
        good = [one for one in saved if one.step == best_step] or saved
        where = f"the last good checkpoint is {good[-1].path}" if good else "no checkpoint was saved before"
        return f"{where}. Try a lower {' or '.join(fields)}"

    def export(self, fill: Callable[[Path], None]) -> Path:
        """Write the result as `model/`; an older one is removed when the new one is in its place."""
        path, old = self.folder / MODEL, self.folder / f".{MODEL}.{os.getpid()}.old"
        for half in self.folder.glob(f".{MODEL}.*"):  # what a killed run left
            shutil.rmtree(half, ignore_errors=True)
        try:
            with new_folder(path) as temporary:
                try:
                    fill(temporary)
                except DataError as error:  # the user does not know the temporary name
                    raise DataError(str(error).replace(str(temporary), str(path))) from None
                if path.exists():
                    path.rename(old)  # not removed: half of a model would look like one
        except BaseException:
            if old.exists() and not path.exists():
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
        return path


def fingerprint_of_file(path: Path) -> str:
    """Return the size and the checksum of a file."""
    crc, size = 0, 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return f"{size}-{crc:08x}"


def fingerprint_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a checksum of the names, shapes and values of tensors."""
    crc = 0
    for name, tensor in sorted(tensors.items()):
        numbers = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        crc = zlib.crc32(numbers.numpy().data, zlib.crc32(f"{name} {tuple(tensor.shape)}".encode(), crc))
    return f"{crc:08x}"


def without(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Copy a nested table without the fields of these dotted names."""
    kept = dict(values)
    for name in names:
        first, _, rest = name.partition(".")
        if not rest:
            kept.pop(first, None)
        elif isinstance(kept.get(first), Mapping):
            kept[first] = without(kept[first], [rest])
    return kept


def _replace(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _line(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        values = json.loads(line)
        if isinstance(values, dict) and isinstance(values.get("step"), int):
            return values
    except ValueError:
        pass
    raise DataError(
        f"{path}: line {number} is damaged ({line[:40]!r}); expected a JSON object with a step. Remove the line"
    )
