"""ARRAYS ─▶ A FILE, through an unfinished run that survives being killed.

While it runs, `OUT.part/` holds finished segments: the arrays of consecutive sentences (`N.npy`, N the first one's
number) and their tokens (`N.json`, written last: a segment without it does not count). At the end they become one
file, put in place whole, and the folder goes. So an interrupted run that was resumed ends in the same file.
"""

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from elmo.embed.selection import Array
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.weights.atomic import replacing

SEGMENT_BYTES = 32 << 20
SUFFIXES = {".hdf5": "hdf5", ".h5": "hdf5", ".parquet": "parquet", ".npz": "npz"}
FORMATS = ("hdf5", "parquet", "npz")

Record = tuple[int, list[str], Array]  # number, tokens, array


def format_of(output: Path, asked: str | None) -> str:
    """The format asked for, or the one the file's name says."""
    name = asked or SUFFIXES.get(output.suffix)
    if name not in FORMATS:
        raise ConfigError(f"{output}: format is {name or output.suffix!r}; expected one of {', '.join(FORMATS)}")
    if name == "parquet":
        _pyarrow()
    return name


class Store:
    """An output in the making. `settings` is what a resumed run must have in common with the one it resumes."""

    def __init__(self, output: Path, settings: dict[str, Any], resume: bool = False) -> None:
        self.output = output
        self.part = output.with_name(output.name + ".part")
        self.pooled: bool = bool(settings.get("pool"))
        self._pending: list[Record] = []
        self._bytes = 0
        note = self.part / "settings.json"
        if output.exists():
            raise DataError(f"{output}: exists already; give another name, or remove it first")
        if note.exists():
            if not resume:
                raise DataError(f"{self.part}: an unfinished run; --resume goes on with it, or remove it to start anew")
            before = json.loads(note.read_text(encoding="utf-8"))
            for name in sorted({*before, *settings}):
                if before.get(name) != settings.get(name):
                    now, then = settings.get(name), before.get(name)
                    raise ConfigError(f"{self.part}: {name} is {now!r}, but the run to resume has {then!r}")
        else:
            with replacing(note) as path:
                path.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        self.done = [tokens for number in self._numbers() for tokens in self._tokens(number)]

    def add(self, tokens: list[str], array: Array) -> None:
        """The next sentence."""
        self._pending.append((len(self.done), tokens, array))
        self.done.append(tokens)
        self._bytes += array.nbytes
        if self._bytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Finish the segment: what was added until now is safe."""
        if not self._pending:
            return
        first = self._pending[0][0]
        arrays = [array for _, _, array in self._pending]
        with replacing(self.part / f"{first}.npy") as path, path.open("wb") as file:
            np.save(file, np.stack(arrays) if self.pooled else np.concatenate(arrays, axis=-2))
        with replacing(self.part / f"{first}.json") as path:
            path.write_text(json.dumps([tokens for _, tokens, _ in self._pending]), encoding="utf-8")
        self._pending, self._bytes = [], 0

    def finish(self, form: str, sentences: bool = True) -> None:
        """Make the one file: HDF5 and npz have an array "0", "1", … per sentence, Parquet a row."""
        self.flush()
        write = {"hdf5": _write_hdf5, "npz": _write_npz, "parquet": _write_parquet}[form]
        with replacing(self.output) as path:
            write(path, self, sentences)
        shutil.rmtree(self.part)

    def segments(self) -> Iterator[list[Record]]:
        """What is stored, a segment at a time."""
        for first in self._numbers():
            values, tokens = np.load(self.part / f"{first}.npy", mmap_mode="r"), self._tokens(first)
            if self.pooled:
                yield [(first + k, words, values[k]) for k, words in enumerate(tokens)]
                continue
            ends = np.cumsum([0, *map(len, tokens)])
            yield [(first + k, words, values[..., ends[k] : ends[k + 1], :]) for k, words in enumerate(tokens)]

    def sentence_to_index(self) -> str:
        """AllenNLP's table, as JSON: sentence (its tokens, a space between) ─▶ the number of its first line."""
        table: dict[str, str] = {}
        for number, tokens in enumerate(self.done):
            table.setdefault(" ".join(tokens), str(number))
        return json.dumps(table)

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.part.glob("*.json") if path.stem.isdecimal())

    def _tokens(self, first: int) -> list[list[str]]:
        tokens: list[list[str]] = json.loads((self.part / f"{first}.json").read_text(encoding="utf-8"))
        return tokens


def _write_hdf5(path: Path, store: Store, sentences: bool) -> None:
    with h5py.File(path, "w") as file:
        for segment in store.segments():
            for number, _, array in segment:
                file.create_dataset(str(number), data=array)
        if sentences:
            table = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
            table[0] = store.sentence_to_index()


def _write_npz(path: Path, store: Store, sentences: bool) -> None:
    with zipfile.ZipFile(path, "w") as archive:

        def put(name: str, array: Any) -> None:
            # A fixed date: equal runs give equal files.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)

        for segment in store.segments():
            for number, _, array in segment:
                put(str(number), array)
        if sentences:
            put("sentence_to_index", np.array([store.sentence_to_index()]))


def _write_parquet(path: Path, store: Store, sentences: bool) -> None:
    """Columns index, tokens, shape, values: the array row after row."""
    pa = _pyarrow()
    import pyarrow.parquet as parquet

    writer = None
    for segment in store.segments():
        kind = pa.from_numpy_dtype(segment[0][2].dtype)
        columns: dict[str, Any] = {"index": pa.array([number for number, _, _ in segment], pa.int64())}
        if sentences:
            columns["tokens"] = pa.array([tokens for _, tokens, _ in segment], pa.list_(pa.string()))
        columns["shape"] = pa.array([array.shape for _, _, array in segment], pa.list_(pa.int32()))
        columns["values"] = pa.array([np.ravel(array) for _, _, array in segment], pa.list_(kind))
        table = pa.table(columns)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is None:
        parquet.write_table(pa.table({"index": pa.array([], pa.int64())}), path)
    else:
        writer.close()


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ElmoError("Parquet needs pyarrow: pip install 'elmo-torch[parquet]'") from None
    return pyarrow
