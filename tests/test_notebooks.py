"""The notebooks are executed, and print what is stored in them.

Cells that train have the tag "training": their figures may differ on another processor.
"""

import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install '.[dev]'")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install '.[dev]'")
    stored = nbformat.read(path, as_version=4)
    executed = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(executed, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    code = [pair for pair in zip(stored.cells, executed.cells, strict=True) if pair[0].cell_type == "code"]
    assert len(code) >= 5
    for before, after in code:
        printed = texts(after.outputs)
        if "training" not in before.metadata.get("tags", []):
            assert printed == texts(before.outputs), before.source
        elif " %" in printed:  # the claim of the notebook: context helps
            mean = {mix: float(score) for mix, score in re.findall(r"(\S+) +([\d.]+) %", printed)}
            assert mean["learned"] > mean["layer:0"] + 1


def texts(outputs: list) -> str:
    """What a cell printed or returned, without its figures."""
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)
