"""Table 1: what is trained for it, and its numbers; and what is trained for all published configs together."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from analysis import mini
from elmo.analysis import tasks
from elmo.analysis.analysis import ANALYSES, Workspace, analysis_named, build_config
from elmo.analysis.claims import FAILS, HOLDS
from elmo.analysis.sweep import Sweep
from elmo.config import build
from elmo.tasks.task import TASKS


def cell(dev: list[float], test: list[float | None], seconds: float = 30.0, memory: int = 0) -> dict[str, Any]:
    scores = [
        {"dev": {"f1": a}} if b is None else {"dev": {"f1": a}, "test": {"f1": b, "em": b / 2}}
        for a, b in zip(dev, test, strict=True)
    ]
    return {
        "score": "f1", "dev": dev, "test": test, "scores": scores, "examples": 1200, "epochs": [2, 4],
        "seconds": seconds, "memory": memory,
    }  # fmt: skip


RESULTS = {
    "tasks": {"SQuAD": "squad", "mine": "pos"},
    "columns": [tasks.BASELINE, "small", "large"],
    "cells": {
        "SQuAD/without ELMo": cell([79, 81], [59, 61]),
        "SQuAD/small": cell([81, 83], [64, 66]),
        "SQuAD/large": cell([85, 85], [70, 70], 90, 3 * 2**20),
        "mine/without ELMo": cell([50, 50], [None, None]),
        "mine/small": cell([50, 50], [None, None]),
        "mine/large": cell([60, 62], [None, None]),
    },
}


def test_the_table_by_hand() -> None:
    lines = tasks.table(RESULTS).splitlines()
    # 60 → 70 is a quarter of 40 errors; the paper's 81.1 → 85.8 is 4.7 of 18.9.
    assert (
        "| SQuAD, f1 | 60.00 ± 1.41 | 65.00 ± 1.41 | 70.00 ± 0.00 | +10.00 (25.0 %) | 81.1 → 85.8 | +4.70 (24.9 %) |"
    ) in lines
    assert "| mine, f1 | – | – | – | – | – | – |" in lines
    assert "| SQuAD, f1 | 80.00 ± 1.41 | 82.00 ± 1.41 | 85.00 ± 0.00 | +5.00 (25.0 %) |" in lines
    assert "| mine, f1 | 50.00 ± 0.00 | 50.00 ± 0.00 | 61.00 ± 1.41 | +11.00 (22.0 %) |" in lines
    assert "| SQuAD, em | 30.00 ± 0.71 | 32.50 ± 0.71 | 35.00 ± 0.00 |" in lines
    assert "| SQuAD, large | 1,200 | 2, 4 | 15.0 | 3 |" in lines


def test_a_claim_for_every_model() -> None:
    small, large = tasks.claims(RESULTS)
    assert (small.verdict, large.verdict) == (FAILS, HOLDS)
    assert "SQuAD: with ELMo 70.00, without 60.00: +10.00 ± 1.00" in large.evidence
    assert "mine: with ELMo 61.00, without 50.00" in large.evidence  # by its dev score


def test_baselines_and_the_model_come_first_and_a_model_counts_once(tmp_path: Path) -> None:
    setups = [{"task": name, "data": name} for name in ("ner", "sst")]
    config = build(tasks.TasksConfig, {"model": "large", "others": ["small", "large"], "tasks": setups})
    found = tasks.cells(config, mini.workspace(tmp_path))
    assert list(found) == [f"{task}/{of}" for of in ("without ELMo", "large", "small") for task in ("ner", "sst")]
    assert found["ner/without ELMo"].changes == {"inputs": {"elmo": {"placement": "none"}}}
    assert (found["sst/small"].model, found["sst/small"].changes) == ("small", {})


def test_the_paper_has_a_figure_for_every_task() -> None:
    assert set(tasks.PAPER) == set(TASKS) - {"sentences"}  # which is not the paper's


def test_the_published_configs_share_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of the table in docs/analyses.md: of runs, and of those that no analysis before has."""
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)  # the recipes have relative paths
    for name in ("squad", "snli", "propbank-ewt", "ontogum", "litbank", "conll2003", "sst", "vectors"):
        (tmp_path / name).mkdir()
    for dim in (50, 100):
        (tmp_path / "vectors" / f"glove.6B.{dim}d.tasks.txt").touch()
    place = Workspace(tmp_path, tmp_path / "out", tmp_path / "runs")
    seen: set[tuple[str, str, int]] = set()
    counts = {}
    for name in ANALYSES:
        analysis = analysis_named(name)
        if analysis.cells is not None:
            cells = analysis.cells(build_config(analysis, root / "experiments" / "analysis" / f"{name}.toml"), place)
            configs = [(one, asdict(Sweep(place)._config(one)[1])) for one in cells.values()]
            runs = {
                (one.setup.data, json.dumps(config, sort_keys=True), seed)
                for one, config in configs
                for seed in range(one.seeds)
            }
            counts[name] = len(runs), len(runs - seen)
            seen |= runs
    assert counts == {
        "tasks": (69, 69), "layer-weighting": (105, 105), "placement": (27, 21), "sample-efficiency": (108, 93),
        "layer-weights": (18, 6), "fine-tuning": (6, 0), "state": (9, 6),
    }  # fmt: skip
    assert len(seen) == 300
