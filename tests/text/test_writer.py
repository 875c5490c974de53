"""Text output: a new file that is complete or absent, or standard output."""

import errno
import io
import sys
from pathlib import Path

import pytest

from elmo.errors import DataError
from elmo.files import locked
from elmo.text.writer import text_output


def test_a_file_is_utf_8_with_line_feeds_and_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "out.txt"
    with text_output(path) as file:
        print("naïve 日本", file=file)
        assert not path.exists()
    assert path.read_bytes() == "naïve 日本\n".encode()
    assert [found.name for found in path.parent.iterdir()] == ["out.txt"]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), text_output(tmp_path / "out.txt") as file:
        print("half", file=file)
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_or_is_being_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("mine")
    with pytest.raises(DataError, match="exists already"), text_output(path):
        pass
    assert path.read_text() == "mine"
    refused = pytest.raises(DataError, match="another process is writing it")
    with locked(tmp_path / "new.txt"), refused, text_output(tmp_path / "new.txt"):
        pass


@pytest.mark.parametrize("name", [None, "-"])
def test_no_name_and_a_dash_are_standard_output(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with text_output(name) as file:
        print("naïve", file=file)
    assert raw.getvalue() == "naïve\n".encode()


def test_standard_output_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    refused = pytest.raises(DataError, match=r"^standard output: cannot be written \(No space left on device\)$")
    with refused, text_output(None) as file:
        print("x", file=file)
