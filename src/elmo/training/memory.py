"""MEMORY: what is available before a run, and what it used at most."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def available(device: "torch.device") -> int | None:
    """Bytes that a new run can use on a device; None where the system does not say.

    Of main memory this counts what the system can take back (file caches), and obeys the limit of a container.
    """
    if device.type == "cuda":
        from torch.cuda import mem_get_info

        return int(mem_get_info(device)[0])
    free = _field(_PROC / "meminfo", "MemAvailable:")
    return None if free is None else min([1024 * free, *_left_in_groups()])


def peak(device: "torch.device") -> int | None:
    """Bytes that this process used at most: of the GPU's memory, or of main memory; None if the system does not say."""
    if device.type == "cuda":
        from torch.cuda import max_memory_allocated

        return max_memory_allocated(device)
    most = _field(_PROC / "self" / "status", "VmHWM:")  # getrusage's figure is no use: a child inherits its parent's
    return None if most is None else 1024 * most


def _left_in_groups() -> list[int]:
    """What the limits of this process's control groups (version 2) leave; a group obeys those above it, too."""
    left = []
    for line in _text(_PROC / "self" / "cgroup").splitlines():
        number, _, path = line.partition("::")
        if number != "0":
            continue
        group = _CGROUP / path.lstrip("/")
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(_CGROUP))):
            most, used = _text(folder / "memory.max").strip(), _text(folder / "memory.current").strip()
            if most.isdecimal() and used.isdecimal():
                left.append(int(most) - int(used) + (_field(folder / "memory.stat", "inactive_file") or 0))
    return left


def _field(path: Path, name: str) -> int | None:
    """The number behind a name, in a file of names and numbers."""
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name:
            return int(words[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
