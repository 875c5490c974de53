"""Writing files safely: whole or not at all, never over something a user made, never by two processes at once."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from elmo.errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write; takes the place of `path` when all went well, vanishes when not."""
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


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; takes the name `path`, which must be free, when all went well, vanishes when not."""
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
    """The permissions that new files do not get (umask), which can be read by setting it only."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """A new HDF5 file, through a file of Python's: on a full disk HDF5's own driver takes the process down."""
    with path.open("wb+") as raw, h5py.File(raw, "w") as file:
        yield file


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Own an output file or folder while the block runs; refuse if another process owns it.

    The lock is a file beside `path`, so it works before `path` exists. The operating system releases it when the
    process ends, however it ends.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0)
        lock.acquire()
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
            Path(lock.lock_file).unlink()  # while it is held: who opened it meanwhile finds it gone and tries again
        lock.release()


def refuse_existing(path: Path) -> None:
    """Refuse an output that exists: nothing a user made is overwritten."""
    try:
        exists = path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be searched
        raise write_error(path, error) from error
    if exists:
        raise DataError(f"{path}: exists already; give another name, or remove it first")


def write_error(path: Path, error: Exception) -> DataError:
    """Why a file could not be written, in one line."""
    # HDF5 and safetensors wrap the system's error in their own and keep it in the text.
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
        return DataError(f"{path}: the disk is full; nothing was put in its place. Make room first")
    return DataError(f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})")
