"""Numbers that somebody else computed.

`tests/reference` holds arrays that bilm-tf computed for this project, so everybody's tests check against them (its
README says what is in it). bilm-tf's own test files and the datasets are not ours to give away: they are in the folder
that `$ELMO_SHARED` names, and the tests that need them skip where it is not set.
"""

import os
import tarfile
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parent / "reference"
VARIANTS = ["no_highway_no_projection", "one_layer", "skip_relu_clips", "three_layers_tanh", "twenty_characters"]
SHARED: Path | None = Path(os.environ["ELMO_SHARED"]) if os.environ.get("ELMO_SHARED") else None

needs_shared = pytest.mark.skipif(SHARED is None, reason="set ELMO_SHARED to the folder that holds fixtures/ and data/")
BILM_TF = pytest.param("bilm-tf", marks=needs_shared)


def reference(name: str) -> Path:
    """A folder of reference arrays: "bilm-tf", "training", or "variants/NAME"."""
    if name != "bilm-tf":
        return REFERENCE / name
    assert SHARED is not None
    return SHARED / "fixtures" / name


def unpacked(name: str, folder: Path) -> Path:
    """Unpack a dataset of `data/` into a folder."""
    assert SHARED is not None
    with tarfile.open(SHARED / "data" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name
