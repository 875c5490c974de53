"""english-sentence, a distribution of its own: the sentence head of the English model, and what its card says of it."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import elmo
from distributions import install, new_site
from elmo.analysis.sentences import read_pairs
from elmo.analysis.similarity import correlations
from elmo.tasks.predict import load_task
from elmo.weights import installed
from elmo.weights.tensor_files import stored_dtypes
from embedders import elmo as command
from reference_files import needs_shared, unpacked

NAME = "english-sentence"
DISTRIBUTION = Path(__file__).parents[1] / "models" / NAME
HEAD = DISTRIBUTION / "elmo_english_sentence"
CARD = (HEAD / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nothing but this distribution has the name; offline."""
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    site = new_site(tmp_path, monkeypatch)
    install(site, "elmo-torch-english-sentence", installed.TASKS, NAME, "elmo_english_sentence_of_a_test", HEAD)
    return site


def test_the_distribution_is_the_one_that_the_error_names() -> None:
    project = tomllib.loads((DISTRIBUTION / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == installed.KNOWN[installed.TASKS, NAME]
    assert project["entry-points"] == {installed.TASKS: {NAME: HEAD.name}}
    assert f"\nlicense: {project['license'].lower()}\n" in CARD
    assert project["license"] in (DISTRIBUTION / "LICENSE").read_text(encoding="utf-8")


def test_its_files() -> None:
    assert {path.name for path in HEAD.iterdir() if path.is_file()} == {
        "__init__.py", "README.md", "config.json", "model.safetensors", "words.txt",
    }  # fmt: skip
    assert sum(path.stat().st_size for path in HEAD.iterdir() if path.is_file()) < 2_000_000
    assert stored_dtypes(HEAD / "model.safetensors") == ["float16"]


def test_the_card_has_the_scores() -> None:
    scores = json.loads((HEAD / "config.json").read_text(encoding="utf-8"))["scores"]
    for name in ("spearman", "pearson"):
        assert f"| {name} | {scores['dev'][name]:.2f} | {scores['test'][name]:.2f} |" in CARD


def test_similar_sentences_are_similar_by_its_name(site: Path) -> None:
    model = elmo.load(device="cpu")
    same, other, different = model.encode(
        [
            "A man is playing a guitar on the stage.",
            "Someone on a stage plays the guitar.",
            "The parliament passed a new law on taxes.",
        ],
        pooling=NAME,
    )
    assert same @ other > 0.6 > 0.3 > same @ different
    Path("sentences.txt").write_text("A door opens.\n\nIt is late.\n")
    assert command("embed", "sentences.txt", "vectors.npz", "--pool", NAME).code == 0
    assert load_task(NAME, device="cpu").trained.task.name == "sentences"


@needs_shared
def test_its_score_is_that_of_the_card(site: Path, tmp_path: Path) -> None:
    pairs = read_pairs(unpacked("stsb", tmp_path) / "sts-dev.csv")
    found = correlations(pairs, elmo.load(device="cpu").encode(pairs.sentences, NAME))
    dev = re.search(r"^\| spearman \| ([\d.]+) \|", CARD, re.MULTILINE)
    assert dev is not None
    assert found["spearman"] == pytest.approx(float(dev[1]), abs=0.05)
