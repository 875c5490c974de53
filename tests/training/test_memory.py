"""Available memory and the peak of a process, read from files as Linux writes them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from elmo.training import memory


@pytest.mark.parametrize(
    ("line", "limit", "found"), [("0::/", None, 800), ("0::/a/b", 700, 250), ("0::/a/b", 2000, 800)]
)
def test_what_is_available_obeys_the_systems_figure_and_the_container(
    line: str, limit: int | None, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """800 KiB by the system; the group above may use `limit` KiB, uses 500, of which 50 are files in a cache."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n")
    (tmp_path / "self" / "cgroup").write_text(line + "\n")
    (tmp_path / "groups" / "a" / "b").mkdir(parents=True)
    (tmp_path / "groups" / "a" / "b" / "memory.max").write_text("max\n")
    if limit is not None:
        for name, value in (("max", limit * 1024), ("current", 500 * 1024)):
            (tmp_path / "groups" / "a" / f"memory.{name}").write_text(f"{value}\n")
        (tmp_path / "groups" / "a" / "memory.stat").write_text(f"anon 7\ninactive_file {50 * 1024}\n")
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path / "groups")
    assert memory.available(torch.device("cpu")) == found * 1024
    (tmp_path / "meminfo").unlink()
    assert memory.available(torch.device("cpu")) is None


def test_the_peak_of_memory_is_the_systems_figure_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    status = "Name:\tpython\nVmPeak:\t 9000 kB\nVmHWM:\t 1234 kB\nVmRSS:\t 1000 kB\n"
    for text, found in ((status, 1234 * 1024), (status.replace("VmHWM", "VmPTE"), None)):
        monkeypatch.setattr(Path, "read_text", lambda *_, text=text, **__: text)
        assert memory.peak(torch.device("cpu")) == found

    def unreadable(*_: Any, **__: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", unreadable)
    assert memory.peak(torch.device("cpu")) is None


def test_memory_of_a_gpu_that_an_earlier_run_freed_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch keeps it until it is asked to give it back: 3 of 10 bytes here."""
    free = [7]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: free.__setitem__(0, 10))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 20))
    assert memory.available(torch.device("cuda")) == 10
