"""Sentence vectors: what is read and refused, the loss against brute force in NumPy, a head that learns and loads."""

import json
import re
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elmo.config import build, merged, parse_assignments
from elmo.embed.embedder import load
from elmo.errors import ConfigError, DataError
from elmo.tasks.examples import Example
from elmo.tasks.from_paths import evaluate_predictions
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import ElmoConfig, Inputs, InputsConfig
from elmo.tasks.predict import load_task
from elmo.tasks.sentences import data, metric
from elmo.tasks.sentences.model import TASK, SentenceEncoder, SentencesConfig, info_nce, same_sentences
from elmo.tasks.task import task_named
from elmo.tasks.train import TaskTraining
from elmo.tasks.train_config import TrainConfig
from elmo.text.tokens import words
from embedders import embedder, write_model
from tasks.small_sentences import JUDGED, PAIRS, lines_of, train_head, write_data

RNG = np.random.default_rng(5)


# Reading


def test_the_parts_are_read(tmp_path: Path) -> None:
    splits = data.read(write_data(tmp_path))
    assert {part: len(examples) for part, examples in splits.items()} == {"train": 8, "dev": 4}
    baker, bread = splits["train"][:2]
    nobody = ("Nobody", "is", "near", "the", "oven", ".")
    assert baker.texts == (tuple(words(PAIRS[0][0])), ("Someone", "is", "baking", "."), nobody)
    assert bread.texts == (baker.texts[0], ("Bread", "is", "hot", "."), nobody)  # the only one, in turn
    assert splits["train"][3].texts == (("Rain", "."), ("It", "is", "wet", "."))  # nothing contradicts it
    assert splits["dev"][1] == Example((tuple(words(JUDGED[1][1])), tuple(words(JUDGED[1][2]))), 1.2)


def test_contradictions_are_taken_in_turn(tmp_path: Path) -> None:
    labels = ["entailment", "contradiction", "entailment", "contradiction", "entailment", "-", "neutral"]
    lines = lines_of([("A", f"b{k}", label) for k, label in enumerate(labels)])
    (tmp_path / "train.jsonl").write_text("\n".join([*lines[:3], "", *lines[3:]]) + "\n")
    examples = data.read_entailed(tmp_path / "train.jsonl")
    assert [example.texts for example in examples] == [
        (("A",), ("b0",), ("b1",)),
        (("A",), ("b2",), ("b3",)),
        (("A",), ("b4",), ("b1",)),
    ]


def test_a_question_is_paired_with_the_sentence_of_its_answer(tmp_path: Path) -> None:
    context = "Oslo is in Norway. The U.S. team won there in 1952, by far! It was cold"
    asked = [
        ("Who won?", "The U.S. team", "The U.S. team won there in 1952 , by far !"),
        ("How was it?", "cold", "It was cold"),
        ("Where is Oslo?", "Norway", "Oslo is in Norway ."),
        ("Where is Oslo?", "Oslo", "Oslo is in Norway ."),  # the same pair a second time
        ("Where and who?", "Norway. The U.S. team", "Oslo is in Norway . The U.S. team won there in 1952 , by far !"),
        ("Not there?", "Bergen", ""),
    ]
    questions = [
        {"id": str(k), "question": question, "answers": [{"text": text, "answer_start": max(0, context.find(text))}]}
        for k, (question, text, _) in enumerate(asked)
    ]
    folder = write_data(tmp_path)
    (folder / "squad").mkdir()
    articles = {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
    (folder / "squad" / "dev-v1.1.json").write_text(json.dumps(articles))
    (folder / "train-v1.1.json").write_text(json.dumps({"data": []}))
    train = data.read(folder)["train"]
    expected = [(question, sentence) for question, _, sentence in [*asked[:3], asked[4]]]
    assert [(" ".join(words(question)), sentence) for question, sentence in expected] == [
        tuple(" ".join(text) for text in example.texts) for example in train[8:]
    ]


LINE = '{"gold_label": "entailment", "sentence1": "A", "sentence2": "B"}'


@pytest.mark.parametrize(
    "bad", ["no JSON", "[1]", "[" * 10_000, LINE.replace('"A"', "3"), LINE.replace("B", " "), '{"gold_label": "-"}']
)
def test_a_line_that_is_no_pair_is_named(bad: str, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(f"{LINE}\n{bad}\n")
    expected = "expected a JSON object with a label and two sentences: gold_label, sentence1, sentence2"
    with pytest.raises(DataError, match=f"^{re.escape(f'{path}:2: {bad[:40]!r}; {expected}')}$"):
        data.read_entailed(path)


def test_without_entailment_there_is_nothing_to_learn(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(LINE.replace("entailment", "neutral") + "\n")
    with pytest.raises(DataError, match=r"train\.jsonl: contains no pair with the label 'entailment'$"):
        data.read_entailed(path)


@pytest.mark.parametrize("bad", ["a\tb\tc\td\t1.0\tOne.", "a\tb\tc\td\tx\tOne.\tTwo.", "a\tb\tc\td\tnan\tOne.\tTwo.",
                                 "a\tb\tc\td\t1.0\t \tTwo."])  # fmt: skip
def test_a_line_that_is_no_judgement_is_named(bad: str, tmp_path: Path) -> None:
    path = tmp_path / "sts-dev.csv"
    path.write_text(f"a\tb\tc\td\t1.0\tOne.\tTwo.\n{bad}\n")
    with pytest.raises(DataError, match=r"sts-dev\.csv:2: .*; expected tabs between genre, file, year, id, score and"):
        data.read_judged(path)


def test_an_empty_file_of_judgements(tmp_path: Path) -> None:
    (tmp_path / "sts-dev.csv").touch()
    with pytest.raises(DataError, match=r"sts-dev\.csv: contains no pairs$"):
        data.read_judged(tmp_path / "sts-dev.csv")


@pytest.mark.parametrize("item", ["It is late.\tA door", ["It is late.", "A door"],
                                  {"sentence1": "It is late.", "sentence2": "A door"}])  # fmt: skip
def test_what_is_asked_is_parsed(item: Any) -> None:
    example = data.parse(item)
    assert example == Example((("It", "is", "late", "."), ("A", "door")))
    shown = {"sentence1": ["It", "is", "late", "."], "sentence2": ["A", "door"], "similarity": 0.333333}
    assert data.to_json(example, 1 / 3) == shown


@pytest.mark.parametrize("item", ["one", "a\tb\tc", "a\t ", ["a"], ["a", 3], {"sentence1": "a"}, {}, 5])
def test_what_is_no_pair_is_refused(item: Any) -> None:
    with pytest.raises(DataError, match=re.escape(f"{item!r}: expected two sentences, with a tab between them")):
        data.parse(item)


def test_similarities_are_written_and_read_again(tmp_path: Path) -> None:
    gold = data.read_judged(write_data(tmp_path) / "stsb" / "sts-dev.csv")
    numbers, path = [0.1 + 0.2, -1e-7, 0.5, 1.0], tmp_path / "similarities.txt"
    written = StringIO()
    data.write_similarities(written, gold, numbers)
    path.write_text(written.getvalue())
    assert data.read_similarities(path, gold) == numbers
    found = evaluate_predictions("sentences", tmp_path / "stsb" / "sts-dev.csv", path)
    assert found["pearson"] == pytest.approx(100 * np.corrcoef(numbers, [score for score, _, _ in JUDGED])[0, 1])
    for text, message in (("1\n2\n", "number of lines: 2; expected 4, one for each pair"), ("x\n", ":1: 'x'; expected"),
                          ("1\ninf\n", ":2: 'inf'; expected a finite number")):  # fmt: skip
        path.write_text(text)
        with pytest.raises(DataError, match=re.escape(message)):
            data.read_similarities(path, gold)


# The score and the loss


def test_the_score_is_spearman_s_then_pearson_s() -> None:
    gold, predicted = RNG.normal(size=30), RNG.normal(size=30)
    found = metric.score(gold.tolist(), predicted.tolist())
    places = [np.argsort(np.argsort(x)).astype(float) for x in (gold, predicted)]
    assert list(found) == ["spearman", "pearson"]  # the first chooses the epoch
    assert found["spearman"] == pytest.approx(100 * np.corrcoef(*places)[0, 1])
    assert found["pearson"] == pytest.approx(100 * np.corrcoef(gold, predicted)[0, 1])


def brute_force(a: NDArray[Any], c: NDArray[Any], excluded: NDArray[Any], temperature: float) -> float:
    """InfoNCE in both directions, term by term, in float64."""
    terms = []
    for i in range(len(a)):
        others = [np.exp(a[i] @ c[j] / temperature) for j in range(len(c)) if not excluded[i, j]]
        terms.append(-np.log(np.exp(a[i] @ c[i] / temperature) / np.sum(others)))
        others = [np.exp(a[k] @ c[i] / temperature) for k in range(len(a)) if not excluded[k, i]]
        terms.append(-np.log(np.exp(a[i] @ c[i] / temperature) / np.sum(others)))
    return float(np.mean(terms))


@pytest.mark.parametrize("count", [5, 8])
def test_the_loss_is_that_of_brute_force(count: int) -> None:
    a, c = (RNG.normal(size=(rows, 3)) for rows in (5, count))
    a, c = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, c))
    excluded = RNG.random((5, count)) < 0.3
    excluded[np.arange(5), np.arange(5)] = False
    assert excluded.any()
    found = info_nce(*(torch.from_numpy(x) for x in (a, c, excluded)), 0.2)
    assert found.item() == pytest.approx(brute_force(a, c, excluded, 0.2), rel=1e-12)


def test_which_candidates_are_no_negatives() -> None:
    premises = [("p",), ("q",), ("p",), ("r",)]
    candidates = [("a",), ("b",), ("c",), ("b",), ("d",), ("a",)]  # the last two are contradictions
    assert same_sentences(premises, candidates).int().tolist() == [
        [0, 0, 1, 0, 0, 1],  # "c" follows from the same premise; "a" is its own sentence
        [0, 0, 0, 1, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
    ]


# The config


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("inputs.vectors=glove.txt", "inputs.vectors is 'glove.txt'; a sentence head reads nothing but the layers"),
        ("inputs.elmo.placement=both", "inputs.elmo.placement is 'both'; a sentence head reads nothing but the layers"),
        ("inputs.elmo.trainable=true", "inputs.elmo.trainable is True; a sentence head reads nothing but the layers"),
        ("inputs.elmo.layer_norm=bilm-tf", "inputs.elmo.layer_norm is 'bilm-tf': a vector would depend on the other"),
    ],
)
def test_what_encode_could_not_use_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        build(SentencesConfig, merged(asdict(SentencesConfig()), parse_assignments([setting])))


def test_the_recipe_is_the_one_that_was_measured() -> None:
    config = SentencesConfig()
    assert (config.hidden, config.dim, config.temperature, config.train.batch_size) == (512, 512, 0.05, 256)
    assert (config.inputs.elmo.layer_norm, config.inputs.elmo.mix, config.inputs.elmo.placement) == (
        "token", "layer:0", "input",
    )  # fmt: skip


# The model


def test_the_loss_and_the_answers_of_a_batch(tmp_path: Path) -> None:
    config = SentencesConfig(hidden=4, dim=6)
    model = SentenceEncoder(config, Inputs(config.inputs, frozen=FrozenLayers(embedder())), []).eval()
    examples = data.read(write_data(tmp_path))["train"][:5]
    candidates = [one.texts[1] for one in examples] + [one.texts[2] for one in examples if len(one.texts) == 3]
    assert len(candidates) == 9  # nothing contradicts the rain
    with torch.no_grad():
        a, c = (model.encode(texts).double().numpy() for texts in ([one.texts[0] for one in examples], candidates))
        loss, answers = model.loss(examples).item(), model.answers(examples)
    assert np.linalg.norm(a, axis=1) == pytest.approx(1, abs=1e-6)
    excluded = np.zeros((5, 9), dtype=bool)
    excluded[0, 1] = excluded[1, 0] = True  # both follow from the baker's bread
    assert loss == pytest.approx(brute_force(a, c, excluded, 0.05), abs=1e-4)
    assert answers == pytest.approx([a[k] @ c[k] for k in range(5)], abs=1e-5)


def test_eight_examples_are_learned_by_heart(tmp_path: Path) -> None:
    examples = data.read(write_data(tmp_path))["train"]
    assert len(examples) == 8
    config = SentencesConfig(hidden=256, dim=64)
    elmo = replace(config.inputs.elmo, mix="learned", dropout=0.0)
    config = replace(config, inputs=replace(config.inputs, elmo=elmo))
    torch.manual_seed(0)
    frozen = FrozenLayers(embedder(), [text for example in examples for text in example.texts])
    model = SentenceEncoder(config, Inputs(config.inputs, frozen=frozen), [])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    before = model.loss(examples).item()
    for _ in range(300):
        optimizer.zero_grad()
        loss = model.loss(examples)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert loss.item() < 0.2 < 2 < before
    with torch.no_grad():
        a = model.encode([one.texts[0] for one in examples])
        c = model.encode([one.texts[1] for one in examples])
    premises = [one.texts[0] for one in examples]
    best = (a @ c.T).argmax(dim=1).tolist()
    assert [premises[k] for k in best] == premises  # each premise finds a sentence that follows from it


def test_a_run_that_stopped_is_resumed_as_it_was_begun(tmp_path: Path) -> None:
    config = SentencesConfig(
        hidden=4,
        dim=6,
        inputs=InputsConfig(ElmoConfig(str(write_model(tmp_path / "lm")), dropout=0.1, layer_norm="token")),
        train=TrainConfig(epochs=4, batch_size=3, device="cpu"),
    )
    splits, cache = data.read(write_data(tmp_path / "data")), tmp_path / "cache"
    whole = TaskTraining(TASK, config, splits, tmp_path / "whole", cache=cache)
    whole.train()
    half = replace(config, train=replace(config.train, epochs=2))
    TaskTraining(TASK, half, splits, tmp_path / "parts", cache=cache).train()
    resumed = TaskTraining(TASK, config, splits, tmp_path / "parts", cache=cache, resume=True)
    resumed.train()
    assert resumed.progress == whole.progress
    ours, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_trained_head_is_loaded_and_predicts(tmp_path: Path) -> None:
    model = write_model(tmp_path / "elmo")
    trained = train_head(model, tmp_path)
    assert task_named("sentences") is TASK
    predictor = load_task(trained, device="cpu")
    (answer,) = predictor.predict(["A baker lifts bread.\tSomeone is baking."])
    vectors = load(model, device="cpu").encode(["A baker lifts bread.", "Someone is baking."], pooling=str(trained))
    assert answer["similarity"] == pytest.approx(vectors[0] @ vectors[1], abs=2e-3)  # a task's layers are in float16
    scores = json.loads((trained / "config.json").read_text())["scores"]["dev"]
    assert predictor.evaluate(tmp_path / "data", "dev", tmp_path / "out.txt") == pytest.approx(scores)
    assert evaluate_predictions("sentences", tmp_path / "data/stsb/sts-dev.csv", tmp_path / "out.txt") == (
        pytest.approx(scores)
    )
