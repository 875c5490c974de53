"""METRICS ─▶ TENSORBOARD: what a run logs, as scalars in `OUT/tensorboard`."""

from pathlib import Path
from typing import Any

from elmo.errors import ConfigError

FOLDER = "tensorboard"


class TensorBoard:
    """Writes logged values as TensorBoard scalars until the `with` block ends."""

    def __init__(self, run: Path, step: int) -> None:
        """Continue after `step`: TensorBoard then hides what was logged later by an interrupted run."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "tensorboard is true, but TensorBoard is not installed: pip install 'elmo-torch[tensorboard]'"
            ) from None
        self._writer = SummaryWriter(str(run / FOLDER), purge_step=step)

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def logged(self, values: dict[str, Any]) -> None:
        """Write every value of one line of the metrics, except for the step and the time."""
        for name, value in values.items():
            if name not in ("step", "time") and value is not None:
                self._writer.add_scalar(name, value, values["step"])
