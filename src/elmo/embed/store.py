"""ARRAYS ─▶ A FILE, by a run that can be killed at any time and resumed.

During a run, `OUT.part/` contains finished segments: the arrays of consecutive sentences (`N.npy`, N the number of the
first one) and their tokens (`N.json`, written last: a segment without it does not count). At the end they become one
file, and the folder is removed. So a run that was interrupted and resumed gives the same file.
"""

import json
import re
import shutil
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from elmo.embed.selection import Array
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.files import new_hdf5, refuse_existing, replacing, write_array, write_error

SEGMENT_BYTES = 32 << 20  # of arrays in memory
SEGMENT_SECONDS = 5.0  # between segments: the most that kill -9 can lose, besides the present window
SETTINGS = "settings.json"
SUFFIXES = {".hdf5": "hdf5", ".h5": "hdf5", ".parquet": "parquet", ".npz": "npz"}
FORMATS = ("hdf5", "parquet", "npz")

_OWN_NAME = re.compile(r"\d+\.(npy|json)|settings\.json|\..*\.tmp")  # the files of an unfinished run

Record = tuple[int, list[str], Array]  # number, tokens, array


def format_of(output: Path, asked: str | None) -> str:
    """Return the format that was asked for, or else the one of the file's suffix."""
    name = asked or SUFFIXES.get(output.suffix)
    if name not in FORMATS:
        raise ConfigError(f"{output}: format is {name or output.suffix!r}; expected one of {', '.join(FORMATS)}")
    if name == "parquet":
        _pyarrow()
    return name


class Store:
    """An unfinished output file. A resumed run must have the same `settings` as the run that it resumes."""

    def __init__(self, output: Path, settings: dict[str, Any], resume: bool = False) -> None:
        self.output = output
        self.part = output.with_name(output.name + ".part")
        self.settings = settings
        self.pooled: bool = bool(settings.get("pool"))
        self._pending: list[Record] = []
        self._bytes = 0
        self._flushed = time.monotonic()
        refuse_existing(output)
        self._refuse_other_contents()
        self.sentences = self.n_tokens = 0
        if self._numbers():
            if not resume:
                raise DataError(
                    f"{self.part}: contains an unfinished run. Use --resume to continue it, or remove it to start over"
                )
            compare_settings(self.part / SETTINGS, self.settings)
            for first in self._numbers():
                tokens, _ = self._segment(first)
                if first != self.sentences:
                    raise self._damaged(self.part / f"{first}.json", first, "the segment before it is missing")
                self.sentences += len(tokens)
                self.n_tokens += sum(map(len, tokens))
        else:  # now, not with the first segment: a full disk is noticed before anything is computed
            try:
                write_settings(self.part / SETTINGS, self.settings)
            except DataError:
                with suppress(OSError):
                    self.part.rmdir()
                raise
        self.saved = self.sentences  # sentences on the disk

    def add(self, tokens: list[str], array: Array) -> None:
        """Add the next sentence."""
        self._pending.append((self.sentences, tokens, array))
        self.sentences += 1
        self.n_tokens += len(tokens)
        self._bytes += array.nbytes
        if self._bytes >= SEGMENT_BYTES:
            self.flush()

    def flush_if_due(self) -> None:
        """Write the pending sentences to the disk if the last segment is older than `SEGMENT_SECONDS`."""
        if time.monotonic() - self._flushed >= SEGMENT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the pending sentences to the disk."""
        if self._pending:
            self._write_segment()
            self._pending, self._bytes, self.saved = [], 0, self.sentences
        self._flushed = time.monotonic()

    def _write_segment(self) -> None:
        first = self._pending[0][0]
        arrays = [array for _, _, array in self._pending]
        values = np.stack(arrays) if self.pooled else np.concatenate(arrays, axis=-2)
        write_array(self.part / f"{first}.npy", values)
        with replacing(self.part / f"{first}.json") as path:
            path.write_text(json.dumps([tokens for _, tokens, _ in self._pending]), encoding="utf-8")

    def save(self) -> int:
        """Save the finished sentences of a failed run; return their number. If there are none, remove the folder."""
        with suppress(ElmoError):
            self.flush()
        if not self.saved:
            shutil.rmtree(self.part, ignore_errors=True)
        return self.saved

    def finish(self, form: str, sentences: bool = True) -> None:
        """Write the output file: HDF5 and npz have an array "0", "1", … per sentence, Parquet a row."""
        self.flush()
        write = {"hdf5": _write_hdf5, "npz": _write_npz, "parquet": _write_parquet}[form]
        with replacing(self.output) as path:
            write(path, self, sentences)
        shutil.rmtree(self.part, ignore_errors=True)

    def records(self) -> Iterator[Record]:
        """Yield the sentences on the disk, in order."""
        for first in self._numbers():
            tokens, values = self._segment(first)
            ends = np.cumsum([0, *map(len, tokens)])
            for k, words in enumerate(tokens):
                yield first + k, words, values[k] if self.pooled else values[..., ends[k] : ends[k + 1], :]

    def tokens(self) -> Iterator[list[str]]:
        """Yield the tokens of the sentences on the disk, in order."""
        for first in self._numbers():
            yield from self._tokens(first)

    def sentence_to_index(self) -> str:
        """Return AllenNLP's table as JSON: sentence (tokens joined by spaces) ─▶ the number of its first line."""
        table: dict[str, str] = {}
        for number, tokens in enumerate(self.tokens()):
            table.setdefault(" ".join(tokens), str(number))
        return json.dumps(table)

    def _refuse_other_contents(self) -> None:
        """Refuse a folder with other files: the folder of an unfinished run is removed in the end."""
        try:
            names = [path.name for path in self.part.iterdir()] if self.part.exists() else []
        except OSError as error:
            raise write_error(self.part, error) from error
        if other := sorted(name for name in names if not _OWN_NAME.fullmatch(name)):
            raise DataError(f"{self.part}: contains {other[0]}, so it is not an unfinished run; move it away first")

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.part.glob("*.json") if path.stem.isdecimal())

    def _segment(self, first: int) -> tuple[list[list[str]], Array]:
        """Read the tokens and the values of a segment, and check that they match."""
        tokens = self._tokens(first)
        path = self.part / f"{first}.npy"
        try:
            values: Array = np.load(path, mmap_mode="r", allow_pickle=False)
            rows = len(tokens) if self.pooled else sum(map(len, tokens))
            found = values.shape[0 if self.pooled else -2]
        except (OSError, ValueError, EOFError, IndexError, AttributeError) as error:
            raise self._damaged(path, first, error) from None
        if found != rows:
            raise self._damaged(path, first, f"{found} rows, {rows} expected")
        return tokens, values

    def _tokens(self, first: int) -> list[list[str]]:
        path = self.part / f"{first}.json"
        try:
            tokens: list[list[str]] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(path, first, error) from None
        if not isinstance(tokens, list) or not all(
            isinstance(sentence, list) and all(isinstance(word, str) for word in sentence) for sentence in tokens
        ):
            raise self._damaged(path, first, "expected a list of lists of words")
        return tokens

    def _damaged(self, path: Path, first: int, why: object) -> DataError:
        return DataError(
            f"{path}: is damaged ({why}). Remove {first}.json and all higher numbers to resume before it, or remove "
            f"{self.part} to start over"
        )


def write_settings(path: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a run."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(settings, indent=1), encoding="utf-8")


def compare_settings(path: Path, settings: dict[str, Any]) -> None:
    """Refuse to resume the run in the folder of `path` if it was begun with other settings."""
    part = path.parent
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        names = {**settings, **before}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: is damaged ({error}); remove {part} to start over") from None
    for name in names:
        now, then = settings.get(name), before.get(name)
        if now != then:
            raise ConfigError(f"{part}: {name} is {now!r}, but the run to resume has {then!r}")


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
    write_parquet(path, store.records(), store.settings.get("dtype", "float32"), sentences)


def write_parquet(
    path: Path, records: Iterable[Record], dtype: str, sentences: bool = True, metadata: dict[str, str] | None = None
) -> None:
    """Write the columns index, tokens (unless `sentences` is False), shape and values (the array, flattened)."""
    pa = _pyarrow()
    import pyarrow.parquet as parquet

    kind = pa.from_numpy_dtype(np.dtype(dtype))
    types = {"index": pa.int64(), "tokens": pa.list_(pa.string()), "shape": pa.list_(pa.int32())}
    types["values"] = pa.list_(kind)
    if not sentences:
        del types["tokens"]
    rows: list[dict[str, Any]] = []
    size = 0
    schema = pa.schema(types, metadata)
    with parquet.ParquetWriter(path, schema) as writer:

        def put() -> None:
            columns = [pa.array([row[name] for row in rows], types[name]) for name in types]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            rows.clear()

        for number, tokens, array in records:
            rows.append({"index": number, "tokens": tokens, "shape": array.shape, "values": np.ravel(array)})
            size += array.nbytes
            # Row groups depend on the size, not on segments: an interrupted run gives the same bytes.
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
