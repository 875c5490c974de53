"""A TEXT FILE ─▶ LINES, with how far in they are; `-` is standard input."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from elmo.errors import DataError


class Lines:
    """The lines of a file or of standard input, and how far in they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = self.position = 0
        self.size: int | None = None
        self._file: IO[bytes] = sys.stdin.buffer
        if name != "-":
            try:
                self._file = Path(name).open("rb")  # noqa: SIM115 (open until the command ends)
                self.size = os.fstat(self._file.fileno()).st_size or None
            except OSError as error:
                raise DataError(f"{name}: cannot be read ({error.strerror}); expected a text file") from None

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.count += 1
            self.position += len(line)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                found = f"byte {error.start + 1} is 0x{line[error.start]:02x}"
                raise DataError(
                    f"{self.name}: line {self.count} is not UTF-8 ({found}); convert the file first, e.g. with iconv"
                ) from None
