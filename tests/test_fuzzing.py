"""A few dozen damaged files for every reader; and the fuzzer itself: it finds what readers must not do.

benchmarks/fuzz.py runs as many cases as one likes, in a process with limits; benchmarks/FUZZING.md has the figures.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from elmo.errors import DataError
from fuzzing import run
from fuzzing.cases import Files, Reader, Sandbox
from fuzzing.data_readers import task_readers, text_readers
from fuzzing.model_readers import model_readers
from fuzzing.mutations import changed_bytes, changed_json, changed_lines
from fuzzing.trained_tasks import task_folder_reader

READERS = {reader.name: reader for reader in [*text_readers(), *task_readers(), *model_readers(), task_folder_reader()]}
SEED, CASES = 1, 60


@pytest.mark.parametrize("name", READERS)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "sandbox")
    for case in range(CASES):
        assert sandbox.outcome(READERS[name], SEED, case) is None, case


@pytest.mark.parametrize("name", READERS)
def test_a_case_is_a_function_of_the_seed_and_its_number(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files = [[READERS[name].files(seed, case) for case in range(1, 6)] for seed in (3, 3, 4)]
    assert files[0] == files[1] != files[2]


@pytest.mark.parametrize("change", [changed_bytes, changed_json, changed_lines])
def test_most_changes_change_something(change: Callable[[Random, bytes], bytes]) -> None:
    data = b'{"a": [1, 2, {"b": "text"}], "c": null}'
    assert sum(change(Random(k), data) != data for k in range(100)) > 80


class Numbered(Reader):
    """A reader whose files have the number of the case in them."""

    def files(self, seed: int, case: int) -> Files:
        return {"number": bytes([case])}


def broken(in_case_7: Callable[[Path], object]) -> Reader:
    """Return a reader that refuses every second case, and does something wrong in case 7."""

    def read(folder: Path) -> None:
        (number,) = (folder / "number").read_bytes()
        if number == 7:
            in_case_7(folder)
        elif number % 2:
            raise DataError("odd")

    return Numbered("broken", (), lambda rng, files: files, read)


def left_behind(folder: Path) -> None:
    (folder.parent / "temporary" / "rest").write_bytes(b"")


def wrote(folder: Path) -> None:
    (folder.parent / "escaped").write_bytes(b"")


def died(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda _: {}["x"], "KeyError: 'x' "),
        (lambda _: bytearray(1 << 36), "MemoryError"),  # not 1 << 30: after other tests, so much may have become free
        (lambda _: sum(range(10**11)), "the process ended: more than 0.3 s of CPU time"),
        (lambda _: time.sleep(60), "the process ended: more than 1 s"),
        (left_behind, "left behind in the temporary folder"),
        (wrote, "wrote outside of its folder"),
        (died, "the process ended: signal 9"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_fuzzer_finds(wrong: Callable[[Path], object], what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SECONDS", 0.3)
    monkeypatch.setattr(run, "WAITING", 1.0 if "than 1 s" in what else 60.0)
    result = run.run(broken(wrong), 0, 8, seed=0)
    assert list(result.findings) == [7]
    assert result.findings[7].startswith(what)
    assert result.cases == 8


def test_valid_files_must_be_read(tmp_path: Path) -> None:
    def refuse(_: Path) -> Files:
        raise DataError("never")

    reader = Reader("refuses", ({"x": b""},), lambda rng, files: files, refuse)
    with pytest.raises(AssertionError, match="the valid files were refused: never"):
        Sandbox(tmp_path / "sandbox").outcome(reader, 0, 0)
