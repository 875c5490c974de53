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
    for metric in {*scores["dev"], *scores["test"]}:  # a rare role may be in one of them only
        dev, test = (f"{scores[part][metric]:.2f}" if metric in scores[part] else "–" for part in ("dev", "test"))
        assert f"| {metric} | {dev} | {test} |" in card
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


def test_questions_are_answered() -> None:
    text = "Marie Curie was born in Warsaw in 1867. She shared a Nobel Prize with her husband and with Henri Becquerel."
    asked = {"context": text, "questions": ["When was Marie Curie born?", "Where was she born?"]}
    (found,) = load_task(shipped()["squad"], "cpu").predict([asked])
    assert [one["answer"] for one in found["answers"]] == ["1867", "Warsaw"]
    assert all(text[one["start"] : one["end"]] == one["answer"] for one in found["answers"])


def test_roles_are_found() -> None:
    (found,) = load_task(shipped()["srl"], "cpu").predict(["The baker sold fresh bread on Monday."])
    (sold,) = found["propositions"]
    roles = {one["role"]: one["text"] for one in sold["arguments"]}
    assert (sold["word"], roles) == ("sold", {"ARG0": "The baker", "ARG1": "fresh bread", "ARGM-TMP": "on Monday"})


def test_mentions_are_linked() -> None:
    text = "Anna Schmidt founded the company in 2003. She sold it three years later. Her brother still works there."
    (found,) = load_task(shipped()["coref"], "cpu").predict([text])
    clusters = [[mention["text"] for mention in cluster] for cluster in found["clusters"]]
    assert clusters == [["Anna Schmidt", "She", "Her"], ["the company", "it"]]


@needs_shared
@pytest.mark.parametrize(("name", "data"), [("ner", "conll2003"), ("srl", "propbank-ewt"), ("coref", "ontogum")])
def test_the_score_on_the_card_is_that_of_the_test_part(name: str, data: str, tmp_path: Path) -> None:
    """3,453 sentences with entities, 4,795 propositions, and 30 documents."""
    folder = shipped()[name]
    scores = from_paths.evaluate(folder, unpacked(data, tmp_path), device="cpu")
    assert scores["f1"] == pytest.approx(load_task(folder, "cpu").scores["test"]["f1"], abs=0.03)
    assert scores["f1"] > {"ner": 91.6, "srl": 74.8, "coref": 53.7}[name]
