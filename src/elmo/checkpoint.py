"""TRAINING ◀─▶ DISK: everything a run needs to go on as if it had never stopped; safetensors and JSON, nothing pickled.

    checkpoints/step-00001000/
        config.json, model.safetensors, …    a model folder like any other
        training.safetensors                 the optimiser's state, and what else is tensors
        training.json                        the step, the data, running sums, the best so far

What is random or read is a function of the seed and the step, so neither generators nor positions need saving.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.errors import WeightsError
from elmo.files import new_folder

TENSORS, FACTS = "training.safetensors", "training.json"
_STEP = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """A saved moment of a run."""

    path: Path

    @property
    def step(self) -> int:
        """How many steps were done."""
        return int(self.path.name.removeprefix("step-"))

    def facts(self) -> dict[str, Any]:
        """What `save` was given as facts."""
        try:
            facts: dict[str, Any] = json.loads((self.path / FACTS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise WeightsError(f"{self.path / FACTS}: cannot be read ({error}); remove this checkpoint") from None
        return facts

    def tensors(self) -> dict[str, Tensor]:
        """What `save` was given as tensors."""
        try:
            with safe_open(self.path / TENSORS, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"{self.path / TENSORS}: damaged ({error}); remove this checkpoint") from None


def save(
    root: Path, step: int, fill: Callable[[Path], None], tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> Checkpoint:
    """Save a step, whole or not at all; one that was saved before stays as it is. `fill` writes the model's files."""
    path = root / f"step-{step:08d}"
    if not path.exists():
        with new_folder(path) as temporary:
            fill(temporary)
            save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, temporary / TENSORS)
            (temporary / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return Checkpoint(path)


def all_of(root: Path) -> list[Checkpoint]:
    """The checkpoints of a run, oldest first."""
    paths = [path for path in root.glob("step-*") if _STEP.fullmatch(path.name)]
    return sorted((Checkpoint(path) for path in paths), key=lambda checkpoint: checkpoint.step)


def keep_last(root: Path, count: int, best: int | None) -> None:
    """Remove all but the last few checkpoints and the best one, and what a killed run left half-written."""
    for half in root.glob(".step-*"):
        shutil.rmtree(half, ignore_errors=True)
    for checkpoint in all_of(root)[:-count]:
        if checkpoint.step != best:
            # Out of sight first: half a checkpoint must not look like one.
            hidden = checkpoint.path.with_name(f".{checkpoint.path.name}.removed")
            checkpoint.path.rename(hidden)
            shutil.rmtree(hidden)

