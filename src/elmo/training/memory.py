"""MEMORY: how much is available before a run, and how much it used at most."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def available(device: "torch.device") -> int | None:
    """Return the bytes that a new run can use on a device; None if the system does not say.

    Main memory includes file caches, which the system can free, and respects the limit of a container. Memory of a GPU
    that an earlier run of this process does not need any more is given back first.
    """
    if device.type == "cuda":
        from torch.cuda import empty_cache, mem_get_info

        empty_cache()
        return int(mem_get_info(device)[0])
    free = _field(_PROC / "meminfo", "MemAvailable:")
    return None if free is None else min([1024 * free, *_left_in_groups()])


def peak(device: "torch.device") -> int | None:
    """Return the peak memory of this process in bytes, of a GPU or of main memory; None if the system does not say."""
    if device.type == "cuda":
        from torch.cuda import max_memory_allocated

        return max_memory_allocated(device)
    most = _field(_PROC / "self" / "status", "VmHWM:")  # not getrusage: a child inherits the figure of its parent
    return None if most is None else 1024 * most


def _left_in_groups() -> list[int]:
    """Return what the limits of this process's control groups (version 2), and of those above them, leave."""
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
    """Return the number after a name, in a file of names and numbers."""
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
