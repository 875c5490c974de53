"""Sentiment: trees, every refusal, the network against NumPy, and a small training whose model is saved and loaded."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo.errors import ConfigError, DataError
from elmo.tasks import folder
from elmo.tasks.batches import answers
from elmo.tasks.examples import Example, fraction
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import CharactersConfig, ElmoConfig, Inputs, InputsConfig
from elmo.tasks.reading import parse_sentence
from elmo.tasks.sst import data
from elmo.tasks.sst.model import BCN, TASK, Maxout, Pooling, SstConfig, biattention
from elmo.tasks.task import task_named
from elmo.tasks.train import TaskTraining
from elmo.tasks.train_config import TrainConfig
from embedders import assert_close, assert_near, embedder, write_model
from reference_files import needs_shared, unpacked

SOUP = "(4 (3 (2 The) (2 soup)) (4 (2 was) (4 superb)))"
PLOT = "(1 (2 (2 The) (2 plot)) (0 (2 was) (0 (2 a) (0 (1 muddled) (1 mess)))))"
SMALL = {
    "prenet": 12, "hidden": 8, "maxout": 16, "pool": 3,
    "prenet_dropout": 0.0, "integrator_dropout": 0.0, "maxout_dropout": 0.0, "maxout_dropout_2": 0.0,
}  # fmt: skip
EIGHT = [
    Example((tuple(text.split()),), label)
    for text, label in [
        ("dreadful from start to end", "0"),
        ("dull", "1"),
        ("a rather limp second act", "1"),
        ("it opens on a Tuesday", "2"),
        ("the reel", "2"),
        ("quite charming", "3"),
        ("a warm and quick-witted little comedy", "3"),
        ("glorious !", "4"),
    ]
]


def write(path: Path, *trees: str) -> Path:
    path.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    return path


def pairs(examples: list[Example]) -> list[tuple[str, str]]:
    return [(" ".join(example.texts[0]), example.gold) for example in examples]


# Trees


def test_every_phrase_comes_after_its_parts() -> None:
    assert pairs(data.phrases_of(SOUP, "here")) == [
        ("The", "2"),
        ("soup", "2"),
        ("The soup", "3"),
        ("was", "2"),
        ("superb", "4"),
        ("was superb", "4"),
        ("The soup was superb", "4"),
    ]


def test_training_reads_distinct_phrases_and_the_rest_sentences(tmp_path: Path) -> None:
    again = "(2 (3 The) (2 plot))"  # "The" as 3 is another pair than as 2; "plot" as 2 is not new
    for part in ("train", "dev", "test"):
        write(tmp_path / f"{part}.txt", SOUP, PLOT, "", again, again)
    splits = data.read(tmp_path)
    assert pairs(splits["train"]) == [
        *pairs(data.phrases_of(SOUP, "")),
        ("plot", "2"),
        ("The plot", "2"),
        ("a", "2"),
        ("muddled", "1"),
        ("mess", "1"),
        ("muddled mess", "0"),
        ("a muddled mess", "0"),
        ("was a muddled mess", "0"),
        ("The plot was a muddled mess", "1"),
        ("The", "3"),
    ]  # the last tree's own phrase, "The plot" as 2, was there already
    sentences = [("The soup was superb", "4"), ("The plot was a muddled mess", "1"), ("The plot", "2")]
    assert pairs(splits["dev"]) == pairs(splits["test"]) == [*sentences, sentences[-1]]


def test_a_fraction_of_the_training_part_is_a_fraction_of_the_trees(tmp_path: Path) -> None:
    """With all phrases of the trees that are drawn, also those that occur in other trees before."""
    trees = [f"(3 (2 The) (4 (2 (2 plot) (2 {number})) (1 (2 was) (1 dull))))" for number in range(20)]
    write(tmp_path / "train.txt", *trees)
    some = fraction(data.read(tmp_path)["train"], 0.25, seed=1)
    whole = [example for example in some if len(example.texts[0]) == 5]
    drawn = [int(example.texts[0][2]) for example in whole]
    assert len(drawn) == 5
    assert pairs(list(some)) == list(dict.fromkeys(
        pair for number in drawn for pair in pairs(data.phrases_of(trees[number], ""))
    ))  # fmt: skip


def test_trees_of_one_word_of_three_parts_and_deep_ones() -> None:
    assert pairs(data.phrases_of("(3 Hm)", "")) == [("Hm", "3")]
    assert pairs(data.phrases_of("\t(1(2 no)(2 no)(2 no))  \r", ""))[-1] == ("no no no", "1")
    deep = "(2 " * 1000 + "x" + ")" * 1000
    assert len(data.phrases_of(deep, "")) == 1000


def test_escapes_are_undone() -> None:
    words = [r"and\/or", r"\*\*\*", "-LRB-", "-RRB-", "-LCB-", "-RCB-", "-LSB-", "-RSB-", "--", "2\u00a01\\/2"]
    tree = f"(2 {' '.join(f'(2 {word})' for word in words)})"
    assert data.phrases_of(tree, "")[-1].texts == (("and/or", "***", "(", ")", "{", "}", "[", "]", "--", "2\u00a01/2"),)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("(2 (2 a) (2 b)", "found the end of the line; expected '(' or ')'"),
        ("(2 a", "found the end of the line; expected ')'"),
        ("(2 (2 a) (2", "found the end of the line; expected '(' or a word"),
        ("(", "found the end of the line; expected a label from 0 to 4"),
        ("(2 a))", "found ')'; expected the end of the line"),
        ("(2 a) (3 b)", "found '('; expected the end of the line"),
        ("(2 a) b", "found 'b'; expected the end of the line"),
        ("((2 a) (2 b))", "found '('; expected a label from 0 to 4"),
        ("()", "found ')'; expected a label from 0 to 4"),
        ("(2 (a) (2 b))", "found 'a'; expected a label from 0 to 4"),
        ("(2 (5 a) (2 b))", "found '5'; expected a label from 0 to 4"),
        ("(-1 a)", "found '-1'; expected a label from 0 to 4"),
        ("(02 a)", "found '02'; expected a label from 0 to 4"),
        ("(2)", "found ')'; expected '(' or a word"),
        ("(2 a b)", "found 'b'; expected ')'"),
        ("(2 a (2 b))", "found '('; expected ')'"),
        ("(2 (2 a) b)", "found 'b'; expected '(' or ')'"),
        ("3\tA line of another file", "found '3'; expected '('"),
        (")", "found ')'; expected '('"),
        (f"({'x' * 99})", f"found '{'x' * 40}'; expected a label from 0 to 4"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_line(tmp_path: Path, tree: str, message: str) -> None:
    path = write(tmp_path / "dev.txt", SOUP, "", tree)
    with pytest.raises(DataError, match=f"^{re.escape(f'{path}:3: {message}')}$"):
        data.read(tmp_path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: contains no file of the task; expected some of tr")):
        data.read(tmp_path)
    (tmp_path / "test.txt").write_bytes(b"(2 caf\xe9)\n")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'test.txt'}: line 1 is not UTF-8 (byte 7")):
        data.read(tmp_path)
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: cannot be read (Is a directory)")):
        data.read_file(tmp_path, phrases=True)


@needs_shared
def test_the_treebank(tmp_path: Path) -> None:
    splits = data.read(unpacked("sst", tmp_path))
    assert {part: len(examples) for part, examples in splits.items()} == {"train": 159_274, "dev": 1101, "test": 2210}
    train = tmp_path / "sst" / "train.txt"
    trees = [data.phrases_of(line, "") for line in train.read_text(encoding="utf-8").split("\n") if line]
    assert (len(trees), sum(map(len, trees))) == (8544, 318_582)
    assert {phrase for tree in trees for phrase in tree} == set(splits["train"])
    assert len({example.texts for example in splits["train"]}) == 159_274  # no phrase has two labels
    counts = [sum(example.gold == label for example in splits["test"]) for label in data.NAMES]
    assert counts == [279, 633, 389, 510, 399]


# What is asked, answered and scored


def test_an_answer_is_shown_with_its_name() -> None:
    example = Example((("So", "good"),))
    assert data.to_json(example, "4") == {"tokens": ["So", "good"], "label": "4", "sentiment": "very positive"}
    names = ["very negative", "negative", "neutral", "positive", "very positive"]
    assert [data.to_json(example, label)["sentiment"] for label in data.labels([])] == names


def test_the_defaults_are_the_papers() -> None:
    config = SstConfig()
    assert task_named("sst") is TASK
    assert (config.train.epochs, config.train.patience, config.train.batch_size) == (40, 5, 100)
    assert (config.train.learning_rate, config.train.clip_norm, config.train.optimizer) == (1e-3, 5.0, "adam")
    assert (config.inputs.elmo.mix_l2, config.inputs.elmo.placement, config.inputs.characters) == (0.0, "input", None)
    model = BCN(config, Inputs(config.inputs, frozen=FrozenLayers(embedder())), data.labels([]))
    shapes = [tuple(layer.linear.weight.shape) for layer in model.scores if isinstance(layer, Maxout)]
    assert shapes == [(4 * 1200, 2400), (4 * 600, 1200), (4 * 5, 600)]
    assert model.integrator.layers[0].forwards.input_size == 1800


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden": 0}, "hidden is 0; expected a number in [1, 65536]"),
        ({"maxout": 1}, "maxout is 1; expected a number in [2, 65536]"),
        ({"maxout_dropout": 1.0}, "maxout_dropout is 1.0; expected a number in [0, 1)"),
    ],
)
def test_configs_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        SstConfig(**values)


# The network against NumPy, a sentence at a time; where there is no token, anything may stand


def garbage_behind(lengths: list[int], dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), max(lengths), dim, generator=generator)
    return torch.where(mask[..., None], x, 50 * x), mask


def softmax(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_biattention_is_what_numpy_says() -> None:
    x, mask = garbage_behind([1, 4, 6, 2], 5)
    context = biattention(x, mask).numpy()
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        alone = x[row, :length].double().numpy()
        assert_close(context[row, :length], softmax(alone @ alone.T) @ alone)


def test_pooling_is_what_numpy_says() -> None:
    x, mask = garbage_behind([1, 4, 6, 2], 5)
    pooling = Pooling(5)
    pooled = pooling(x, mask).detach().numpy()
    attention = pooling.attention.weight.detach().double().numpy()[0]
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        alone = x[row, :length].double().numpy()
        attended = softmax(alone @ attention) @ alone
        assert_close(pooled[row], np.concatenate([alone.max(0), alone.min(0), alone.mean(0), attended]))


def test_maxout_is_what_numpy_says() -> None:
    maxout, x = Maxout(5, 3, pool=4), torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
    weight, bias = (p.detach().double().numpy() for p in maxout.linear.parameters())
    expected = [[max(weight[4 * unit + k] @ row + bias[4 * unit + k] for k in range(4)) for unit in range(3)]
                for row in x.double().numpy()]  # fmt: skip
    assert_close(maxout(x).detach().numpy(), np.array(expected))


def small_model(placement: str, trainable: bool = False) -> BCN:
    """With everything that a word can be to it."""
    torch.manual_seed(3)
    elmo = ElmoConfig(placement=placement, mix_l2=0.0, dropout=0.0, trainable=trainable)  # type: ignore[arg-type]
    inputs = InputsConfig(elmo=elmo, characters=CharactersConfig(dim=4, filters=6, max_characters=12))
    vocabulary = sorted({word for example in EIGHT for word in example.texts[0]})[::2]
    matrix, of = torch.randn(len(vocabulary), 7), embedder()
    read = Inputs(
        inputs, vocabulary, matrix,
        frozen=None if trainable else FrozenLayers(of),
        bilm=of.bilm.requires_grad_(True) if trainable else None,
    )  # fmt: skip
    return BCN(SstConfig(**SMALL, inputs=inputs), read, data.labels([]))  # type: ignore[arg-type]


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("placement", ["none", "input", "output", "both"])
def test_a_sentence_depends_on_neither_neighbours_nor_padding(placement: str, trainable: bool) -> None:
    model = small_model(placement, trainable).eval()
    with torch.no_grad():
        together = model.score_labels(EIGHT)
        backwards = model.score_labels(EIGHT[::-1]).flip(0)
        alone = torch.cat([model.score_labels([example]) for example in EIGHT])
    assert together.shape == (8, 5)
    assert len({tuple(row) for row in together.tolist()}) == 8
    assert_near(backwards.numpy(), together.numpy())
    assert_near(alone.numpy(), together.numpy())


@pytest.mark.parametrize("placement", ["none", "input", "output", "both"])
def test_the_gradient_reaches_every_parameter(placement: str) -> None:
    model = small_model(placement).train()
    model.loss(EIGHT).backward()
    untouched = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert untouched == []


def test_the_loss_is_the_mean_cross_entropy_also_of_one_sentence() -> None:
    model = small_model("input").train()
    losses = [model.loss([one]).item() for one in EIGHT]
    p = softmax(model.score_labels(EIGHT).detach().double().numpy())
    expected = [-np.log(p[row, int(one.gold)]) for row, one in enumerate(EIGHT)]
    assert_close(np.array(losses), np.array(expected))
    assert abs(model.loss(EIGHT).item() - np.mean(expected)) < 1e-5


# Training


@pytest.mark.parametrize("placement", ["none", "input", "output", "both"])
def test_eight_sentences_are_learned_saved_and_loaded(tmp_path: Path, placement: str) -> None:
    words = sorted({word.lower() for example in EIGHT for word in example.texts[0]})
    rng = np.random.default_rng(0)
    glove = [f"{word} {' '.join(f'{value:.4f}' for value in rng.normal(size=9))}" for word in words]
    vectors = None if placement in ("input", "both") else str(write(tmp_path / "vectors.txt", *glove))
    elmo = ElmoConfig(str(write_model(tmp_path / "lm")), placement, mix_l2=0.0, dropout=0.0)  # type: ignore[arg-type]
    config = SstConfig(
        **SMALL,  # type: ignore[arg-type]
        inputs=InputsConfig(elmo, vectors=vectors, vectors_trainable=False),
        train=TrainConfig(epochs=60, patience=20, batch_size=4, learning_rate=0.01, device="cpu"),
    )
    splits = {"train": EIGHT, "dev": EIGHT, "test": EIGHT[:5]}
    training = TaskTraining(TASK, config, splits, tmp_path / "run", cache=tmp_path / "cache")
    assert training.train()
    assert training.score("dev") == {"accuracy": 100.0}
    gold = [example.gold for example in EIGHT]
    read = folder.load(tmp_path / "run" / "model", device="cpu")
    assert (read.task, read.config, read.labels) == (TASK, config, ["0", "1", "2", "3", "4"])
    assert read.scores == {"dev": {"accuracy": 100.0}, "test": {"accuracy": 100.0}}
    assert answers(read.model, EIGHT, 3) == gold
    asked = [*EIGHT, parse_sentence("A charming, rather dull second reel.")]
    assert isinstance(training.model, BCN) and isinstance(read.model, BCN)
    with torch.no_grad():
        kept, again = (model.score_labels(asked) for model in (training.model.eval(), read.model))
    assert_close(again.numpy(), kept.numpy())


def test_a_run_that_stopped_is_resumed_as_it_was_begun(tmp_path: Path) -> None:
    elmo = ElmoConfig(str(write_model(tmp_path / "lm")), mix_l2=0.0)
    config = SstConfig(
        **{**SMALL, "maxout_dropout": 0.2},  # type: ignore[arg-type]
        inputs=InputsConfig(elmo),
        train=TrainConfig(epochs=4, batch_size=3, device="cpu"),
    )
    splits = {"train": EIGHT, "dev": EIGHT}
    whole = TaskTraining(TASK, config, splits, tmp_path / "whole", cache=tmp_path / "cache")
    whole.train()
    half = replace(config, train=replace(config.train, epochs=2))
    TaskTraining(TASK, half, splits, tmp_path / "parts", cache=tmp_path / "cache").train()
    resumed = TaskTraining(TASK, config, splits, tmp_path / "parts", cache=tmp_path / "cache", resume=True)
    resumed.train()
    assert resumed.progress == whole.progress
    ours, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_tree_that_is_nested_too_deeply() -> None:
    def tree(depth: int) -> str:
        return "(2 (2 a) " * (depth - 1) + "(2 b)" + ")" * (depth - 1)

    assert len(data.phrases_of(tree(1000), "x:1")) == 1999
    with pytest.raises(DataError, match=r"^x:1: a phrase inside of 1000 others; expected the tree of a sentence$"):
        data.phrases_of(tree(1001), "x:1")
