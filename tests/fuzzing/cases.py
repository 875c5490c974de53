"""A READER, A SEED, A NUMBER ─▶ A CASE: damaged files, read in a folder of their own; and what must hold afterwards."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from elmo.errors import LONGEST, ElmoError


@dataclass(frozen=True)
class Link:
    """A symbolic link instead of a file."""

    target: str


Files = dict[str, Any]  # path in the folder ─▶ bytes, or a Link


@dataclass(frozen=True)
class Reader:
    """A reader under test: valid files, how they are damaged, and what reads them."""

    name: str
    seeds: tuple[Files, ...]
    change: Callable[[Random, Files], Files]
    read: Callable[[Path], object]

    def files(self, seed: int, case: int) -> Files:
        """Return the files of a case. Case 0 is the first valid one, unchanged."""
        rng = Random(f"{seed} {self.name} {case}")
        valid = self.seeds[rng.randrange(len(self.seeds)) if case else 0]
        return self.change(rng, valid) if case else valid


@dataclass
class Sandbox:
    """A folder for the files of a case; a reader may write to nothing but its own temporary folder, and clears it."""

    root: Path
    written: Files = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.case, self.temporary = self.root / "case", self.root / "temporary"
        self.case.mkdir(parents=True)
        self.temporary.mkdir()

    def put(self, files: Files) -> None:
        """Write the files of a case; those that are there already stay."""
        for name in [name for name, content in self.written.items() if files.get(name) != content]:
            (self.case / name).unlink()
        for name, content in files.items():
            if self.written.get(name) != content:
                path = self.case / name
                path.parent.mkdir(exist_ok=True)
                if isinstance(content, Link):
                    path.symlink_to(content.target)
                else:
                    path.write_bytes(content)
        self.written = dict(files)

    def outcome(self, reader: Reader, seed: int, case: int) -> str | None:
        """Read a case. Return None if it was read or refused; raise what is neither, or say what is wrong with it."""
        self.put(reader.files(seed, case))
        before, tempfile.tempdir = tempfile.tempdir, str(self.temporary)
        try:
            reader.read(self.case)
        except ElmoError as error:
            if len(str(error)) > LONGEST:
                return f"a message of {len(str(error)):,} characters: {str(error)[:200]}"
            if case == 0:
                raise AssertionError(f"the valid files were refused: {error}") from error
        finally:
            tempfile.tempdir = before
        left = sorted(self.temporary.iterdir())
        if left:
            shutil.rmtree(self.temporary)
            self.temporary.mkdir()
            return f"left behind in the temporary folder: {left}"
        if (there := set(self.root.iterdir())) != {self.case, self.temporary}:
            return f"wrote outside of its folder: {there - {self.case, self.temporary}}"
        return None
