"""ARRAYS ─▶ A FILE, through an unfinished run that survives being killed.

During a run, `OUT.part/` contains finished segments: the arrays of consecutive sentences (`N.npy`, N the number of the
first one) and their tokens (`N.json`, written last: a segment without it does not count). At the end they become one
file, and the folder is removed. So a run that was interrupted and resumed gives the same file.
"""

import json
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from elmo.embed.selection import Array
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.files import new_hdf5, refuse_existing, replacing, write_array, write_error

SEGMENT_BYTES = 32 << 20  # what is in memory at most
SEGMENT_SECONDS = 5.0  # what kill -9 can lose, besides what is being computed
SETTINGS = "settings.json"
SUFFIXES = {".hdf5": "hdf5", ".h5": "hdf5", ".parquet": "parquet", ".npz": "npz"}
FORMATS = ("hdf5", "parquet", "npz")

_OWN_NAME = re.compile(r"\d+\.(npy|json)|settings\.json|\..*\.tmp")  # the files of an unfinished run

Record = tuple[int, list[str], Array]  # number, tokens, array


def format_of(output: Path, asked: str | None) -> str:
    """The format asked for, or the one that the file's name says."""
    name = asked or SUFFIXES.get(output.suffix)
    if name not in FORMATS:
        raise ConfigError(f"{output}: format is {name or output.suffix!r}; expected one of {', '.join(FORMATS)}")
    if name == "parquet":
        _pyarrow()
    return name


class Store:
    """An output file in the making. A resumed run must have the same `settings` as the run it resumes."""

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
            self._compare_settings()
            for first in self._numbers():
                tokens, _ = self._segment(first)
                if first != self.sentences:
                    raise self._damaged(self.part / f"{first}.json", first, "the segment before it is missing")
                self.sentences += len(tokens)
                self.n_tokens += sum(map(len, tokens))
        else:  # now, not with the first segment: a disk that is full is noticed before anything is computed
            try:
                with replacing(self.part / SETTINGS) as path:
                    path.write_text(json.dumps(self.settings, indent=1), encoding="utf-8")
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
        """Write what was added to the disk if the latest segment is older than `SEGMENT_SECONDS`."""
        if time.monotonic() - self._flushed >= SEGMENT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what was added to the disk."""
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
        """Save what is done of a run that failed; how many sentences are saved. Without any, the folder is removed."""
        with suppress(ElmoError):
            self.flush()
        if not self.saved:
            shutil.rmtree(self.part, ignore_errors=True)
        return self.saved

    def finish(self, form: str, sentences: bool = True) -> None:
        """Make the one file: HDF5 and npz have an array "0", "1", … per sentence, Parquet a row."""
        self.flush()
        write = {"hdf5": _write_hdf5, "npz": _write_npz, "parquet": _write_parquet}[form]
        with replacing(self.output) as path:
            write(path, self, sentences)
        shutil.rmtree(self.part, ignore_errors=True)

    def records(self) -> Iterator[Record]:
        """The sentences on the disk, in order."""
        for first in self._numbers():
            tokens, values = self._segment(first)
            ends = np.cumsum([0, *map(len, tokens)])
            for k, words in enumerate(tokens):
                yield first + k, words, values[k] if self.pooled else values[..., ends[k] : ends[k + 1], :]

    def tokens(self) -> Iterator[list[str]]:
        """The tokens of the sentences on the disk, in order."""
        for first in self._numbers():
            yield from self._tokens(first)

    def sentence_to_index(self) -> str:
        """AllenNLP's table, as JSON: sentence (its tokens, a space between) ─▶ the number of its first line."""
        table: dict[str, str] = {}
        for number, tokens in enumerate(self.tokens()):
            table.setdefault(" ".join(tokens), str(number))
        return json.dumps(table)

    def _refuse_other_contents(self) -> None:
        """The folder of an unfinished run is removed in the end: it must not contain anything else."""
        try:
            names = [path.name for path in self.part.iterdir()] if self.part.exists() else []
        except OSError as error:
            raise write_error(self.part, error) from error
        if other := sorted(name for name in names if not _OWN_NAME.fullmatch(name)):
            raise DataError(f"{self.part}: contains {other[0]}, so it is not an unfinished run; move it away first")

    def _compare_settings(self) -> None:
        try:
            before = json.loads((self.part / SETTINGS).read_text(encoding="utf-8"))
            names = {**self.settings, **before}
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise DataError(f"{self.part / SETTINGS}: is damaged ({error}); remove {self.part} to start over") from None
        for name in names:
            now, then = self.settings.get(name), before.get(name)
            if now != then:
                raise ConfigError(f"{self.part}: {name} is {now!r}, but the run to resume has {then!r}")

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.part.glob("*.json") if path.stem.isdecimal())

    def _segment(self, first: int) -> tuple[list[list[str]], Array]:
        """The tokens and the values of a segment, checked against each other."""
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
