"""The reports of all verbs, on a terminal and in a pipe."""

from types import SimpleNamespace
from typing import Any

import pytest

from elmo.cli.progress import EpochReport, FileReport, SeedReport, StepReport

PLAN: Any = SimpleNamespace(
    bytes_available=None, negatives=None, parameters=1000, softmax_parameters=50, tokens_per_step=80,
    steps=4, steps_per_epoch=2, bytes_needed=2**29, device="cpu",
)  # fmt: skip
EPOCH = {"step": 1, "loss": 0.5, "dev_f1": 91.25, "train_seconds": 1.5, "dev_seconds": 0.5}


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr("rich.console.Console.is_terminal", request.param)
    monkeypatch.setenv("COLUMNS", "120")
    return bool(request.param)


def test_a_file(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with FileReport(200, "lines") as report:
        report.show(1234, 100)
    shown = capsys.readouterr()
    assert shown.out == ""
    if terminal:
        assert " 50%" in shown.err and "1,234 lines, " in shown.err
    else:
        assert shown.err == ""


def test_a_hidden_bar_is_not_drawn(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with FileReport(200, hidden=True) as report:
        report.show(7, 100)
    assert capsys.readouterr() == ("", "")


def test_stages_have_bars_of_their_own(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with FileReport(None) as report:
        report.show_stage("reading", 5, 10, 90)
        report.show_stage("merging", 1, 4, 180)
    shown = capsys.readouterr().err
    assert ("merging" in shown and " 25%" in shown and "180 tokens, " in shown) == terminal


def test_a_pretraining_run(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with StepReport() as report:
        report.planned(PLAN, done=1)
        report.stepped(2, PLAN)
        report.logged({"step": 2, "epoch": 1.0, "loss": 5.5, "tokens_per_second": 1234.0, "gradient_norm": 0.5})
        perplexities = {"perplexity": 15.0, "forward_perplexity": 10.0, "backward_perplexity": 20.0}
        report.logged({"step": 2, "epoch": 1.0, **perplexities})
    shown = capsys.readouterr().err
    lines = [
        "parameters   1,000, plus 50 of the softmax",
        "step         80 tokens in each direction, full softmax",
        "run          4 steps, 2.00 epochs, 1 done",
        "memory       about 0.5 GiB on cpu",
        "step 2 epoch 1.00: loss 5.500 1,234 tokens/s, gradient 0.50",
        "step 2 epoch 1.00: held-out perplexity 15.00 (forward 10.00, backward 20.00)",
    ]
    if terminal:
        assert "2/4" in shown
        assert all(line in shown for line in lines)
    else:
        assert shown.splitlines() == lines


def test_an_epoch(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with EpochReport() as report:
        report.prepared(30, 60)
        report.began(1, 10)
        report.stepped()
        report.logged(EPOCH)
    shown, line = capsys.readouterr().err, "epoch 1: loss 0.5000, dev f1 91.25, 2.0 s"
    if terminal:
        assert line in shown and "epoch 1 " in shown and " 1/10" in shown
    else:
        assert shown == line + "\n"


def test_seeds_side_by_side(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with SeedReport() as report:
        report.show({3: [EPOCH], 4: []}, 5)
    shown = capsys.readouterr().err
    if terminal:
        assert "seed 3, dev 91.25" in shown and "1/5" in shown
        assert "seed 4 " in shown and "0/5" in shown
    else:
        assert shown == ""
