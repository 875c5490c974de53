"""Where the reference arrays lie: the folder that `$ELMO_SHARED` names, which holds `fixtures/`."""

import os
from pathlib import Path

import pytest

SHARED: Path | None = Path(os.environ["ELMO_SHARED"]) if os.environ.get("ELMO_SHARED") else None

needs_shared = pytest.mark.skipif(SHARED is None, reason="set ELMO_SHARED to the folder that holds fixtures/")
