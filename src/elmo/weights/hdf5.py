"""AN HDF5 FILE ─▶ ITS ARRAYS, checked as they are read.

The file may come from anywhere. HDF5 can refer to other files (links, external storage, virtual datasets): refused,
since these could be any files of the reader. It can claim arrays that it does not have, or store them compressed: so
an array is allocated only after its size was compared with that of the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from elmo.errors import WeightsError

MAX_RATIO = 100  # of the size of all arrays to that of the file, if they are larger than UNSUSPICIOUS
UNSUSPICIOUS = 64 << 20  # bytes
# What h5py raises for a damaged file depends on where the damage is.
DAMAGED = (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, NotImplementedError, MemoryError)


class HDF5File:
    """The arrays of an HDF5 file, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: set[str] = set()
        try:
            self._bytes_left = max(UNSUSPICIOUS, MAX_RATIO * path.stat().st_size)
            self._file = h5py.File(path, "r")
        except FileNotFoundError:
            raise WeightsError(f"{path}: no such file") from None
        except DAMAGED as error:
            what = "is cut short" if "truncated" in str(error) else "is not an HDF5 file"
            raise WeightsError(f"{path}: {what}; expected a biLM's weights. Get the file again") from None

    def __enter__(self) -> "HDF5File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def rows(self, name: str) -> int:
        """Return the number of rows of a matrix."""
        with self._reading(name):
            shape = self._dataset(name).shape
        if shape is None or len(shape) != 2:
            raise WeightsError(f"{self.path}: {name!r} has shape {shape}; expected a matrix")
        rows: int = shape[0]
        return rows

    def array(self, name: str, *shape: int, because: str = "options.json") -> npt.NDArray[np.float32]:
        """Read an array of this shape; `because` says what requires it."""
        with self._reading(name):
            dataset = self._dataset(name)
            self._read.add(name)
            if dataset.shape != shape:
                raise WeightsError(
                    f"{self.path}: {name!r} has shape {dataset.shape}; {because} needs {shape}. "
                    f"Are the two files from the same model?"
                )
            self._refuse_claims(name, dataset)
            array: npt.NDArray[np.float32] = dataset.astype(np.float32)[...]
        with np.errstate(invalid="ignore"):
            if not np.isfinite(array.sum(dtype=np.float64)):
                raise WeightsError(f"{self.path}: {name!r} contains NaN or infinity; the weights are damaged")
        return array

    def datasets(self) -> dict[str, h5py.Dataset]:
        """Return all arrays of the file, not read yet, by name. Links are not followed."""
        found: dict[str, h5py.Dataset] = {}

        def add(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = item

        with self._reading("/"):
            self._file.visititems(add)
        return found

    def refuse_unread(self, prefixes: tuple[str, ...]) -> None:
        """Refuse a layer or a highway that the options do not mention, instead of ignoring it silently."""
        unread = sorted(name for name in self.datasets() if name.startswith(prefixes) and name not in self._read)
        if unread:
            raise WeightsError(
                f"{self.path}: {unread[0]!r} is not in options.json. Are the two files from the same model?"
            )

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Turn an error of h5py into one line."""
        try:
            yield
        except DAMAGED:
            raise WeightsError(f"{self.path}: {name!r} cannot be read; the file is damaged. Get it again") from None

    def _dataset(self, name: str) -> h5py.Dataset:
        """Return an array, not read yet."""
        found = self._file
        for part in name.split("/"):
            link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
            if link is not None and not isinstance(link, h5py.HardLink):
                raise WeightsError(f"{self.path}: {name!r} is a link, which could lead to another file; refused")
            found = None if link is None else found[part]
        if not isinstance(found, h5py.Dataset):
            raise WeightsError(
                f"{self.path}: no dataset {name!r}; options.json asks for it. Are the two files from the same model?"
            )
        if found.external or found.is_virtual:
            raise WeightsError(f"{self.path}: {name!r} has its values in another file; refused")
        return found

    def _refuse_claims(self, name: str, dataset: h5py.Dataset) -> None:
        """Refuse an array, before it is allocated, if the file cannot have the values of all arrays so far."""
        self._bytes_left -= dataset.size * np.dtype(np.float32).itemsize
        stored = dataset.id.get_storage_size()
        chunks = dataset.chunks or dataset.shape
        pieces = prod(-(-size // chunk) for size, chunk in zip(dataset.shape, chunks, strict=True))
        if self._bytes_left < 0 or pieces > stored:  # a piece that was never written is no byte, and takes time to read
            raise WeightsError(
                f"{self.path}: {name!r} has shape {dataset.shape}, which is too much for a file of "
                f"{self.path.stat().st_size:,} bytes; it is damaged, or made to fill the memory"
            )
