"""The trained tasks of models/: the best seed of each task is shipped, with the notes about its data."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from analysis import mini
from elmo.analysis.analysis import Workspace
from elmo.analysis.from_paths import analyse
from elmo.tasks.predict import load_task
from elmo.tasks.task import TASKS


@pytest.fixture
def task_models(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "experiments")
    return importlib.import_module("task_models")


def test_every_task_has_its_notes(task_models: ModuleType) -> None:
    assert set(task_models.SHIPPED) == set(TASKS) - {"sentences"}  # its model is no task of the paper
    assert "may not be redistributed" in task_models.SHIPPED["ner"].notes


def test_the_best_seed_is_shipped(task_models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "conll2003").symlink_to(mini.data() / "entities")
    place = Workspace(tmp_path / "data", tmp_path / "out", tmp_path / "runs")
    setup = '[{task = "ner", data = "conll2003", title = "NER", vectors = "none", settings = ["hidden=4", '
    (tmp_path / "tasks.toml").write_text(f'seeds = 2\nmodel = "{mini.model()}"\ntasks = {setup}"train.epochs=1"]}}]\n')
    record = analyse("tasks", place.data, place.out, config=tmp_path / "tasks.toml", runs=place.runs)
    assert record is not None
    cell = record["results"]["cells"][f"NER/{mini.model()}"]
    cell["dev"] = [10.0, 20.0]  # as if the second had won
    (written,) = task_models.write_all(record, place.runs, place.data, tmp_path / "models")
    assert task_models.best_run(record["results"], place.runs, "NER", mini.model()).parent.name == "seed-1"
    model = tmp_path / "models" / "ner" / "elmo_ner"
    assert load_task(model).trained.config.train.seed == 1
    assert load_task(model).scores == written.scores
    assert "may not be redistributed" in (model / "README.md").read_text(encoding="utf-8")
    assert task_models.write_all(record, place.runs, place.data, tmp_path / "models") == []  # it is kept
