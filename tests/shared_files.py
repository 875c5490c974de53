"""Where the reference arrays and real data lie: the folder that `$ELMO_SHARED` names: `fixtures/` and `data/`."""

import os
import tarfile
from pathlib import Path

import pytest

SHARED: Path | None = Path(os.environ["ELMO_SHARED"]) if os.environ.get("ELMO_SHARED") else None

needs_shared = pytest.mark.skipif(SHARED is None, reason="set ELMO_SHARED to the folder that holds fixtures/")


def unpacked(name: str, folder: Path) -> Path:
    """A dataset of `data/`, laid out in a folder."""
    assert SHARED is not None
    with tarfile.open(SHARED / "data" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name
