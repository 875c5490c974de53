"""Entailment: what is read and refused, alignment and pooling of a pair in NumPy, a model that learns and loads."""

import json
import logging
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elmo.config import build, merged, parse_assignments
from elmo.embed.embedder import load
from elmo.errors import ConfigError, DataError
from elmo.model.layers import Layers
from elmo.tasks import folder, word_vectors
from elmo.tasks.batches import answers
from elmo.tasks.examples import Example
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs, InputVectors, Texts
from elmo.tasks.layers.encoder import BiLSTM
from elmo.tasks.snli import data
from elmo.tasks.snli.model import TASK, Esim, SnliConfig, align, pool
from elmo.tasks.task import task_named
from elmo.tasks.train import TaskTraining
from embedders import assert_near, write_model
from reference_files import needs_shared, unpacked
from tasks.both_directions import both_directions

PLACEMENTS = ["none", "input", "output", "both"]
PAIRS = [
    ("A baker lifts warm bread out of the oven.", "Someone is baking.", "entailment"),
    ("A baker lifts warm bread out of the oven.", "The baker opened the shop at dawn.", "neutral"),
    ("A baker lifts warm bread out of the oven.", "Nobody is near the oven.", "contradiction"),
    ("Two goats climb a steep hill.", "Animals are on a hill.", "entailment"),
    ("Two goats climb a steep hill.", "The goats are looking for their herd, which is behind the hill.", "neutral"),
    ("Two goats climb a steep hill.", "The goats sleep.", "contradiction"),
    ("Rain.", "It is wet.", "entailment"),
    ("Rain.", "It's dry and the sun shines on everybody.", "contradiction"),
]
EIGHT = [Example((data.tokens(a), data.tokens(b)), label) for a, b, label in PAIRS]


def line(label: str = "neutral", premise: str = "A door is open.", hypothesis: str = "It is late.", **more: Any) -> str:
    return json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis, **more})


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{one}\n" for one in lines), encoding="utf-8")
    return path


# Reading


def test_pairs_are_read(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "train.jsonl",
        line("entailment", 'She says "no" to him.', "He isn't happy", sentence1_parse="(ROOT)", pairID="7"),
        "",
        line("contradiction", "A\u2028\x85 boat", "Boats , plural"),  # ends of lines to Unicode, not to JSON lines
    )
    assert data.read_file(path) == [
        Example((("She", "says", '"', "no", '"', "to", "him", "."), ("He", "isn", "'t", "happy")), "entailment"),
        Example((("A", "boat"), ("Boats", ",", "plural")), "contradiction"),
    ]


@pytest.mark.parametrize(
    ("raw", "penn"),
    [
        ("The cook's hat isn't white.", "The cook 's hat is n't white ."),
        ("They can't say they've won't.", "They ca n't say they 've wo n't ."),
        ("I'm sure she'd go; we'll see, you're late", "I 'm sure she 'd go ; we 'll see , you 're late"),
        ('A sign says "STOP", then "GO".', "A sign says `` STOP '' , then `` GO '' ."),
        ("IT'S NOON, DON'T SLEEP", "IT 'S NOON , DO N'T SLEEP"),
        ("The boys' red-and-blue kites (two) fly.", "The boys ' red-and-blue kites ( two ) fly ."),
        ("A cat sleeps.", "A cat sleeps ."),
    ],
)
def test_raw_penn_and_tokenised_text_have_the_same_tokens(raw: str, penn: str) -> None:
    assert data.tokens(penn) == data.tokens(raw)
    assert data.tokens(" ".join(data.tokens(raw))) == data.tokens(raw)


def test_pairs_without_a_label_are_skipped_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_lines(tmp_path / "dev.jsonl", line("-"), line(), line("-", hypothesis=""), line("entailment"))
    with caplog.at_level(logging.INFO, "elmo"):
        assert [example.gold for example in data.read_file(path)] == ["neutral", "entailment"]
    assert caplog.messages == [f"{path}: skipped 2 pairs without a label, kept 2"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("no JSON", "found 'no JSON' at column 1; expected a JSON object with gold_label, sentence1, sentence2"),
        ('{"a": 1 2}', "found '2}' at column 9; expected a JSON object with gold_label, sentence1, sentence2"),
        ("[1, 2]", "found '[1, 2]' at column 1; expected a JSON object with gold_label, sentence1, sentence2"),
        (
            '{"gold_label": "neutral", "sentence1": "A door."}',
            "found no sentence2; expected a string for each of gold_label, sentence1, sentence2",
        ),
        (
            '{"gold_label": 1, "sentence1": "A door.", "sentence2": "A wall."}',
            "found gold_label 1; expected a string for each of gold_label, sentence1, sentence2",
        ),
        (
            line("maybe"),
            "found gold_label 'maybe'; expected entailment, neutral, contradiction, or - for none",
        ),
        (line(premise="  "), "found sentence1 '  '; expected a sentence"),
        (line(hypothesis=""), "found sentence2 ''; expected a sentence"),
    ],
)
def test_a_bad_line_is_named(bad: str, message: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl", line(), "", bad, line())
    with pytest.raises(DataError) as error:
        data.read_file(path)
    assert str(error.value) == f"{path}:3: {message}"


def test_what_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_bytes(line().encode() + b'\n{"gold_label": "\xff"}\n')
    with pytest.raises(DataError, match=re.escape(f"{path}: line 2 is not UTF-8 (byte 17 is 0xff)")):
        data.read_file(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: cannot be read (Is a directory)")):
        data.read_file(tmp_path)


def test_a_folder_has_its_parts_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: contains no file of the task; expected some of snli")):
        data.read(tmp_path)
    write_lines(tmp_path / "snli_dev.jsonl", line())
    assert {part: len(pairs) for part, pairs in data.read(tmp_path).items()} == {"dev": 1}
    for number, name in enumerate(("train.jsonl", "snli_train_subset.jsonl", "snli_1.0_train.jsonl"), 1):
        write_lines(tmp_path / name, *[line()] * number)
        assert len(data.read(tmp_path)["train"]) == number  # the official name counts most
    write_lines(tmp_path / "test.jsonl", line(), line())
    assert {part: len(pairs) for part, pairs in data.read(tmp_path).items()} == {"train": 3, "dev": 1, "test": 2}


def test_labels_have_one_order() -> None:
    assert data.labels(EIGHT) == data.labels([]) == ["entailment", "neutral", "contradiction"]


@pytest.mark.parametrize(
    "item",
    [
        {"sentence1": "A door isn't open.", "sentence2": "It is late"},
        {"premise": "A door is n't open .", "hypothesis": ["It", "is", "late"], "label": "neutral"},
        ["A door isn't open.", "It is late"],
        "A door isn't open.\tIt is late",
    ],
)
def test_what_is_asked_is_parsed(item: Any) -> None:
    example = data.parse(item)
    assert example == Example((("A", "door", "isn", "'t", "open", "."), ("It", "is", "late")))
    assert data.to_json(example, "neutral") == {
        "premise": ["A", "door", "isn", "'t", "open", "."],
        "hypothesis": ["It", "is", "late"],
        "label": "neutral",
    }
    assert data.parse(data.to_json(example, "neutral")) == example


@pytest.mark.parametrize(
    "item",
    ["one", "a\tb\tc", "a\t ", ["a"], ["a", "b", "c"], ["a", 3], ["a", []], ["a", ["b", ""]], {"premise": "a"}, {}, 5],
)
def test_what_is_no_pair_is_refused(item: Any) -> None:
    with pytest.raises(DataError, match=re.escape(f"{item!r}: expected premise and hypothesis, with a tab between")):
        data.parse(item)


@needs_shared
def test_the_real_pairs(tmp_path: Path) -> None:
    splits = data.read(unpacked("snli", tmp_path))
    assert {part: Counter(example.gold for example in pairs) for part, pairs in splits.items()} == {
        "train": {"entailment": 30159, "neutral": 26492, "contradiction": 18790},
        "dev": {"entailment": 3329, "neutral": 3235, "contradiction": 3278},
        "test": {"entailment": 3368, "neutral": 3219, "contradiction": 3237},
    }
    # dev and test are Penn's, train is raw: what Penn's rules wrote is in none of them, what they split off is in all
    for pairs in splits.values():
        counts = Counter(token for example in pairs for text in example.texts for token in text)
        assert not {"``", "''", "n't"} & set(counts)
        assert min(counts["'s"], counts['"'], counts["'t"]) > 20
    # and hardly anything else in them has been touched
    sentences = (tmp_path / "snli" / "snli_dev.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(one)[name] for one in sentences for name in ("sentence1", "sentence2")]
    assert sum(data.tokens(text) != tuple(text.split()) for text in texts) / len(texts) < 0.006


# The model


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder and a file of word vectors."""
    place = tmp_path_factory.mktemp("files")
    write_model(place / "elmo")
    rng = np.random.default_rng(5)
    words = sorted({token.lower() for example in EIGHT for text in example.texts for token in text} - {"goats", "oven"})
    rows = (" ".join([word, *(f"{value:.3f}" for value in rng.normal(size=7))]) for word in words)
    (place / "glove.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return place


def small(files: Path, placement: str, *assignments: str) -> SnliConfig:
    sizes = [
        f"inputs.elmo.model={files / 'elmo'}", f"inputs.elmo.placement={placement}", "inputs.elmo.dropout=0",
        f"inputs.vectors={files / 'glove.txt' if placement in ('none', 'output') else 'none'}", "hidden=6",
        "projection=5", "feedforward=7", "dropout=0", "train.device=cpu", "train.learning_rate=0.01",
        "train.batch_size=3",
    ]  # fmt: skip
    config: SnliConfig = build(SnliConfig, merged(asdict(SnliConfig()), parse_assignments([*sizes, *assignments])))
    return config


def model_of(config: SnliConfig) -> Esim:
    torch.manual_seed(3)
    words, matrix, frozen = [], None, None
    if config.inputs.vectors is not None:
        read = word_vectors.read_vectors(Path(config.inputs.vectors), 1000)
        words, matrix = read.words, torch.from_numpy(read.matrix)
    if config.inputs.elmo.placement != "none":
        frozen = FrozenLayers(load(config.inputs.elmo.model, device="cpu"))
    model = TASK.model(config, Inputs(config.inputs, words, matrix, frozen), data.labels([]))
    assert isinstance(model, Esim)
    return model


def scores(model: Esim, examples: list[Example]) -> NDArray[np.float64]:
    with torch.no_grad():
        found: NDArray[np.float64] = model.score_labels(examples).double().numpy()
    return found


def softmax(x: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def test_alignment_and_pooling_are_those_of_each_pair_alone() -> None:
    rng = np.random.default_rng(1)
    lengths = [(1, 1), (4, 2), (3, 6), (5, 1), (2, 6)]
    a, b = rng.normal(size=(5, 5, 3)), rng.normal(size=(5, 6, 3))  # no zeros where there is no token
    a_mask, b_mask = (np.arange(n) < np.array(lengths)[:, side, None] for side, n in enumerate((5, 6)))
    tensors = [torch.from_numpy(array) for array in (a, a_mask, b, b_mask)]
    from_b, from_a = align(*tensors)
    pooled = pool(tensors[0], tensors[1])
    assert pooled.shape == (5, 6)
    for row, (p, q) in enumerate(lengths):
        one, other = a[row, :p], b[row, :q]
        match = np.array([[sum(x * y) for y in other] for x in one])
        np.testing.assert_allclose(from_b[row, :p], softmax(match) @ other, atol=1e-12)
        np.testing.assert_allclose(from_a[row, :q], softmax(match.T) @ one, atol=1e-12)
        np.testing.assert_allclose(pooled[row], [*one.mean(axis=0), *one.max(axis=0)], atol=1e-12)


def test_the_pooled_maximum_may_be_negative() -> None:
    x = torch.tensor([[[-2.0], [0.0]], [[-3.0], [-5.0]]])
    assert pool(x, torch.tensor([[True, False], [True, True]])).tolist() == [[-2.0, -2.0], [-4.0, -3.0]]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_scores_are_those_of_the_formulas(placement: str, files: Path) -> None:
    """Everything but the two biLSTMs computed again, pair by pair, without padding and in another way."""
    model = model_of(small(files, placement)).eval()

    def dense(layer: torch.nn.Linear, x: NDArray[Any]) -> NDArray[Any]:
        return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()  # type: ignore[no-any-return]

    def lstm(network: BiLSTM, x: NDArray[Any]) -> NDArray[Any]:
        read: NDArray[Any] = both_directions(network.layers[0], torch.from_numpy(x)).detach().numpy()
        return read

    def expected(example: Example) -> NDArray[Any]:
        both = []
        for text in example.texts:
            x = model.inputs([text])
            h = lstm(model.encoder, x.vectors[0].detach().numpy())
            both.append(model.inputs.at_output(torch.from_numpy(h)[None], x.layers)[0].detach().numpy())
        match, pooled = both[0] @ both[1].T, []
        for own, other, weights in ((both[0], both[1], softmax(match)), (both[1], both[0], softmax(match.T))):
            aligned = weights @ other
            joined = np.hstack([own, aligned, own - aligned, own * aligned])
            composed = lstm(model.composition, np.maximum(dense(model.projection, joined), 0))
            pooled += [composed.mean(axis=0), composed.max(axis=0)]
        return dense(model.classes, np.tanh(dense(model.feedforward, np.concatenate(pooled))))

    assert_near(scores(model, EIGHT), np.array([expected(example) for example in EIGHT]))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_pair_does_not_know_its_neighbours(placement: str, files: Path) -> None:
    model = model_of(small(files, placement)).eval()
    alone = np.concatenate([scores(model, [example]) for example in EIGHT])
    assert np.ptp(alone, axis=0).min() > 1e-3  # pairs differ by far more than they may by company
    assert_near(scores(model, EIGHT), alone)
    assert_near(scores(model, EIGHT[::-1])[::-1], alone)
    long = Example((EIGHT[0].texts[0] * 4, EIGHT[4].texts[1] * 3))
    assert_near(scores(model, [*EIGHT, long])[:8], alone)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_nothing_is_read_where_there_is_no_token(placement: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(small(files, placement)).eval()
    clean = scores(model, EIGHT)
    read = model.inputs.forward

    def spoiled(texts: Texts) -> InputVectors:
        x = read(texts)
        outside = ~x.mask[..., None]
        layers = x.layers and Layers(x.layers.activations.masked_fill(outside, 50.0), x.mask)
        return replace(x, vectors=x.vectors.masked_fill(outside, 50.0), layers=layers)

    monkeypatch.setattr(model.inputs, "forward", spoiled)
    np.testing.assert_array_equal(scores(model, EIGHT), clean)


def test_dropout_stands_before_both_networks_and_the_last_layers(files: Path) -> None:
    model = model_of(small(files, "both", "dropout=0.5")).train()
    seen: list[tuple[int, ...]] = []
    for module in (model.token_dropout, model.dropout):
        module.register_forward_hook(lambda _, given, __: seen.append(tuple(given[0].shape)))
    first, second = scores(model, EIGHT), scores(model, EIGHT)
    longest = max(len(text) for example in EIGHT for text in example.texts)
    assert seen[:3] == [(16, longest, 10), (16, longest, 5), (8, 8 * 6)]
    assert model.token_dropout.p == model.dropout.p == 0.5
    assert not np.array_equal(first, second)
    assert np.array_equal(scores(model.eval(), EIGHT), scores(model, EIGHT))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_parameter_is_learned(placement: str, files: Path) -> None:
    model = model_of(small(files, placement, "inputs.vectors_trainable=true"))
    loss = model.loss(EIGHT)
    torch.autograd.backward(loss)
    names = {name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()}
    assert names == set()
    assert ("inputs.mix_output.gamma" in dict(model.named_parameters())) == (placement in ("output", "both"))


def test_the_loss_is_the_mean_cross_entropy(files: Path) -> None:
    model = model_of(small(files, "both")).eval()
    rows = np.log(softmax(scores(model, EIGHT)))
    gold = [data.LABELS.index(example.gold) for example in EIGHT]
    loss = model.loss(EIGHT)
    assert loss.item() == pytest.approx(-rows[range(8), gold].mean(), rel=1e-5)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_eight_pairs_are_learned_saved_and_loaded(placement: str, files: Path, tmp_path: Path) -> None:
    sizes = "hidden=24", "projection=24", "feedforward=24", "train.batch_size=4"
    patient = "train.epochs=25", "train.patience=none", "train.schedule=constant"
    config = small(files, placement, *sizes, *patient)
    splits = {"train": EIGHT, "dev": EIGHT}
    training = TaskTraining(TASK, config, splits, tmp_path / "run", cache=tmp_path / "cache")
    assert training.train()
    assert training.progress.best == 100.0
    read = folder.load(tmp_path / "run" / "model", "cpu")
    assert (read.task, read.config, read.labels) == (TASK, config, list(data.LABELS))
    assert read.scores == {"dev": {"accuracy": 100.0}}
    assert isinstance(read.model, Esim) and isinstance(training.model, Esim)
    assert answers(read.model, EIGHT, 5) == [example.gold for example in EIGHT]
    unseen = [data.parse("A goat sleeps near the oven.\tIt isn't raining."), *EIGHT]
    assert_near(scores(read.model, unseen), scores(training.model.eval(), unseen))


def test_the_defaults_are_the_papers() -> None:
    config = SnliConfig()
    assert (config.hidden, config.projection, config.feedforward, config.dropout) == (300, 300, 300, 0.5)
    assert (config.inputs.elmo.placement, config.inputs.elmo.mix_l2, config.inputs.elmo.dropout) == ("both", 0.001, 0.5)
    assert config.inputs.characters is None and config.inputs.vectors is None
    train = config.train
    assert (train.epochs, train.patience, train.batch_size, train.learning_rate) == (75, 5, 32, 4e-4)
    assert (train.clip_norm, train.schedule, train.optimizer) == (10.0, "halve", "adam")
    assert task_named("snli") is TASK


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_dropout_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=rf"dropout is {share}; expected a number in \[0, 1\)"):
        SnliConfig(dropout=share)


@pytest.mark.parametrize("name", ["hidden", "projection", "feedforward"])
def test_a_layer_without_units_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is 0; expected a number in \[1, 65536\]$"):
        SnliConfig(**{name: 0})


def test_a_line_that_is_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"x.jsonl:1: found '\[.* at column 1; expected a JSON object"):
        data.read_file(tmp_path / "x.jsonl")
