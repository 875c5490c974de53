"""`datasets`: the example of docs/scaling.md, which maps with two processes, run as a program of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from embedders import environment

DOCUMENT = Path(__file__).parents[2] / "docs" / "scaling.md"


def test_the_example_prints_what_is_shown(tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="needs datasets: pip install datasets")
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(r"```py\n(import datasets\n.*?)```\n```text\n(.*?)```", text, re.DOTALL)
    assert found is not None
    script = tmp_path / "example.py"
    script.write_text(found[1], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment(HF_HOME=str(tmp_path)), check=False
    )
    assert done.stdout == found[2], done.stderr[-1000:]
