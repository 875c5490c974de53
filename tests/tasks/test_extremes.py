"""The paper's six tasks: items of extreme length (nothing, 500 tokens in a sentence, 10,000), and files of labels."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis import mini
from elmo.analysis.quick import quick_configs
from elmo.embed.embedder import load
from elmo.errors import DataError
from elmo.tasks.folder import TrainedTask
from elmo.tasks.from_paths import evaluate_predictions
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.predict import Predictor
from elmo.tasks.recipe import recipe

WORDS = ["Anna", "saw", "her", "dog", "and", "left", "it", "there", ",", "then"]
SETUPS = {one["task"]: one for one in quick_configs()["layer-weights"]["tasks"]}


@cache
def predictor(name: str) -> Predictor:
    """A small model of a task with random weights, on the small biLM."""
    task, config = recipe(name, None, [f"inputs.elmo.model={json.dumps(mini.model())}", *SETUPS[name]["settings"]])
    splits = task.read(mini.data() / SETUPS[name]["data"])
    labels = task.labels(splits["train"])
    torch.manual_seed(0)
    inputs = Inputs(config.inputs, frozen=FrozenLayers(load(mini.model(), device="cpu")))
    return Predictor(TrainedTask(task, config, labels, [], task.model(config, inputs, labels)))


def item(name: str, count: int) -> Any:
    """An item with so many tokens, as `elmo predict` gets it from JSON lines."""
    tokens = (WORDS * (count // len(WORDS) + 1))[:count]
    return {
        "squad": {"context": " ".join(tokens), "question": "Who left?"},
        "snli": {"sentence1": " ".join(tokens), "sentence2": "A dog left ."},
        "srl": {"tokens": tokens, "predicates": [count - 1]},
        "coref": {"sentences": [tokens[first : first + 500] for first in range(0, count, 500)]},
        "ner": {"tokens": tokens},
        "sst": {"tokens": tokens},
    }[name]


# A paragraph and a document of 10,000 tokens: test_squad_model.py and test_coref_model.py. The attention of sst needs
# memory for the square of a sentence.
LONG = [("snli", 10_000), ("srl", 10_000), ("ner", 10_000), ("sst", 1000)]


@pytest.mark.parametrize(("name", "count"), [*((name, count) for name in SETUPS for count in (1, 500)), *LONG])
def test_items_of_any_length_are_answered(name: str, count: int) -> None:
    using = predictor(name)
    long, short = using.predict([item(name, count), item(name, 3)])
    assert json.loads(json.dumps(long)) == long  # no number that JSON does not know
    assert short.keys() == long.keys()
    if name == "srl":
        assert [len(one["tags"]) for one in long["propositions"]] == [count]
    elif name == "coref":
        assert sum(map(len, long["sentences"])) == count
    elif name == "ner":
        assert len(long["tags"]) == count
    elif name == "squad":
        assert long["answer"] == item(name, count)["context"][long["start"] : long["end"]] != ""
    else:
        assert long["label"] in using.labels


EMPTY: dict[str, list[Any]] = {
    "squad": [{"context": "", "question": "Who?"}, {"context": "Anna left.", "question": ""}],
    "snli": [{"sentence1": "", "sentence2": "Anna left."}],
    "srl": [{"tokens": []}, {"tokens": [], "predicates": []}, {"text": " "}],
    "coref": [{"sentences": []}, {"text": ""}],
    "ner": [{"tokens": []}, ""],
    "sst": [{"tokens": []}, " "],
}


@pytest.mark.parametrize(("name", "nothing"), [(name, one) for name, items in EMPTY.items() for one in items])
def test_nothing_is_answered_or_refused(name: str, nothing: Any) -> None:
    """Also beside an item that is something: whatever is answered is what that item gets alone."""
    using = predictor(name)
    try:
        example = using.task.parse(nothing)
    except DataError as error:
        assert "\n" not in str(error) and "expected" in str(error)
        return
    something = using.task.parse(item(name, 7))
    (alone,) = using.answers([something])
    answer, beside = using.answers([example, something])
    assert json.loads(json.dumps(answer)) == answer
    assert beside.keys() == alone.keys()


@pytest.mark.parametrize(("name", "file"), [("sst", "test.txt"), ("snli", "test.jsonl")])
def test_labels_are_written_and_read_again(name: str, file: str, tmp_path: Path) -> None:
    """The other tasks have files of their own kind, and tests beside their readers."""
    using, data = predictor(name), mini.data() / SETUPS[name]["data"]
    assert using.task.predictions is not None
    scores = using.evaluate(data, "test", tmp_path / "labels.txt")
    gold = using.task.predictions.read_gold(data / file)
    read = using.task.predictions.read_predictions(tmp_path / "labels.txt", gold)
    assert read == [answer["label"] for answer in using.answers(gold)]
    assert evaluate_predictions(name, data / file, tmp_path / "labels.txt") == scores
