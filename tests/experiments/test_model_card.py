"""The card of a model: figures are put where they belong, and are those of a second formula."""

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

import elmo
from embedders import LINES, embedder

CARD = """# a model
<!-- perplexity -->
<!-- end -->
between
<!-- rounding -->
old
<!-- end -->
after
"""


@pytest.fixture
def model_card(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "experiments")
    return importlib.import_module("model_card")


def test_a_section_is_filled_again_and_again(model_card: ModuleType, tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text(CARD)
    for rows in (["| 1 |", "| 2 |"], ["| 3 |"]):
        model_card.fill(card, "rounding", rows)
    model_card.fill(card, "perplexity", ["| 4 |"])
    between = "<!-- end -->\nbetween\n<!-- rounding -->\n\n| 3 |\n\n<!-- end -->\nafter\n"
    assert card.read_text() == f"# a model\n<!-- perplexity -->\n\n| 4 |\n\n{between}"
    with pytest.raises(AssertionError, match="has no section between <!-- speed --> and <!-- end -->"):
        model_card.fill(card, "speed", [])


def test_the_differences_are_those_of_the_vectors(model_card: ModuleType, tmp_path: Path) -> None:
    """Token by token, with sums of Python."""
    embedder().save(tmp_path / "full")
    embedder().save(tmp_path / "int8", torch.int8)
    found = model_card.rounding.differences(tmp_path / "int8", tmp_path / "full", LINES)[2:]
    assert model_card.rounding.dtype_of(tmp_path / "full") == "float32"
    pairs = list(zip(*(elmo.load(tmp_path / name).embed(LINES) for name in ("int8", "full")), strict=True))
    for layer, row in enumerate(found):
        distances, cosines = [], []
        for ours, exact in pairs:
            for a, b in zip(ours[layer].tolist(), exact[layer].tolist(), strict=True):
                distances.append(math.dist(a, b) / math.hypot(*b))
                cosines.append(sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b))
        shown = [float(cell) for cell in row.split("|")[2:-1]]
        n = len(distances)
        expected = [sum(distances) / n, max(distances), sum(cosines) / n, min(cosines)]
        assert shown[:2] == pytest.approx(expected[:2], rel=0.06)
        assert shown[2:] == pytest.approx(expected[2:], abs=1e-6)
    assert len(found) == 3
