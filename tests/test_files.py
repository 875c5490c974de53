"""Safe writing: complete or not at all, .npy files as NumPy reads them, and one owner of an output at a time."""

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from elmo.errors import DataError
from elmo.files import (
    locked,
    new_folder,
    refuse_existing,
    remove_leftovers,
    replacing,
    write_array,
    write_array_pieces,
    write_error,
)

ARRAYS = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half precision": np.linspace(0, 1, 24, dtype=np.float16).reshape(2, 3, 4),
    "strided": np.arange(24, dtype=np.int64).reshape(4, 6)[::2, ::3],
    "transposed": np.arange(6, dtype=np.uint32).reshape(2, 3).T,
    "empty": np.zeros((0, 5), dtype=np.float32),
}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ARRAYS)
def test_a_written_array_is_what_numpy_reads(name: str, tmp_path: Path) -> None:
    values = ARRAYS[name]
    write_array(tmp_path / "a.npy", values)
    found = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)
    assert names(tmp_path) == ["a.npy"]


@pytest.mark.parametrize("name", ["matrix", "half precision", "empty"])
def test_a_contiguous_array_is_written_as_np_save_writes_it(name: str, tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", ARRAYS[name])
    np.save(tmp_path / "b.npy", ARRAYS[name])
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_pieces_make_one_array(tmp_path: Path) -> None:
    values = np.arange(60, dtype=np.float16).reshape(10, 6)
    write_array_pieces(tmp_path / "a.npy", np.float16, values.shape, (values[k : k + 3] for k in range(0, 10, 3)))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), values)


def test_a_piece_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def pieces() -> object:
        yield np.zeros((1, 2), dtype=np.float32)
        raise KeyError("the second piece")

    with pytest.raises(KeyError):
        write_array_pieces(tmp_path / "a.npy", np.float32, (2, 2), pieces())  # type: ignore[arg-type]
    assert names(tmp_path) == []


def test_an_array_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/a\.npy: cannot be written \("):
        write_array(tmp_path / "file" / "a.npy", ARRAYS["matrix"])


def test_replacing_keeps_the_old_file_if_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ValueError, match="no"), replacing(path) as temporary:
        temporary.write_text("half")
        raise ValueError("no")
    assert path.read_text() == "old"
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_a_new_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), new_folder(tmp_path / "out") as temporary:
        (temporary / "a").write_text("half")
        raise ValueError("no")
    assert names(tmp_path) == []
    with new_folder(tmp_path / "out") as temporary:
        (temporary / "a").write_text("all")
        assert names(tmp_path) == [temporary.name]
    assert (tmp_path / "out" / "a").read_text() == "all"


def test_what_exists_is_refused(tmp_path: Path) -> None:
    refuse_existing(tmp_path / "new")
    with pytest.raises(DataError, match="exists already"):
        refuse_existing(tmp_path)


def test_a_full_disk_is_named_however_the_error_says_it() -> None:
    for error in (OSError(errno.ENOSPC, "x"), RuntimeError("write failed: No space left on device (os error 28)")):
        assert "the disk is full" in str(write_error(Path("out"), error))
    assert str(write_error(Path("out"), OSError(errno.EACCES, "Permission denied"))) == (
        "out: cannot be written (Permission denied)"
    )


def test_a_second_owner_is_refused_and_no_lock_file_stays(tmp_path: Path) -> None:
    with locked(tmp_path / "out"):
        with pytest.raises(DataError, match="another process is writing it"), locked(tmp_path / "out"):
            pass
        with locked(tmp_path / "other"):
            pass
    assert names(tmp_path) == []
    with locked(tmp_path / "out"):
        pass


def test_a_waiting_owner_gets_its_turn(tmp_path: Path) -> None:
    events: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        waiting.set()
        with locked(tmp_path / "out", wait=True):
            events.append("second")

    thread = threading.Thread(target=second)
    with locked(tmp_path / "out"):
        thread.start()
        waiting.wait(10)
        thread.join(0.1)
        assert thread.is_alive()
        events.append("first")
    thread.join(10)
    assert events == ["first", "second"]
    assert names(tmp_path) == []


def test_the_next_owner_removes_the_lock_file_of_a_killed_process(tmp_path: Path) -> None:
    (tmp_path / ".out.lock").touch()
    with locked(tmp_path / "out"):
        assert names(tmp_path) == [".out.lock"]
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = [tmp_path / ".x[1].hdf5.17.tmp", tmp_path / ".x[1].hdf5.99.tmp"]
    others = [tmp_path / ".x1.hdf5.17.tmp", tmp_path / "x[1].hdf5.part", tmp_path / ".x[1].hdf5.lock"]
    for path in left + others:
        path.touch()
    remove_leftovers(tmp_path / "x[1].hdf5")
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_folder_has_one_lock_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the current folder, and a link to it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    monkeypatch.chdir(tmp_path / "run")
    for first in (Path(), Path("../link"), tmp_path / "run"):
        with locked(first):
            assert (tmp_path / ".run.lock").exists()
            for name in (".", "../run", "../link", tmp_path / "link"):
                with pytest.raises(DataError, match=r": another process is writing it"), locked(Path(name)):
                    pass
    assert names(tmp_path) == ["link", "run"]
    assert names(tmp_path / "run") == []


def test_a_folder_in_one_that_cannot_be_written_has_its_lock_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a volume that is mounted into a container."""
    (tmp_path / "run").mkdir()
    opened = os.open

    def refuse(path: object, *rest: int) -> int:
        if Path(str(path)).parent == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(str(path), *rest)

    monkeypatch.setattr(os, "open", refuse)
    with locked(tmp_path / "run"):
        assert names(tmp_path / "run") == [".lock"]
        with pytest.raises(DataError, match=r"run: another process is writing it"), locked(tmp_path / "run"):
            pass
    assert names(tmp_path / "run") == []
    for path in (tmp_path / "new", tmp_path / "new.txt"):
        with pytest.raises(DataError, match=r"new(\.txt)?: cannot be written \(Permission denied\)$"), locked(path):
            pass
    assert names(tmp_path) == ["run"]
