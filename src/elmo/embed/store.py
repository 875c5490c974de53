"""ARRAYS ─▶ A FILE, through an unfinished run that survives being killed.

While it runs, `OUT.part/` holds finished segments: the arrays of consecutive sentences (`N.npy`, N the first one's
number) and their tokens (`N.json`, written last: a segment without it does not count). At the end they become one
file, put in place whole, and the folder goes. So an interrupted run that was resumed ends in the same file.
"""

import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from elmo.embed.selection import Array
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.files import new_hdf5, refuse_existing, replacing, write_error

SEGMENT_BYTES = 32 << 20
SETTINGS = "settings.json"
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
        self.settings = settings
        self.pooled: bool = bool(settings.get("pool"))
        self._pending: list[Record] = []
        self._bytes = 0
        note = self.part / SETTINGS
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(output, error) from error
        refuse_existing(output)
        if note.exists():
            if not resume:
                raise DataError(f"{self.part}: an unfinished run; --resume goes on with it, or remove it to start anew")
            before = json.loads(note.read_text(encoding="utf-8"))
            for name in {**settings, **before}:
                if before.get(name) != settings.get(name):
                    now, then = settings.get(name), before.get(name)
                    raise ConfigError(f"{self.part}: {name} is {now!r}, but the run to resume has {then!r}")
        lengths = [len(tokens) for tokens in self.tokens()]
        self.sentences, self.n_tokens = len(lengths), sum(lengths)

    def add(self, tokens: list[str], array: Array) -> None:
        """The next sentence."""
        self._pending.append((self.sentences, tokens, array))
        self.sentences += 1
        self.n_tokens += len(tokens)
        self._bytes += array.nbytes
        if self._bytes >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Finish the segment: what was added until now is safe."""
        if self._pending:
            with self._or_say_how_to_go_on():
                self._write_segment()

    def _write_segment(self) -> None:
        if not (self.part / SETTINGS).exists():
            with replacing(self.part / SETTINGS) as path:
                path.write_text(json.dumps(self.settings, indent=1), encoding="utf-8")
        first = self._pending[0][0]
        arrays = [array for _, _, array in self._pending]
        values = np.stack(arrays) if self.pooled else np.concatenate(arrays, axis=-2)
        with replacing(self.part / f"{first}.npy") as path, path.open("wb") as file:
            # Not np.save: on a full disk it loses the reason.
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
            file.write(values.data)
        with replacing(self.part / f"{first}.json") as path:
            path.write_text(json.dumps([tokens for _, tokens, _ in self._pending]), encoding="utf-8")
        self._pending, self._bytes = [], 0

    def finish(self, form: str, sentences: bool = True) -> None:
        """Make the one file: HDF5 and npz have an array "0", "1", … per sentence, Parquet a row."""
        self.flush()
        write = {"hdf5": _write_hdf5, "npz": _write_npz, "parquet": _write_parquet}[form]
        with self._or_say_how_to_go_on(), replacing(self.output) as path:
            write(path, self, sentences)
        shutil.rmtree(self.part, ignore_errors=True)

    def records(self) -> Iterator[Record]:
        """What is stored, in order."""
        for first in self._numbers():
            values, tokens = np.load(self.part / f"{first}.npy", mmap_mode="r"), self._tokens(first)
            ends = np.cumsum([0, *map(len, tokens)])
            for k, words in enumerate(tokens):
                yield first + k, words, values[k] if self.pooled else values[..., ends[k] : ends[k + 1], :]

    def tokens(self) -> Iterator[list[str]]:
        """The tokens of the sentences that are safe, in order."""
        for first in self._numbers():
            yield from self._tokens(first)

    def sentence_to_index(self) -> str:
        """AllenNLP's table, as JSON: sentence (its tokens, a space between) ─▶ the number of its first line."""
        table: dict[str, str] = {}
        for number, tokens in enumerate(self.tokens()):
            table.setdefault(" ".join(tokens), str(number))
        return json.dumps(table)

    @contextmanager
    def _or_say_how_to_go_on(self) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            if (self.part / SETTINGS).exists():
                raise DataError(f"{error}; --resume goes on where it was") from error
            raise

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.part.glob("*.json") if path.stem.isdecimal())

    def _tokens(self, first: int) -> list[list[str]]:
        tokens: list[list[str]] = json.loads((self.part / f"{first}.json").read_text(encoding="utf-8"))
        return tokens


def _write_hdf5(path: Path, store: Store, sentences: bool) -> None:
    with new_hdf5(path) as file:
        for number, _, array in store.records():
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

        for number, _, array in store.records():
            put(str(number), array)
        if sentences:
            put("sentence_to_index", np.array([store.sentence_to_index()]))


def _write_parquet(path: Path, store: Store, sentences: bool) -> None:
    """Columns index, tokens, shape, values: the array row after row."""
    pa = _pyarrow()
    import pyarrow.parquet as parquet

    kind = pa.from_numpy_dtype(np.dtype(store.settings.get("dtype", "float32")))
    types = {"index": pa.int64(), "tokens": pa.list_(pa.string()), "shape": pa.list_(pa.int32())}
    types["values"] = pa.list_(kind)
    if not sentences:
        del types["tokens"]
    rows: list[dict[str, Any]] = []
    size = 0
    with parquet.ParquetWriter(path, pa.schema(types)) as writer:

        def put() -> None:
            writer.write_table(pa.table({name: pa.array([row[name] for row in rows], types[name]) for name in types}))
            rows.clear()

        for number, tokens, array in store.records():
            rows.append({"index": number, "tokens": tokens, "shape": array.shape, "values": np.ravel(array)})
            size += array.nbytes
            # Row groups go by size, not by segment: an interrupted run ends in the same bytes.
            if size >= SEGMENT_BYTES:
                put()
                size = 0
        if rows:
            put()


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ElmoError("Parquet needs pyarrow: pip install 'elmo-torch[parquet]'") from None
    return pyarrow
