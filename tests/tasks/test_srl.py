"""Semantic roles: decoding by brute force, scores and loss in another way, a model that learns and loads."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmo.config import build, merged, parse_assignments
from elmo.embed.embedder import load
from elmo.errors import ConfigError
from elmo.model.layers import Layers
from elmo.tasks import folder, word_vectors
from elmo.tasks.batches import answers
from elmo.tasks.columns import bio_tags
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs, InputVectors
from elmo.tasks.layers.highway_lstm_kernel import Reading
from elmo.tasks.learner import Learner
from elmo.tasks.predict import load_task
from elmo.tasks.srl import conll, data
from elmo.tasks.srl import model as model_module
from elmo.tasks.srl.data import Answer, Proposition, Sentence, Span
from elmo.tasks.srl.decoding import best_tags
from elmo.tasks.srl.model import TASK, RoleLabeler, SrlConfig
from elmo.tasks.srl.predicates import PredicateFinder
from elmo.tasks.task import task_named
from elmo.text.tokens import Tokens
from embedders import FLOAT32_SUMS, assert_near, elmo, write_model

PLACEMENTS = ["none", "input", "output", "both"]


def sentence(text: str, *propositions: dict[str, tuple[int, int]]) -> list[Sentence]:
    """The examples of a sentence, each with its predicate "V" and the spans of other roles."""
    tokens = tuple(text.split())
    found = []
    for roles in propositions:
        spans = sorted(Span(start, end, role) for role, (start, end) in roles.items())
        found.append(Proposition(roles["V"][0], tuple(spans)))
    places = tuple(one.predicate for one in found)
    if not found:
        return [Sentence((tokens,), Answer((), ()), ())]
    return [
        Sentence((tokens,), Answer((one,), places if k == 0 else None), (one.predicate,)) for k, one in enumerate(found)
    ]


GROUPS = [
    sentence("The baker sold warm bread", {"ARG0": (0, 2), "V": (2, 3), "ARG1": (3, 5)}),
    sentence("Bread sold well today", {"ARG1": (0, 1), "V": (1, 2), "ARGM-MNR": (2, 3), "ARGM-TMP": (3, 4)}),
    sentence(
        "She left because it rained",
        {"ARG0": (0, 1), "V": (1, 2), "ARGM-CAU": (2, 5)},
        {"ARGM-EXP": (3, 4), "V": (4, 5)},
    ),
    sentence("He gave up", {"ARG0": (0, 1), "V": (1, 2), "C-V": (2, 3)}),
    sentence("Rain", {"V": (0, 1)}),
    sentence("What a day"),
    sentence(
        "The goats that climb sleep", {"ARG0": (0, 2), "R-ARG0": (2, 3), "V": (3, 4)}, {"ARG0": (0, 4), "V": (4, 5)}
    ),
]
EXAMPLES = [replace(one, number=number) for number, group in enumerate(GROUPS) for one in group]
assert sum(len(example.gold.propositions) for example in EXAMPLES) == 8


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("srl")
    write_model(place / "elmo")
    rng = np.random.default_rng(5)
    words = sorted({word.lower() for example in EXAMPLES for word in example.tokens})
    rows = (" ".join([word, *(f"{value:.3f}" for value in rng.normal(size=6))]) for word in words)
    (place / "glove.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return place


def small(files: Path, placement: str, *assignments: str) -> SrlConfig:
    sizes = [
        f"inputs.elmo.model={files / 'elmo'}", f"inputs.elmo.placement={placement}", "inputs.elmo.dropout=0",
        f"inputs.vectors={files / 'glove.txt' if placement in ('none', 'output') else 'none'}", "hidden=7",
        "n_layers=3", "predicate_dim=3", "dropout=0", "train.device=cpu", "train.batch_size=4",
    ]  # fmt: skip
    config: SrlConfig = build(SrlConfig, merged(asdict(SrlConfig()), parse_assignments([*sizes, *assignments])))
    return config


def model_of(config: SrlConfig) -> RoleLabeler:
    torch.manual_seed(3)
    words, matrix, frozen, bilm = [], None, None, None
    if config.inputs.vectors is not None:
        read = word_vectors.read_vectors(Path(config.inputs.vectors), 1000)
        words, matrix = read.words, torch.from_numpy(read.matrix)
    if config.inputs.elmo.placement != "none":
        embedder = load(config.inputs.elmo.model, device="cpu")
        frozen = None if config.inputs.elmo.trainable else FrozenLayers(embedder)
        bilm = embedder.bilm.requires_grad_(True) if config.inputs.elmo.trainable else None
    return RoleLabeler(config, Inputs(config.inputs, words, matrix, frozen, bilm), data.labels(EXAMPLES))


def scores(model: RoleLabeler, examples: Sequence[Sentence]) -> list[Any]:
    """The scores of all tags of the tokens of each example, for its first predicate."""
    with torch.no_grad():
        x = model.inputs([example.tokens for example in examples])
        found = model._scores(x, [(example.predicates or (None,))[0] for example in examples])
    return [row[:length].numpy() for row, length in zip(found, x.lengths, strict=True)]


def assert_all_near(found: list[Any], expected: list[Any], share: float = FLOAT32_SUMS) -> None:
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, share)


# Decoding


def legal(path: Sequence[str]) -> bool:
    pairs = zip(["O", *path], path, strict=False)
    return all(after[0] != "I" or (before != "O" and before[2:] == after[2:]) for before, after in pairs)


@pytest.mark.parametrize("n_roles", [1, 2])
def test_the_best_legal_tags_by_brute_force(n_roles: int) -> None:
    roles = ["X", "Y"][:n_roles]
    labels = ["O", *(f"B-{role}" for role in roles), *(f"I-{role}" for role in roles)]
    torch.manual_seed(n_roles)
    lengths = [4, 1, 3, 4, 2] * 6
    values = torch.randn(len(lengths), 4, len(labels), dtype=torch.float64)
    values[:, :, 1 + n_roles :] += 1.0  # illegal beginnings are tempting
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    changed = 0
    for row, found in enumerate(best_tags(values.masked_fill(~mask[..., None], 99.0), mask)):
        length = lengths[row]
        every = [path for path in product(range(len(labels)), repeat=length) if legal([labels[k] for k in path])]
        best = max(every, key=lambda path: sum(values[row, t, k].item() for t, k in enumerate(path)))
        assert found == list(best)
        changed += found != values[row, :length].argmax(dim=1).tolist()
    assert changed > 10


# The model


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_scores_of_a_proposition_alone(placement: str, files: Path) -> None:
    """Layer by layer with the reference, sentence by sentence, without padding."""
    model = model_of(small(files, placement)).eval()

    def alone(example: Sentence) -> Any:
        x = model.inputs([example.tokens])
        mark = torch.tensor([int(place in (example.predicates or ())) for place in range(len(example.tokens))])
        tokens = torch.cat([x.vectors[0], model.is_predicate.weight[mark]], dim=1)
        for layer in model.encoder.layers:
            reading = Reading.of([1] * len(tokens), tokens.device)
            tokens = layer.forward_reference(tokens, reading, torch.ones(1, 7))
        h = model.inputs.at_output(tokens[None], x.layers)[0]
        return (h @ model.scores.weight.T + model.scores.bias).detach().numpy()

    with torch.no_grad():
        model.scores.weight.mul_(50)
    texts, frozen = [example.tokens for example in EXAMPLES], model.inputs.frozen
    # Layers are float16, so the last bit of a float32 can become a step of it: both sides read the same layers.
    with frozen.holding(texts) if frozen is not None else nullcontext():
        expected = [alone(example) for example in EXAMPLES]
        assert_all_near(scores(model, EXAMPLES), expected)
    assert np.abs(expected[2][:3] - expected[3][:3]).max() > 1e-3  # the same sentence with another predicate


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_nothing_is_read_where_there_is_no_token(placement: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(small(files, placement)).eval()
    clean, found = scores(model, EXAMPLES), model.answers(EXAMPLES)
    read = model.inputs.forward

    def spoiled(texts: Sequence[Tokens]) -> InputVectors:
        x = read(texts)
        outside = ~x.mask[..., None]
        layers = x.layers and Layers(x.layers.activations.masked_fill(outside, 50.0), x.mask)
        return replace(x, vectors=x.vectors.masked_fill(outside, 50.0), layers=layers)

    monkeypatch.setattr(model.inputs, "forward", spoiled)
    assert_all_near(scores(model, EXAMPLES), clean, share=0)
    assert model.answers(EXAMPLES) == found


def test_the_loss_is_the_sum_over_tokens_and_the_mean_over_propositions(files: Path) -> None:
    model = model_of(small(files, "both", "inputs.elmo.mix_l2=0")).eval()
    total = 0.0
    for example, rows in zip(EXAMPLES, scores(model, EXAMPLES), strict=True):
        for _, spans in example.gold.propositions:
            tags = [model.labels.index(tag) for tag in bio_tags(spans, len(rows))]
            logs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
            total -= logs[range(len(tags)), tags].sum()
    terms = []
    for group in GROUPS:  # of the finder: every sentence once
        score = model.finder(model.inputs([group[0].tokens])).detach().numpy()[0]
        is_one = np.isin(np.arange(len(score)), group[0].gold.predicates)
        terms += np.log1p(np.exp(np.where(is_one, -score, score))).tolist()
    assert model.loss(EXAMPLES).item() == pytest.approx(total / 8 + np.mean(terms), rel=1e-4)


def test_a_batch_of_sentences_without_predicates_teaches_the_finder_only(files: Path) -> None:
    model = model_of(small(files, "input"))
    torch.autograd.backward(model.loss(GROUPS[5]))
    learned = {name.partition(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert learned == {"finder"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_parameter_is_learned(placement: str, files: Path) -> None:
    model = model_of(small(files, placement))
    torch.autograd.backward(model.loss(EXAMPLES))
    names = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert names == set()


@pytest.mark.parametrize("changes", [["input"], ["none"], ["both", "inputs.elmo.trainable=true"]])
def test_the_finder_does_not_change_the_labeller(
    changes: list[str], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit, with dropout and a clipped gradient: with the finder's loss, and without it."""
    config = small(files, *changes, "dropout=0.3", "inputs.elmo.dropout=0.3", "train.clip_norm=0.01")

    def trained() -> dict[str, Tensor]:
        model = model_of(config)
        learner = Learner(model.train(), config.train)
        for number in range(4):
            torch.manual_seed(number)
            torch.autograd.backward(model.loss(EXAMPLES) + model.inputs.penalty())
            learner.step(number)
        return {name: value.clone() for name, value in model.state_dict().items()}

    with_finder = trained()
    monkeypatch.setattr(PredicateFinder, "loss", lambda *_: torch.zeros(()))
    without = trained()
    for name, value in without.items():
        assert torch.equal(with_finder[name], value) != name.startswith("finder."), name


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_eight_propositions_are_learned_saved_and_loaded(placement: str, files: Path, tmp_path: Path) -> None:
    config = small(
        files, placement, "hidden=24", "n_layers=2", "train.optimizer=adam", "train.learning_rate=0.02"
    )  # fmt: skip
    model = model_of(config).train()
    learner = Learner(model, config.train)
    for number in range(50):
        torch.autograd.backward(model.loss(EXAMPLES) + model.inputs.penalty())
        learner.step(number)
    words = word_vectors.read_vectors(files / "glove.txt", 1000).words if config.inputs.vectors else []
    folder.save(tmp_path, folder.TrainedTask(TASK, config, model.labels, words, model))
    read = folder.load(tmp_path, "cpu")
    assert (read.task, read.config, read.labels) == (TASK, config, data.labels(EXAMPLES))
    found = answers(read.model, EXAMPLES, 3)
    assert [answer.propositions for answer in found] == [example.gold.propositions for example in EXAMPLES]
    assert TASK.score([example.gold for example in EXAMPLES], found)["predicates_f1"] == 100.0
    marked = {"tokens": list(GROUPS[2][1].tokens), "predicates": [4]}
    predicted = load_task(tmp_path, "cpu").predict([list(group[0].tokens) for group in GROUPS] + [marked])
    for group, answer in zip(GROUPS, predicted, strict=False):  # the predicates are found
        wanted = [one for example in group for one in example.gold.propositions]
        assert answer == data.to_json(group[0], Answer(tuple(wanted), None))
    assert predicted[7] == data.to_json(GROUPS[2][1], GROUPS[2][1].gold)


def test_propositions_are_answered_in_portions(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(small(files, "input")).eval()
    every = [replace(example, predicates=tuple(range(len(example.tokens)))) for example in EXAMPLES[:4]]
    whole = model.answers(every)
    assert [len(answer.propositions) for answer in whole] == [5, 4, 5, 5]
    sizes: list[int] = []
    compute = model._propositions
    monkeypatch.setattr(model, "_propositions", lambda pairs: sizes.append(len(pairs)) or compute(pairs))
    monkeypatch.setattr(model_module, "MAX_TOKENS", 15)
    assert model.answers(every) == whole
    assert sizes == [3, 3, 3, 3, 3, 3, 1]  # 15 tokens each, with padding
    monkeypatch.setattr(model_module, "MAX_TOKENS", 1)
    assert model.answers(every) == whole


@pytest.mark.parametrize(
    "item",
    [
        {"tokens": ["Rain"], "predicates": [0]},
        {"tokens": ["Rain"], "predicates": []},
        {"tokens": ["Rain"]},
        {"tokens": ["rain", "falls"] * 250, "predicates": [1, 499]},
    ],
    ids=["one token", "no predicate", "predicates to find", "500 tokens"],
)
def test_extreme_sentences(item: dict[str, Any], files: Path) -> None:
    model = model_of(small(files, "both", "n_layers=2")).eval()
    example = data.parse(item)
    (answer,) = model.answers([example])
    shown = json.loads(json.dumps(data.to_json(example, answer)))
    if "predicates" in item:
        assert [one["predicate"] for one in shown["propositions"]] == item["predicates"]
    assert all(len(one["tags"]) == len(item["tokens"]) for one in shown["propositions"])
    given = item.get("predicates", [])[:1]
    gold = Answer(tuple(Proposition(place, (Span(place, place + 1, "V"),)) for place in given), ())
    loss = model.loss([replace(example, gold=gold), *EXAMPLES])
    torch.autograd.backward(loss)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_commands(files: Path, tmp_path: Path) -> None:
    """Train on files, predict, write predictions and score them: the same as the model's own scores."""
    for part in ("train", "dev", "test"):
        with (tmp_path / f"{part}.gold_conll").open("w", encoding="utf-8") as file:
            conll.write_predictions(file, EXAMPLES, [example.gold for example in EXAMPLES])
    settings = [f"inputs.elmo.model={files / 'elmo'}", "hidden=7", "n_layers=2", "train.epochs=3", "train.device=cpu"]
    ended = elmo("train", "srl", tmp_path, tmp_path / "run", *(f"--set={one}" for one in settings))
    assert ended.code == 0, ended.err
    model, predicted = tmp_path / "run" / "model", tmp_path / "predicted.gold_conll"
    own = json.loads(elmo("evaluate", model, tmp_path, "--output", predicted, "--json").out)
    scored = json.loads(elmo("evaluate", "srl", tmp_path / "test.gold_conll", "--predictions", predicted, "--json").out)
    assert {**own, "predicates_f1": 100.0} == scored  # the file has a column for each predicate that was given
    (tmp_path / "items.jsonl").write_text('{"tokens": ["Rain", "fell"], "predicates": [1]}\n\n"She left"\n')
    ended = elmo("predict", model, tmp_path / "items.jsonl")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [line["line"] for line in lines] == [1, 2, 3]
    assert [one["word"] for one in lines[0]["propositions"]] == ["fell"] and lines[1]["blank"]


def test_the_defaults_are_the_papers() -> None:
    config = SrlConfig()
    assert (config.hidden, config.n_layers, config.predicate_dim, config.dropout) == (300, 8, 100, 0.1)
    elmo_config = config.inputs.elmo
    assert (elmo_config.placement, elmo_config.mix_l2, elmo_config.dropout) == ("input", 0.001, 0.1)
    train = config.train
    assert (train.optimizer, train.learning_rate, train.rho) == ("adadelta", 1.0, 0.95)
    assert (train.batch_size, train.clip_norm, train.epochs) == (80, 1.0, 500)
    assert config.inputs.vectors_trainable and task_named("srl") is TASK
    with pytest.raises(ConfigError, match=r"^n_layers is 0; expected a number in \[1, 100\]$"):
        SrlConfig(n_layers=0)
