"""Processes of seeds that end in other ways than with a score."""

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from elmo.errors import DataError, ElmoError
from elmo.training.run import Request, Run
from elmo.training.seeds import train_seeds


@dataclass(frozen=True)
class Config:
    seed: int = 0


def request(seed: int) -> Request:
    return Request("ner", Config(seed), {})


def work(seed: int, folder: Path, resume: bool, stop: threading.Event) -> None:
    """Seed 0 is scored; 1 is refused, 2 crashes, 3 is killed, 4 ends without a score."""
    if seed == 1:
        raise DataError("data.txt: not here")
    if seed == 2:
        raise ValueError("unexpected")
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    run = Run(folder)
    run.begin(request(seed))
    print(f"seed {seed} resumed: {resume}")
    if seed == 0:
        run.log(step=1, train_seconds=1.0, dev_seconds=0.5, memory=None)
        run.add(scores={"dev": {"f1": 12.5}})


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (1, r"^seed 1: data\.txt: not here \(its complete output is in .*/seed-1/log\.txt\)$"),
        (2, r"^seed 2: ValueError: unexpected \(its complete output is in .*/seed-2/log\.txt\)$"),
        (3, r"^seed 3: its process was killed by signal 9, possibly because memory ran out\. See .*/seed-3/log\.txt$"),
        (4, r"^seed 4: its process was interrupted\. Run the same command again to continue$"),
    ],
)
def test_a_seed_that_does_not_end_well_is_named(seed: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(ElmoError, match=message):
        train_seeds(work, {seed: request(seed)}, tmp_path)
    assert not (tmp_path / "report.json").exists()


def test_what_a_seed_prints_is_in_its_log(tmp_path: Path) -> None:
    seen: list[int] = []
    report = train_seeds(work, {0: request(0)}, tmp_path, progress=lambda logs: seen.append(len(logs[0])))
    assert report is not None
    assert report["scores"] == {"dev": {"f1": {"mean": 12.5, "sd": 0.0}}}
    assert (tmp_path / "seed-0" / "log.txt").read_text() == "seed 0 resumed: False\n"
    assert seen[-1] == 1
    again = train_seeds(work, {0: request(0)}, tmp_path)  # is not trained again: that would be refused
    assert again == report


def test_a_stop_ends_without_a_report(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert train_seeds(work, {0: request(0)}, tmp_path, stop=stop) is None
    assert list(tmp_path.iterdir()) == []
