"""Safe writing of files: complete or not at all, never over a user's file, never by two processes at once."""

import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from filelock import BaseFileLock, FileLock, Timeout
from safetensors import SafetensorError

from elmo.errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path to write. It is renamed to `path` if the block succeeds, and removed if not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of `replacing` that killed processes have left. The caller has `locked` the path."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder to fill. It is renamed to `path`, which must not exist, or removed if the block fails."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        yield temporary
        withheld = _withheld()
        temporary.chmod(0o777 & ~withheld)
        for file in (path for path in temporary.rglob("*") if path.is_file()):
            file.chmod(0o666 & ~withheld)  # safetensors makes files that only their owner can read
            with file.open("rb") as written:
                os.fsync(written.fileno())
        temporary.rename(path)
    except (OSError, SafetensorError) as error:
        raise write_error(path, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _withheld() -> int:
    """Return the permissions that new files do not get (umask). The only way to read it is to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """Open a new HDF5 file through a Python file: on a full disk HDF5's own driver crashes the process."""
    with path.open("wb+") as raw, h5py.File(raw, "w") as file:
        yield file


def write_array(path: Path, values: npt.NDArray[Any]) -> None:
    """Write a .npy file."""
    write_array_pieces(path, values.dtype, values.shape, [values])


def write_array_pieces(
    path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...], pieces: Iterable[npt.NDArray[Any]]
) -> None:
    """Write a .npy file from pieces of consecutive rows, one in memory at a time.

    Not with np.save: on a full disk its error does not say so.
    """
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for piece in pieces:
            file.write(np.ascontiguousarray(piece).data)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Own an output file or folder while the block runs. If another process owns it, refuse, or `wait` for its end.

    The lock is a file beside `path`, so it works before `path` exists; links are followed, so that all names of a
    folder have one lock. The operating system releases it when the process ends, however it ends. One that is killed
    leaves the empty file behind; the next owner removes it. Nobody else may: between looking at it and removing it,
    another process could have become its owner.
    """
    try:
        lock = _acquired(Path(os.path.realpath(path)), -1 if wait else 0)
    except Timeout:
        raise DataError(
            f"{path}: another process is writing it. Wait until it ends, or choose another name"
        ) from None
    except OSError as error:
        raise write_error(path, error) from error
    try:
        yield
    finally:
        with suppress(OSError):
            # Before the lock is released: a process that waits for it finds the file gone, and tries again.
            Path(lock.lock_file).unlink()
        lock.release()


def _acquired(place: Path, timeout: float) -> BaseFileLock:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place.parent / f".{place.name}.lock", timeout=timeout)
        lock.acquire()
    except OSError as error:
        if isinstance(error, Timeout) or not place.is_dir():
            raise
        # Only the folder itself can be written, such as a volume that is mounted into a container.
        lock = FileLock(place / ".lock", timeout=timeout)
        lock.acquire()
    return lock


def optional_path(path: str | Path | None) -> Path | None:
    """Return a path that may be left out; `~` is the home folder."""
    return None if path is None else Path(path).expanduser()


def refuse_existing(path: Path) -> None:
    """Refuse an output that exists: no file of the user is overwritten."""
    try:
        exists = path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be searched
        raise write_error(path, error) from error
    if exists:
        raise DataError(f"{path}: exists already; give another name, or remove it first")


def write_error(path: Path, error: Exception) -> DataError:
    """Return the error for a file that could not be written."""
    # HDF5 and safetensors raise errors of their own, with the system's error in the text.
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
        return DataError(f"{path}: the disk is full; nothing was written. Free some space first")
    return DataError(f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})")
