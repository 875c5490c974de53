"""CHECKPOINTS: everything that a run needs to continue as if it had never stopped; safetensors and JSON, no pickle.

    checkpoints/step-00001000/
        config.json, model.safetensors, …    the model; of a biLM, a model folder like any other
        training.safetensors                 the optimizer's state and other tensors
        training.json                        the step, running sums, the best score so far

Random numbers and the text of a step depend only on the seed and the step, so neither is saved.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.errors import WeightsError
from elmo.files import new_folder, replacing, write_error

TENSORS, FACTS = "training.safetensors", "training.json"
_STEP = re.compile(r"step-(\d{8,})")


class DamagedCheckpointError(WeightsError):
    """A checkpoint whose files cannot be read, or do not fit the run."""


@dataclass(frozen=True)
class Checkpoint:
    """The folder of one checkpoint."""

    path: Path

    @property
    def step(self) -> int:
        """The number of steps done."""
        return int(self.path.name.removeprefix("step-"))

    def facts(self) -> dict[str, Any]:
        """Read the facts that were given to `save`."""
        with self.reading():
            facts: dict[str, Any] = json.loads((self.path / FACTS).read_text(encoding="utf-8"))
            return facts

    def replace_facts(self, facts: Mapping[str, Any]) -> None:
        """Write other facts."""
        with replacing(self.path / FACTS) as temporary:
            temporary.write_text(_json(facts), encoding="utf-8")

    def tensors(self) -> dict[str, Tensor]:
        """Read the tensors that were given to `save`."""
        with self.reading(), safe_open(self.path / TENSORS, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn any error of reading the files into one line that says what to remove."""
        try:
            yield
        except DamagedCheckpointError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError, WeightsError) as error:
            closed = self._closed()
            if closed is not None:
                raise WeightsError(f"{closed}: may not be read by this user; change its permissions") from None
            what = str(error).split("\n")[0]
            raise DamagedCheckpointError(
                f"{self.path}: a damaged checkpoint ({type(error).__name__}: {what}). Remove this folder; --resume "
                f"then continues from the checkpoint before it, or starts over"
            ) from None

    def _closed(self) -> Path | None:
        """Return the first file that this user may not read: it is not damaged, and must not be removed."""
        if not os.access(self.path, os.R_OK | os.X_OK):
            return self.path
        return next((file for file in sorted(self.path.iterdir()) if not os.access(file, os.R_OK)), None)


def save(
    root: Path, step: int, fill: Callable[[Path], None], tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> Checkpoint:
    """Save a checkpoint, completely or not at all. `fill` writes the model. An existing one is left as it is."""
    path = root / f"step-{step:08d}"
    if not path.exists():
        with new_folder(path) as temporary:
            fill(temporary)
            save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, temporary / TENSORS)
            (temporary / FACTS).write_text(_json(facts), encoding="utf-8")
    return Checkpoint(path)


def _json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1) + "\n"


def all_of(root: Path) -> list[Checkpoint]:
    """Return the checkpoints of a run, oldest first."""
    paths = [path for path in root.glob("step-*") if _STEP.fullmatch(path.name)]
    return sorted((Checkpoint(path) for path in paths), key=lambda checkpoint: checkpoint.step)


def keep_last(root: Path, count: int, best: int | None) -> None:
    """Remove all but the last `count` checkpoints and the best one, and incomplete ones that a killed run left."""
    for half in root.glob(".step-*"):
        shutil.rmtree(half, ignore_errors=True)
    for checkpoint in all_of(root)[:-count]:
        if checkpoint.step != best:
            # Renamed first, so that an incomplete checkpoint never looks like a complete one.
            hidden = checkpoint.path.with_name(f".{checkpoint.path.name}.removed")
            try:
                checkpoint.path.rename(hidden)
            except OSError as error:
                raise write_error(checkpoint.path, error) from None
            shutil.rmtree(hidden, ignore_errors=True)  # what cannot be removed is tried again after the next checkpoint

