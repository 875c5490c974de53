"""Fine-tuning to domains: folders of their own, and both stages of a model without a softmax are continued."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis import mini
from elmo.analysis.analysis import StoppedError
from elmo.analysis.fine_tuning import Domain, FineTuningConfig, run
from elmo.weights.folder import Pretrained, read, write

STEPS = ("steps=3", "batch.size=4", "batch.unroll=5")


def test_every_domain_has_a_corpus_of_its_own(tmp_path: Path) -> None:
    domains = (Domain("v1.0", "entailment", "snli"), Domain("v1.1", "entities", "entities"))
    config = FineTuningConfig(mini.model(), STEPS, domains, 1, ())
    found = run(config, mini.workspace(tmp_path))["domains"]
    assert {path.name for path in (tmp_path / "domains").glob("*.corpus")} == {"v1.0.corpus", "v1.1.corpus"}
    for name, folder in (("v1.0", "entailment/train.jsonl"), ("v1.1", "entities/train.txt")):
        text = (mini.data() / folder).read_text(encoding="utf-8")
        lines = text.count("\n\n") if name == "v1.1" else 2 * text.count("\n")
        assert 0 < found[name]["sentences"] <= lines  # distinct ones


def test_the_softmax_of_a_model_without_one_is_continued(tmp_path: Path) -> None:
    """An interruption in the first stage, which trains the new softmax."""
    write(Pretrained(read(Path(mini.model())).bilm), tmp_path / "model")
    config = FineTuningConfig(str(tmp_path / "model"), STEPS, (Domain("stories", "questions", "contexts"),), 1, ())
    expected = run(config, mini.workspace(tmp_path / "whole"))
    place = mini.workspace(tmp_path / "cut")

    def stop_after_a_step(what: str, done: int, total: int) -> None:
        if what.startswith("fine-tuning") and done == 1:
            place.stop.set()

    with pytest.raises(StoppedError):
        run(config, replace(place, progress=stop_after_a_step))
    tuned = place.out / "domains" / "stories.tuned"
    assert (tuned / "softmax" / "run.json").exists() and not (tuned / "run.json").exists()
    place.stop.clear()
    assert run(config, place) == expected
