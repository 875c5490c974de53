"""A run's folder: begun once, logged line by line, whatever moment it was killed in."""

import json
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.errors import DataError
from elmo.run import Run, memory_peak


@dataclass(frozen=True)
class Part:
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Config:
    rate: float = 0.2
    negatives: int | None = None
    part: Part = field(default_factory=Part)


def test_a_new_run_records_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/elmo", "pretrain", "corpus", "out"])
    folder = tmp_path / "deep" / "run"
    run = Run.begin(folder, Config(), corpus="corpus", corpus_digest="0123")
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert record == {
        "command": ["elmo", "pretrain", "corpus", "out"],
        "versions": {
            "elmo-torch": elmo.__version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            "torch": version("torch"),
            "numpy": np.__version__,
        },
        "corpus": "corpus",
        "corpus_digest": "0123",
        "config": {"rate": 0.2, "negatives": None, "part": {"sizes": [1, 2]}},
    }
    assert record["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert run.record == record
    assert Run.open(folder).record == record
    assert run.metrics() == []


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Run.begin(folder, Config(rate=0.1)).log(step=1)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DataError) as refused:
        Run.begin(folder, Config(rate=0.3))
    assert str(refused.value) == f"{folder}: holds a run already; --resume goes on with it, or give a new name"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_of_other_things_may_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    Run.begin(tmp_path, Config())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "run.json"]


@pytest.mark.parametrize("name", ["none", "file"])
def test_a_folder_without_a_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError) as refused:
        Run.open(tmp_path / name)
    assert str(refused.value) == f"{tmp_path / name}: no run.json in it; expected the folder of a run"


def test_facts_are_added_to_the_record(tmp_path: Path) -> None:
    run = Run.begin(tmp_path, Config(), corpus="a")
    before = run.record
    run.add(best=39.7, corpus="b")
    assert run.record == {**before, "best": 39.7, "corpus": "b"}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_what_is_logged_is_read_again_to_the_bit(tmp_path: Path) -> None:
    run = Run.begin(tmp_path, Config())
    lines = [
        {"step": 1, "loss": 0.1 + 0.2, "time": 1.7e9},
        {"step": 2, "loss": 1e-300, "backward": None, "text": "zwei\nZeilen \u2028 \x85 ü"},
        {"step": 3, "loss": float("inf")},
    ]
    for line in lines:
        run.log(**line)
    assert Run.open(tmp_path).metrics() == lines


@pytest.mark.parametrize("cut", range(1, 27))
def test_a_line_that_was_being_written_is_left_out(tmp_path: Path, cut: int) -> None:
    run = Run.begin(tmp_path, Config())
    for step in (1, 2):
        run.log(step=step, word="ü", loss=0.5)
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert run.metrics() == [{"step": 1, "word": "ü", "loss": 0.5}]


def test_after_half_a_line_a_resumed_run_logs_whole_ones(tmp_path: Path) -> None:
    """As a training resumes: what came after its checkpoint is forgotten, half a line with it, then it goes on."""
    run = Run.begin(tmp_path, Config())
    for step in (1, 2, 3):
        run.log(step=step)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    run.forget_after(2)
    run.log(step=3, again=True)
    assert run.metrics() == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]


@pytest.mark.parametrize(("step", "kept"), [(0, []), (15, [10]), (20, [10, 20, 20]), (99, [10, 20, 20, 30])])
def test_what_came_after_a_step_is_forgotten(tmp_path: Path, step: int, kept: list[int]) -> None:
    run = Run.begin(tmp_path, Config())
    for number in (10, 20, 20, 30):  # a step may have a line of training and one of evaluation
        run.log(step=number, loss=1 / 3)
    run.forget_after(step)
    assert [line["step"] for line in run.metrics()] == kept
    assert all(line["loss"] == 1 / 3 for line in run.metrics())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "run.json"]


def test_to_forget_where_nothing_was_logged_is_no_mistake(tmp_path: Path) -> None:
    run = Run.begin(tmp_path, Config())
    run.forget_after(5)
    assert run.metrics() == []
    run.log(step=6)
    assert run.metrics() == [{"step": 6}]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    run = Run.begin(tmp_path, Config())
    run.log(step=1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("{not json\n")
    run.log(step=2)
    with pytest.raises(DataError, match=r"metrics\.jsonl.*2"):
        run.metrics()


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    run = Run.begin(tmp_path, Config())
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match=r"run\.json"):
        run.record  # noqa: B018


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file.*"):
        Run.begin(tmp_path / "file" / "run", Config())


def test_the_peak_of_memory_is_the_systems_figure_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    status = "Name:\tpython\nVmPeak:\t 9000 kB\nVmHWM:\t 1234 kB\nVmRSS:\t 1000 kB\n"
    for text, found in ((status, 1234 * 1024), (status.replace("VmHWM", "VmPTE"), None)):
        monkeypatch.setattr(Path, "read_text", lambda *_, text=text, **__: text)
        assert memory_peak(torch.device("cpu")) == found

    def unreadable(*_: Any, **__: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", unreadable)
    assert memory_peak(torch.device("cpu")) is None
