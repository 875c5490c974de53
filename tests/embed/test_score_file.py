"""`score_file` in Python: sums over sentences, and what is written."""

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from elmo.embed.language_model import Scores
from elmo.embed.score_file import Totals, score_file
from elmo.errors import WeightsError
from elmo.model.bilm import BiLM
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained, write
from embedders import pretrained, write_model

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    bilm = BiLM(replace(pretrained().bilm.config, n_softmax=len(WORDS)))
    folder = tmp_path_factory.mktemp("models") / "model"
    write(Pretrained(bilm, Vocabulary(WORDS)), folder)
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("the cat sat\n\nthe dog\n", encoding="utf-8")
    return path


def test_totals_are_the_sums_of_the_lines(text: Path, model: Path, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    totals = score_file(
        text, tmp_path / "out.jsonl", model, tokenized=True, device="cpu", progress=lambda *now: shown.append(now)
    )
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["tokens"] for row in rows] == [["the", "cat", "sat"], [], ["the", "dog"]]
    assert (totals.sentences, totals.tokens, totals.unknown) == (3, 5, 1)
    assert totals.forward == pytest.approx(sum(sum(row["forward"]) + row["forward_end"] for row in rows), abs=1e-4)
    assert totals.backward == pytest.approx(sum(sum(row["backward"]) + row["backward_end"] for row in rows), abs=1e-4)
    assert shown == [(3, 12), (3, 13), (5, 21)]


def test_without_an_output_it_prints(text: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    score_file(text, None, model, summary=True, tokenized=True, device="cpu")
    lines = raw.getvalue().decode().splitlines()
    assert [line.split("\t")[:3] for line in lines] == [["1", "3", "0"], ["2", "0", "0"], ["3", "2", "1"]]
    assert lines[2].endswith("\tthe dog")


def test_a_model_without_a_softmax_is_refused_and_no_file_stays(text: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="has no softmax"):
        score_file(text, tmp_path / "out.jsonl", write_model(tmp_path / "model"), device="cpu")
    assert not (tmp_path / "out.jsonl").exists()


def test_perplexities_of_totals_by_hand() -> None:
    totals = Totals()
    assert str(totals) == "0 sentences, 0 tokens"
    half, quarter = math.log(0.5), math.log(0.25)
    known = np.array([True, False])
    totals.add(Scores(["a", "b"], known, np.array([half, half]), half, np.array([quarter, quarter]), quarter))
    assert str(totals) == (
        "1 sentence, 2 tokens, 50.00% unknown; perplexity 3.00 (forward 2.00, backward 4.00)"  # 3 = (2 + 4) / 2
    )
