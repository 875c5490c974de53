"""METRICS ─▶ TENSORBOARD: what a run logs, as scalars in `OUT/tensorboard`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from elmo.errors import ConfigError
from elmo.training.run import Run

FOLDER = "tensorboard"


@contextmanager
def tensorboard(run: Run, step: int) -> Iterator[None]:
    """Write everything that a run logs as TensorBoard scalars until the `with` block ends.

    The run continues after `step`: TensorBoard then hides what was logged later by an interrupted run.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "tensorboard is true, but TensorBoard is not installed: pip install 'elmo-torch[tensorboard]'"
        ) from None
    writer = SummaryWriter(str(run.folder / FOLDER), purge_step=step)

    def write(values: Mapping[str, Any]) -> None:
        for name, value in scalars(values):
            writer.add_scalar(name, value, values["step"])

    run.listeners.append(write)
    try:
        yield
    finally:
        run.listeners.remove(write)
        writer.close()


def scalars(values: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of one line of the metrics, with its name, except for the step and the time.

    A number inside a table or a list is named by the way to it: "mixes/input/weights/0".
    """
    if isinstance(values, Mapping):
        inner = [(key, value) for key, value in values.items() if name or key not in ("step", "time")]
    elif isinstance(values, Sequence):
        inner = [(str(number), value) for number, value in enumerate(values)]
    else:
        if values is not None:
            yield name, values
        return
    for key, value in inner:
        yield from scalars(value, f"{name}/{key}" if name else key)
