"""LINES ─▶ A TEXT FILE, complete or not at all, or standard output."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from elmo.errors import DataError
from elmo.files import locked, refuse_existing, replacing

STDOUT = "-"


@contextmanager
def text_output(output: str | Path | None) -> Iterator[IO[str]]:
    """Open a new text file, UTF-8, to write lines to; None or "-" is standard output.

    A file must not exist. It is locked against other processes, and appears when the block ends without an error.
    """
    if output is None or str(output) == STDOUT:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # whatever the locale
        try:
            yield sys.stdout
            sys.stdout.flush()
        except OSError as error:
            # An error of another file, or of a pipe whose reader has ended: not ours to report.
            if error.filename is not None or isinstance(error, BrokenPipeError):
                raise
            raise DataError(f"standard output: cannot be written ({error.strerror})") from error
        return
    path = Path(output).expanduser()
    refuse_existing(path)
    with locked(path):
        refuse_existing(path)  # another process may have written it just before it was locked
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            yield file
