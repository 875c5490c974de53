"""The trained tasks in models/: their files, and that they have the scores of their cards."""

import tomllib
from pathlib import Path

import pytest

from elmo.tasks import from_paths
from elmo.tasks.predict import load_task
from elmo.weights import installed
from reference_files import needs_shared, unpacked

MODELS = Path(__file__).parents[1] / "models"


def shipped() -> dict[str, Path]:
    """The model folders of trained tasks, by their names."""
    found = {}
    for path in sorted(MODELS.glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for name, package in project["entry-points"].get(installed.TASKS, {}).items():
            found[name] = path.parent / package
    return found


@pytest.mark.parametrize("name", shipped())
def test_its_card_has_its_scores_and_its_size_is_small(name: str) -> None:
    folder = shipped()[name]
    card = (folder / "README.md").read_text(encoding="utf-8")
    scores = load_task(folder, "cpu").scores
    assert set(scores) == {"dev", "test"}
    for metric, value in scores["test"].items():
        assert f"| {metric} | {scores['dev'][metric]:.2f} | {value:.2f} |" in card
    assert sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) < 13_000_000
    project = tomllib.loads((folder.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nlicense: {project['license'].lower()}\n" in card


def test_entities_are_found() -> None:
    (found,) = load_task(shipped()["ner"], "cpu").predict(["Angela Merkel met Barack Obama at Siemens in Berlin."])
    assert [(one["text"], one["type"]) for one in found["entities"]] == [
        ("Angela Merkel", "PER"),
        ("Barack Obama", "PER"),
        ("Siemens", "ORG"),
        ("Berlin", "LOC"),
    ]


@needs_shared
def test_entities_of_conll2003_have_the_score_of_the_card(tmp_path: Path) -> None:
    """CoNLL-2003's test part, 3,453 sentences."""
    folder = shipped()["ner"]
    scores = from_paths.evaluate(folder, unpacked("conll2003", tmp_path), device="cpu")
    assert scores["f1"] == pytest.approx(load_task(folder, "cpu").scores["test"]["f1"], abs=0.03)
    assert scores["f1"] > 91.6
