"""The reader: attentions in NumPy, the loss and the span search by brute force, and a model that learns and loads."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmo.embed.embedder import load
from elmo.model.layers import Layers
from elmo.tasks import word_vectors
from elmo.tasks.batches import answers
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs, InputVectors
from elmo.tasks.layers.encoder import BiGRU
from elmo.tasks.predict import Predictor, load_task
from elmo.tasks.squad import data, model, paragraph
from elmo.tasks.squad.attention import BiAttention, SelfAttention
from elmo.tasks.squad.data import Answer, Gold, Questions
from elmo.tasks.squad.model import TASK, Reader, SquadConfig
from elmo.tasks.squad.paragraph import Paragraph
from elmo.tasks.squad.spans import best_spans
from elmo.tasks.task import task_named
from elmo.tasks.train import TaskTraining
from elmo.text.tokens import Tokens
from embedders import assert_near, elmo
from tasks.both_directions import both_directions
from tasks.small_squad import PARAGRAPHS, article, eight, small, write_files, write_squad

PLACEMENTS = ["none", "input", "output", "both"]
EIGHT = eight()
Array = NDArray[Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def windows_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paragraph, "WINDOW", 10)
    monkeypatch.setattr(paragraph, "STRIDE", 5)


def reader(config: SquadConfig) -> Reader:
    torch.manual_seed(3)
    read = word_vectors.read_vectors(Path(str(config.inputs.vectors)), 1000)
    frozen = None
    if config.inputs.elmo.placement != "none":
        frozen = FrozenLayers(load(config.inputs.elmo.model, device="cpu"))
    inputs = Inputs(config.inputs, read.words, torch.from_numpy(read.matrix), frozen)
    built = TASK.model(config, inputs, [])
    assert isinstance(built, Reader)
    return built.eval()


def scores(reader: Reader, examples: Sequence[Questions]) -> list[Array]:
    """The scores of each row, (2, tokens of its window)."""
    rows = model._rows(examples)
    with torch.no_grad():
        found = reader._scores(*map(reader.inputs, zip(*rows, strict=True))).double().numpy()
    for n, (_, window) in enumerate(rows):
        assert np.isneginf(found[:, n, len(window) :]).all()
    return [found[:, n, : len(window)] for n, (_, window) in enumerate(rows)]


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def trilinear(u: Array, v: Array, w: Array, a: Array, b: Array) -> Array:
    return np.array([[u @ x + v @ y + w @ (x * y) for y in b] for x in a])


def values(*parameters: Tensor) -> list[Array]:
    return [parameter.detach().numpy() for parameter in parameters]


def dense(layer: torch.nn.Linear, x: Array) -> Array:
    found: Array = layer(torch.from_numpy(x)).detach().numpy()
    return found


def gru(network: BiGRU, x: Array) -> Array:
    read: Array = both_directions(network.layer, torch.from_numpy(x)).detach().numpy()
    return read


def bi_attended(attention: BiAttention, h: Array, q: Array) -> Array:
    similar = trilinear(*values(attention.u, attention.v, attention.w), h, q)
    c = softmax(similar) @ q
    k = softmax(similar.max(axis=1)) @ h
    return np.hstack([h, c, h * c, c * k])


def self_attended(attention: SelfAttention, x: Array) -> Array:
    h = gru(attention.encoder, x)
    v, w = values(attention.v, attention.w)
    c = np.zeros_like(h)
    for n in range(len(h)):
        others = np.delete(h, n, axis=0)
        if len(others):
            c[n] = softmax(trilinear(0 * v, v, w, h[n : n + 1], others)[0]) @ others
    return np.maximum(dense(attention.merge, np.hstack([h, c, h * c])), 0)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_scores_are_those_of_the_formulas(placement: str, files: Path) -> None:
    """Everything but the GRUs computed again, question by question, without padding and with loops."""
    read = reader(small(files, placement))

    def encoded(tokens: Tokens) -> Array:
        x = read.inputs([tokens])
        hidden = gru(read.encoder, x.vectors[0].detach().numpy())
        found: Array = read.inputs.at_output(torch.from_numpy(hidden)[None], x.layers)[0].detach().numpy()
        return found

    for example, found in zip(EIGHT, scores(read, EIGHT), strict=True):
        question, window = map(encoded, example.texts)
        x = np.maximum(dense(read.merge, bi_attended(read.attention, window, question)), 0)
        x = x + self_attended(read.self_attention, x)
        start = gru(read.start, x)
        end = gru(read.end, np.hstack([x, start]))
        expected = [dense(read.start_score, start)[:, 0], dense(read.end_score, end)[:, 0]]
        assert_near(found, np.array(expected))


def test_a_paragraph_of_one_token_has_nothing_to_attend_to(files: Path) -> None:
    (found,) = scores(reader(small(files, "both")), [data.parse("Rain\tWhat fell?")])
    assert found.shape == (2, 1) and np.isfinite(found).all()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_question_does_not_depend_on_its_batch_or_on_padding(
    placement: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reader(small(files, placement))
    alone = [scores(read, [example])[0] for example in EIGHT]
    together = scores(read, EIGHT)
    for one, other in zip(alone, together, strict=True):
        assert_near(one, other)
    forward = read.inputs.forward

    def spoiled(texts: Sequence[Tokens]) -> InputVectors:
        x = forward(texts)
        outside = ~x.mask[..., None]
        layers = x.layers and Layers(x.layers.activations.masked_fill(outside, 50.0), x.mask)
        return replace(x, vectors=x.vectors.masked_fill(outside, 50.0), layers=layers)

    monkeypatch.setattr(read.inputs, "forward", spoiled)
    for one, other in zip(together, scores(read, EIGHT), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_loss_sums_over_gold_answers_and_windows_share_a_softmax(files: Path, windows_of_ten: None) -> None:
    read = reader(small(files, "both"))
    asked = eight()  # of one to five windows
    assert sorted({len(example.paragraph.windows) for example in asked}) == [1, 4, 5]
    rows = iter(scores(read, asked))
    expected = []
    for example in asked:
        mine = [(window, next(rows)) for window in example.paragraph.windows]
        spans = example.gold.spans
        assert spans
        for side in (0, 1):
            total = sum(np.exp(found[side]).sum() for _, found in mine)
            places = {
                (n, span[side] - window.start)
                for n, (window, _) in enumerate(mine)
                for span in spans
                if window.start <= span[0] and span[1] < window.stop
            }
            expected.append(-np.log(sum(np.exp(mine[n][1][side, place]) for n, place in places) / total))
    loss = read.loss(asked)
    assert loss.item() == pytest.approx(sum(expected) / len(asked), rel=1e-4)
    single = [example for example in asked if len(example.paragraph.windows) == 1]
    alone = [read.loss([example]).item() for example in single]
    assert read.loss(single).item() == pytest.approx(np.mean(alone), rel=1e-4)


@pytest.mark.parametrize("longest", [1, 2, 3, 8])
def test_the_best_span_is_that_of_all_spans(longest: int) -> None:
    rng = np.random.default_rng(longest)
    drawn = rng.normal(size=(2, 20, 6)).astype(np.float32)
    lengths = rng.integers(1, 7, 20)
    drawn[:, np.arange(6) >= lengths[:, None]] = -np.inf
    for n, found in enumerate(best_spans(torch.from_numpy(drawn), longest)):
        start, end = drawn[:, n].astype(np.float64)
        spans = [(i, j) for i in range(lengths[n]) for j in range(i, min(i + longest, lengths[n]))]
        first, last = max(spans, key=lambda span: start[span[0]] + end[span[1]])
        assert (found.first, found.last) == (first, last)
        assert found.score == pytest.approx(start[first] + end[last], abs=1e-5)
        assert found.log_starts == pytest.approx(np.log(np.exp(start).sum()), abs=1e-5)
        assert found.log_ends == pytest.approx(np.log(np.exp(end).sum()), abs=1e-5)


@pytest.mark.parametrize("cells", [1, 250, 1 << 23])
def test_an_answer_is_the_best_piece_of_all_windows(
    cells: int, files: Path, windows_of_ten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the parts in which the windows are computed; several questions about a paragraph at once."""
    monkeypatch.setattr(model, "CELLS", cells)
    read = reader(small(files, "both", "max_answer=3"))
    several = [data.parse({"context": text, "questions": [q for q, _ in asked]}) for text, asked in PARAGRAPHS]
    single = eight()
    with torch.no_grad():
        found: list[Answer] = [answer for some in read.answers(several) for answer in some]
        ones = read.answers(single)
    for answer, one, example in zip(found, ones, single, strict=True):
        mine = list(zip(example.paragraph.windows, scores(read, [example]), strict=True))
        total = np.prod([sum(np.exp(row[side]).sum() for _, row in mine) for side in (0, 1)])
        spans = [
            (np.exp(row[0, i] + row[1, j]) / total, window.start + i, window.start + j)
            for window, row in mine
            for i in range(len(window))
            for j in range(i, min(i + 3, len(window)))
        ]
        probability, first, last = max(spans)
        text, tokens = example.paragraph.text, example.paragraph.tokens
        start, end = tokens[first].start, tokens[last].end
        for given in (answer, one):
            assert given[:3] == (text[start:end], start, end)
            assert given.score == pytest.approx(probability, rel=1e-4)


def test_an_empty_paragraph_has_an_empty_answer(files: Path) -> None:
    read = reader(small(files, "both"))
    none, some = Questions.of(Paragraph(" \n"), "Why?"), EIGHT[0]
    nothing = Answer("", 0, 0, 0.0)
    with torch.no_grad():
        (alone,) = read.answers([some])
        assert read.answers([none]) == [nothing]
        assert read.answers([none, some, none]) == [nothing, alone, nothing]
        both = data.parse({"context": "", "questions": ["Why?", "How?"]})
        assert read.answers([both]) == [(nothing, nothing)]


def test_a_paragraph_of_ten_thousand_tokens_is_read_in_windows(files: Path) -> None:
    """The most that is compared at once is bounded: windows of 1,024 tokens, a few at a time."""
    read = reader(small(files, "none"))
    text = " ".join(["Rain fell on the old mill ."] * 1429)
    asked = Questions.of(Paragraph(text), "What fell?")
    assert len(asked.paragraph.tokens) == 10_003
    assert max(map(len, asked.paragraph.windows)) == 1024
    parts = list(model._parts(model._rows([asked])))
    assert [len(part) for part in parts] == [8, 8, 3]
    with torch.no_grad():
        (found,) = read.answers([asked])
    assert text[found.start : found.end] == found.text != ""


def test_parts_have_all_rows_in_order_and_at_most_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "CELLS", 100)
    rows = [(("?",), ("x",) * length) for length in [3, 3, 5, 5, 5, 20, 1, 9, 10, 10]]
    parts = list(model._parts(rows))
    assert [row for part in parts for row in part] == rows
    assert [[len(window) for _, window in part] for part in parts] == [[3, 3, 5, 5], [5], [20], [1], [9], [10], [10]]
    assert list(model._parts([])) == []


def test_dropout_stands_before_every_gru_and_every_attention(files: Path) -> None:
    read = reader(small(files, "both", "dropout=0.5")).train()
    seen: list[tuple[int, ...]] = []
    for module in (read.dropout, read.self_attention.dropout):
        module.register_forward_hook(lambda _, given, __: seen.append(tuple(given[0].shape)))
    example = EIGHT[0]
    with torch.no_grad():
        read.loss([example])
    question, window = map(len, example.texts)
    dim, both = 7 + 4 + 10, 12  # words, characters and ELMo; both directions of a GRU
    assert seen == [
        (1, window, dim), (1, window, both), (1, question, dim), (1, question, both), (1, window, 5), (1, window, both),
        (1, window, 5), (1, window, 5 + both),
    ]  # fmt: skip
    assert read.dropout.p == read.self_attention.dropout.p == 0.5
    assert read.loss([example]).item() != read.loss([example]).item()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_parameter_is_learned(placement: str, files: Path) -> None:
    read = reader(small(files, placement, "inputs.vectors_trainable=true", "feedforward=12"))
    torch.autograd.backward(read.loss(EIGHT))
    names = {name for name, parameter in read.named_parameters() if parameter.grad is None or not parameter.grad.any()}
    assert names == set()
    assert ("inputs.mix_output.gamma" in dict(read.named_parameters())) == (placement in ("output", "both"))


@pytest.mark.parametrize("placement", ["none", "both"])
def test_eight_questions_are_learned_saved_and_loaded(placement: str, files: Path, tmp_path: Path) -> None:
    sizes = "hidden=48", "feedforward=48", "inputs.characters.filters=20", "train.batch_size=8"
    adam = "train.optimizer=adam", "train.learning_rate=0.02", "train.clip_norm=5", "train.ema=0.5"
    config = small(files, placement, *sizes, *adam, "train.epochs=22", "train.patience=none")
    splits = {"train": EIGHT, "dev": EIGHT, "test": EIGHT[::-1]}
    training = TaskTraining(TASK, config, splits, tmp_path / "run", cache=tmp_path / "cache")
    assert training.train()
    perfect = {"f1": 100.0, "em": 100.0}
    loaded = load_task(tmp_path / "run" / "model", "cpu")
    assert loaded.scores == {"dev": perfect, "test": perfect}
    assert (loaded.task, loaded.trained.config) == (TASK, config)
    given = answers(loaded.trained.model, EIGHT, 3)
    assert TASK.score([example.gold for example in EIGHT], given) == perfect
    for answer, example in zip(given, EIGHT, strict=True):
        assert answer.text == example.paragraph.text[answer.start : answer.end]
        assert answer.score > 0.05  # a span of hundreds; the first epoch without a mistake is kept


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has been trained a little, from files, with the command."""
    place = tmp_path_factory.mktemp("trained")
    (place / "data").mkdir()
    write_squad(place / "data" / "train.json", *[article(PARAGRAPHS, f"n{n}") for n in range(2)])
    write_squad(place / "data" / "test.json", article(PARAGRAPHS, "all"))
    sizes = [
        "hidden=4", "feedforward=4", "train.epochs=1", "train.device=cpu", f"inputs.elmo.model={files / 'elmo'}",
        "inputs.characters.filters=3",
    ]  # fmt: skip
    arguments = [part for size in sizes for part in ("--set", size)]
    ended = elmo("train", "squad", place / "data", place / "run", *arguments)
    assert ended.code == 0, ended.err
    return place


def test_predictions_of_a_model_score_as_it_does(trained: Path, tmp_path: Path) -> None:
    ended = elmo(
        "evaluate", trained / "run" / "model", trained / "data", "--output", tmp_path / "predictions.json", "--json"
    )
    assert ended.code == 0, ended.err
    scored = elmo(
        "evaluate", "squad", trained / "data" / "test.json", "--predictions", tmp_path / "predictions.json", "--json"
    )
    assert json.loads(scored.out) == json.loads(ended.out)
    assert json.loads((tmp_path / "predictions.json").read_text()).keys() == {example.id for example in EIGHT}


def test_lines_are_answered(trained: Path, tmp_path: Path) -> None:
    text = PARAGRAPHS[0][0]
    items = [
        {"context": text, "question": "When was it built?"},
        {"paragraph": text, "questions": ["When was it built?", "Who owns it?"]},
        {"context": "", "question": "Why?"},
    ]
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")
    ended = elmo("predict", trained / "run" / "model", tmp_path / "asked.jsonl")
    assert ended.code == 0, ended.err
    one, two, empty = map(json.loads, ended.out.splitlines())
    assert list(one) == ["line", "answer", "start", "end", "score"]
    assert one["answer"] == text[one["start"] : one["end"]]
    assert two["answers"][0] == {"question": "When was it built?", **{k: v for k, v in one.items() if k != "line"}}
    assert empty == {"line": 3, "answer": "", "start": 0, "end": 0, "score": 0.0}


def test_long_items_are_buffered_by_their_tokens(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers of all items of a buffer are in memory, so it ends after so many tokens."""
    monkeypatch.setattr("elmo.tasks.predict.BUFFER_TOKENS", 60)
    loaded = load_task(trained / "run" / "model", "cpu")
    sizes: list[int] = []
    plain = Predictor._predict
    monkeypatch.setattr(
        Predictor, "_predict", lambda self, examples: (sizes.append(len(examples)), plain(self, examples))[1]
    )
    found = loaded.predict([f"{example.paragraph.text}\t{example.asked}" for example in EIGHT])
    assert len(found) == 8
    tokens = [sum(map(len, example.texts)) for example in EIGHT]
    assert tokens == [32, 31, 33, 29, 31, 25, 6, 9]
    assert sizes == [2, 2, 3, 1]


def test_the_defaults_are_the_papers() -> None:
    config = SquadConfig()
    assert (config.hidden, config.feedforward, config.dropout, config.max_answer) == (90, 180, 0.2, 17)
    elmo_config, characters = config.inputs.elmo, config.inputs.characters
    assert (elmo_config.placement, elmo_config.mix_l2, elmo_config.dropout) == ("both", 0.0, 0.5)
    assert characters is not None and (characters.filters, characters.width) == (100, 5)
    assert not config.inputs.vectors_trainable
    train = config.train
    assert (train.optimizer, train.learning_rate, train.batch_size, train.ema) == ("adadelta", 1.0, 45, 0.999)
    assert task_named("squad") is TASK


def test_a_gold_answer_longer_than_may_be_predicted_is_learned(files: Path) -> None:
    read = reader(small(files, "none", "max_answer=1"))
    example = EIGHT[2]
    assert example.gold == Gold(("the River Wey",), ((10, 12),))
    assert np.isfinite(read.loss([example]).item())
    with torch.no_grad():
        (found,) = read.answers([example])
    assert len(Paragraph(found.text).tokens) == 1
