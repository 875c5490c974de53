"""`~` in paths is the home folder, in Python too: nothing is made in a folder that is named `~`."""

from pathlib import Path

import pytest

from elmo.analysis.from_paths import analyse
from elmo.pretrain import from_paths as pretraining
from elmo.pretrain.prepare import prepare
from elmo.tasks.from_paths import train
from embedders import write_model
from tasks.small_sentences import write_data


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def test_training_a_task(home: Path) -> None:
    write_model(home / "elmo")
    write_data(home / "data")
    small = ["hidden=4", "dim=6", "train.epochs=1", "train.batch_size=3", "train.device=cpu"]
    train("sentences", "~/data", "~/run", settings=[*small, "inputs.elmo.model=~/elmo"])
    assert (home / "run" / "model" / "config.json").exists()
    assert not list((home / "elsewhere").iterdir())


def test_a_corpus_and_a_biLM(home: Path) -> None:  # noqa: N802
    (home / "text.txt").write_text("a b c\nd e\nf g h i\n" * 3 + "b c d\n")
    prepare(["~/text.txt"], "~/corpus", heldout="20%", min_count=1)
    small = ["batch.size=2", "batch.unroll=4", "steps=1", "device=cpu"]
    pretraining.pretrain("~/corpus", "~/run", preset="tiny", settings=small)
    assert pretraining.perplexity("~/run/model", "~/corpus").mean > 1
    assert not list((home / "elsewhere").iterdir())


def test_an_analysis(home: Path) -> None:
    (home / "text").mkdir()
    (home / "text" / "train.txt").write_text("a b c\nb c d\na b d\n" * 5)
    (home / "text" / "test.txt").write_text("a b c d\n")
    (home / "trigram.toml").write_text('analysis = "trigram"\n')
    settings = ["corpus=text/train.txt", "heldout=text/test.txt", "discount_fallback=true"]
    analyse("trigram", "~", "~/out", config="~/trigram.toml", settings=settings)
    assert (home / "out" / "results.json").exists()
    assert not list((home / "elsewhere").iterdir())
