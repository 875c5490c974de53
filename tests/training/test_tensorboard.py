"""Logged values as TensorBoard scalars, read again by TensorBoard's own reader."""

import builtins
from pathlib import Path
from typing import Any

import pytest

from elmo.errors import ConfigError
from elmo.training.run import Run
from elmo.training.tensorboard import tensorboard


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen = accumulator.EventAccumulator(str(run / "tensorboard"))
    seen.Reload()
    return {name: [(event.step, event.value) for event in seen.Scalars(name)] for name in seen.Tags()["scalars"]}


def test_every_number_of_a_line_is_a_scalar_but_the_step_and_the_time(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with tensorboard(run, 0):
        run.log(step=5, loss=2.5, backward_perplexity=None, time=1.7e9)
        run.log(step=10, loss=1.25, learning_rate=0.5, time=1.7e9)
    run.log(step=15, loss=1.0)  # the block has ended
    assert scalars(tmp_path) == {"loss": [(5, 2.5), (10, 1.25)], "learning_rate": [(10, 0.5)]}


def test_numbers_inside_tables_and_lists_are_named_by_the_way_to_them(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with tensorboard(run, 0):
        run.log(step=1, mixes={"input": {"weights": [0.25, 0.75], "gamma": 1.5}})
    assert scalars(tmp_path) == {
        "mixes/input/weights/0": [(1, 0.25)],
        "mixes/input/weights/1": [(1, 0.75)],
        "mixes/input/gamma": [(1, 1.5)],
    }


def test_a_resumed_run_hides_what_was_logged_after_its_step(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with tensorboard(run, 0):
        for step in (1, 2, 3):
            run.log(step=step, loss=float(step))
    with tensorboard(run, 2):
        run.log(step=3, loss=30.0)
    assert scalars(tmp_path)["loss"] == [(1, 1.0), (3, 30.0)]


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *arguments: Any, **settings: Any) -> Any:
        if name == "torch.utils.tensorboard":
            raise ImportError
        return original(name, *arguments, **settings)

    monkeypatch.setattr(builtins, "__import__", without)
    message = r"^tensorboard is true, .* pip install 'elmo-torch\[tensorboard\]'$"
    with pytest.raises(ConfigError, match=message), tensorboard(Run(tmp_path), 0):
        pass
    assert list(tmp_path.iterdir()) == []
