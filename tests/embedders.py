"""One small model as an Embedder, as files and as a NumPy reference; and the command `elmo`, run here or elsewhere."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import h5py
import numpy as np
import pyarrow.parquet as parquet
import pytest
from numpy.typing import NDArray

from elmo.cli import main
from elmo.embed.embedder import Embedder
from elmo.embed.warm_up import TEXT
from elmo.weights import bilm_tf
from elmo.weights.folder import Pretrained, write
from models import write_published
from numpy_reference import Options, Reference, State, random_weights

OPTIONS: Options = {
    "lstm": {
        "cell_clip": 3,
        "dim": 12,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 5,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 3},
        "filters": [[1, 4], [2, 3], [4, 5]],
        "max_characters_per_token": 20,
        "n_characters": 262,
        "n_highway": 1,
    },
}
N_LAYERS, DIM = 3, 10  # L + 1 and 2D
WEIGHTS = random_weights(OPTIONS, np.random.default_rng(7))
REFERENCE = Reference(OPTIONS, WEIGHTS)

# A blank line, a duplicate, slashes, bytes that are not ASCII, a word over 18 bytes, an apostrophe for the tokenizer.
LINES = [
    "The cat sat on the mat.",
    "",
    "and/or a/b 1/2",
    "The cat sat on the mat.",
    "naïve 日本語 🙂 !",
    "an unquestionably-overlong-word isn't cut elsewhere",
    "x",
]


def pretrained() -> Pretrained:
    with TemporaryDirectory() as folder:
        return Pretrained(bilm_tf.read(*write_published(Path(folder), OPTIONS, WEIGHTS)))


def embedder(**settings: Any) -> Embedder:
    return Embedder(pretrained(), **settings)


def write_model(folder: Path) -> Path:
    """A model folder."""
    write(pretrained(), folder)
    return folder


def fresh(sentence: Sequence[str]) -> NDArray[np.float64]:
    """What the reference says of a sentence alone, (L+1, T, 2D)."""
    return REFERENCE.layers(sentence)[0]


def warm_reference() -> State:
    """The state after the warm-up text, by the reference."""
    state = None
    for line in TEXT:
        _, state = REFERENCE.layers(line.split(), state)
    assert state is not None
    return state


def assert_close(ours: NDArray[Any], theirs: NDArray[Any], tolerance: float = 1e-5) -> None:
    assert ours.shape == theirs.shape  # broadcasting would hide a missing axis
    assert np.abs(ours - theirs).max(initial=0.0) < tolerance


FLOAT32_SUMS = 3e-5  # the scores of a network, summed in another order in float32; relative to the largest one


def assert_near(ours: NDArray[Any], theirs: NDArray[Any], share: float = FLOAT32_SUMS) -> None:
    """Check that no two numbers differ by more than a share of the largest one."""
    assert ours.shape == theirs.shape
    largest = np.abs(theirs).max(initial=0.0)
    assert np.abs(ours - theirs).max(initial=0.0) <= share * largest, f"the largest number is {largest}"


def assert_all_close(ours: list[NDArray[Any]], theirs: list[NDArray[Any]], tolerance: float = 1e-5) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, tolerance)


def assert_same_bits(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


def read_arrays(path: Path) -> tuple[list[NDArray[Any]], dict[str, str] | None]:
    """The arrays of a file that was written, by number; and which number each sentence has, unless it forgot them."""
    if path.suffix == ".parquet":
        return _read_parquet(path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            found = dict(file.items())
    else:
        with h5py.File(path) as file:
            found = {name: file[name][...] for name in file}
    table = found.pop("sentence_to_index", None)
    assert set(found) == {str(number) for number in range(len(found))}
    arrays = [found[str(number)] for number in range(len(found))]
    if table is None:
        return arrays, None
    assert table.shape == (1,)
    return arrays, json.loads(table[0])


def _read_parquet(path: Path) -> tuple[list[NDArray[Any]], dict[str, str] | None]:
    table = parquet.read_table(path)
    rows = table.to_pylist()
    assert [row["index"] for row in rows] == list(range(len(rows)))
    kind = table.schema.field("values").type.value_type.to_pandas_dtype()
    arrays = [np.array(row["values"], dtype=kind).reshape(row["shape"]) for row in rows]
    if "tokens" not in table.column_names:
        return arrays, None
    sentences: dict[str, str] = {}
    for row in rows:
        sentences.setdefault(" ".join(row["tokens"]), str(row["index"]))
    return arrays, sentences


class Finished(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Pipe(io.RawIOBase):
    """Gives the lines of an iterable one by one, as a pipe does whose writer is slow."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)

    def read(self, size: int = -1) -> bytes:
        """The next line, however much was asked for."""
        return next(self._lines, b"")


def elmo(*arguments: object, stdin: Iterable[bytes] = ()) -> Finished:
    """The command `elmo` in this process; standard input gives the lines of `stdin`."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["elmo", *map(str, arguments)]),
        patch.object(sys, "stdin", SimpleNamespace(buffer=Pipe(stdin))),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Finished(code, out.getvalue(), err.getvalue())


def command(*arguments: object, segment_bytes: int | None = None) -> list[str]:
    """The command line that runs `elmo` in a process of its own; its store may be given smaller segments."""
    start = ["-m", "elmo"]
    if segment_bytes is not None:
        start = [
            "-c",
            f"import elmo.embed.store; elmo.embed.store.SEGMENT_BYTES = {segment_bytes}; "
            "from elmo.cli import main; main()",
        ]
    return [sys.executable, *start, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """One thread, so that several may run; and the commands that were installed with this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, **more}


def elmo_process(*arguments: object, stdin: bytes = b"", segment_bytes: int | None = None) -> Finished:
    """The command `elmo` in a process of its own, its output in pipes."""
    ended = subprocess.run(
        command(*arguments, segment_bytes=segment_bytes),
        input=stdin,
        capture_output=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    return Finished(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def assert_refused(ended: Finished, *parts: str) -> None:
    """A user's mistake: exit code 2 and one line on standard error, with these parts in it."""
    assert ended.code == 2, ended.err[-1000:]
    assert ended.out == ""
    assert ended.err.startswith("elmo: ")
    assert ended.err.endswith("\n")
    assert ended.err.count("\n") == 1, ended.err[-1000:]
    for part in parts:
        assert part in ended.err


@contextmanager
def nothing_new_in(folder: Path) -> Iterator[None]:
    """The folder holds the same files and folders before and after."""
    before = sorted(folder.rglob("*"))
    yield
    assert sorted(folder.rglob("*")) == before


def on_a_disk_of(size: str, folder: Path, *arguments: object) -> Finished:
    """Run `elmo` with a disk of that size mounted at `folder`; what is on it afterwards goes to standard output."""
    script = f'mount -t tmpfs -o size={size} tmpfs "$0" && {{ "$@"; code=$?; ls -A "$0"; exit $code; }}'
    return finished(["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder), *command(*arguments)])


def finished(words: list[str]) -> Finished:
    """Run a program to its end, without standard input."""
    ended = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    return Finished(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def can_mount() -> bool:
    script = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(script, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


needs_small_disks = pytest.mark.skipif(not can_mount(), reason="a small disk cannot be mounted without privileges here")
