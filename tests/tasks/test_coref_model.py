"""Span ranking: networks and loss against NumPy, a span and a pair at a time; training; documents of any size."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmo.tasks import folder
from elmo.tasks.coref import layers, model
from elmo.tasks.coref.document import Document, Span
from elmo.tasks.coref.layers import DISTANCES, Feedforward
from elmo.tasks.coref.model import TASK, CorefConfig, SpanRanker
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.predict import Predictor
from elmo.tasks.predict_file import predict_file
from elmo.tasks.task import task_named
from elmo.tasks.train import TaskTraining
from embedders import assert_close, embedder, write_model
from tasks.small_coref import EIGHT, document, small_config

Array = np.ndarray[Any, Any]


def small_model(placement: str = "input", genres: list[str] | None = None, **changes: Any) -> SpanRanker:
    torch.manual_seed(3)
    config = small_config(placement, **changes)
    ranker = SpanRanker(config, Inputs(config.inputs, frozen=FrozenLayers(embedder())), genres or ["news", "talk"])
    for table in (ranker.mentions.widths, ranker.pairs.distances, ranker.pairs.speakers, ranker.pairs.genres):
        torch.nn.init.normal_(table.weight)  # as large as everything else: an error in them would show
    return ranker


def test_the_defaults_are_those_of_the_papers() -> None:
    config = CorefConfig()
    assert task_named("coref") is TASK and TASK.unit == "file"
    assert (config.hidden, config.n_layers, config.feedforward, config.feature) == (200, 3, 150, 20)
    assert (config.max_width, config.spans_per_token, config.max_antecedents, config.max_sentences) == (
        10,
        0.4,
        250,
        50,
    )
    assert (config.dropout, config.inputs.dropout, config.inputs.elmo.dropout) == (0.2, 0.5, 0.5)
    assert (config.inputs.elmo.placement, config.inputs.elmo.mix_l2) == ("input", 0.0)
    train = config.train
    assert (train.batch_size, train.optimizer, train.learning_rate, train.clip_norm) == (1, "adam", 1e-3, 5.0)
    assert (train.schedule, train.decay, train.decay_steps, train.epochs) == ("decay", 0.999, 100, 150)


# The networks, from the definitions in Lee et al. (2017), a span and a pair at a time


def array(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


def feedforward(network: Feedforward, x: Array) -> float:
    for layer in (network.first, network.second):
        x = np.maximum(array(layer.weight) @ x + array(layer.bias), 0)
    return float(array(network.last.weight)[0] @ x + array(network.last.bias)[0])


def span_vector(ranker: SpanRanker, tokens: Array, x: Array, span: Span) -> Array:
    inside = range(span.start, span.end)
    heads = np.array([feedforward(ranker.mentions.heads, tokens[t]) for t in inside])
    weights = np.exp(heads - heads.max())
    head = (weights / weights.sum()) @ x[span.start : span.end]
    width = array(ranker.mentions.widths.weight)[len(inside) - 1]
    return np.concatenate([tokens[span.start], tokens[span.end - 1], head, width])


def pair_score(ranker: SpanRanker, one: Document, own: Array, other: Array, apart: int, same_speaker: bool) -> float:
    pairs = ranker.pairs
    kind = max(number for number, shortest in enumerate(DISTANCES) if apart >= shortest)
    genre = ["", "news", "talk"].index(one.genre)
    features = [array(pairs.distances.weight)[kind], array(pairs.speakers.weight)[int(same_speaker)],
                array(pairs.genres.weight)[genre]]  # fmt: skip
    return feedforward(pairs.scores, np.concatenate([own, other, own * other, *features]))


def literal_loss(ranker: SpanRanker, one: Document, kept: list[Span], tokens: Array, x: Array) -> float:
    """−Σ log p(correct antecedents), where p is a softmax over "none" and all antecedents."""
    vectors = [span_vector(ranker, tokens, x, span) for span in kept]
    mentions = [feedforward(ranker.mentions.scores, vector) for vector in vectors]
    clusters = [next((c for c in one.gold if span in c), ()) for span in kept]
    total = 0.0
    for i in range(len(kept)):
        first = max(0, i - ranker.config.max_antecedents)
        scores = [0.0] + [
            mentions[i] + mentions[j] + pair_score(
                ranker, one, vectors[i], vectors[j], i - j,
                one.speakers[kept[i].start] == one.speakers[kept[j].start],
            ) for j in range(first, i)
        ]  # fmt: skip
        correct = [1 + j - first for j in range(first, i) if kept[j] in clusters[i]] or [0]
        exp = np.exp(scores)
        total -= np.log(exp[correct].sum() / exp.sum())
    return total


LONGER = document(
    "[1 Anna] and [2 [1 her] brother] met [3 [2 his] friend] .", "[2 He] said : [1 she] knows [3 him] .",
    "[1 I] do , said [1 Anna] .", name="l", genre="talk", speakers=["", "A", "B"],
)  # fmt: skip


@pytest.mark.parametrize(("rows", "tokens", "far"), [(128, 2048, 20), (3, 5, 20), (4, 7, 3)])
@pytest.mark.parametrize("one", [LONGER, EIGHT[6], EIGHT[2]], ids=lambda one: one.name)
def test_the_loss_is_what_numpy_says_in_blocks_of_any_size(
    one: Document, rows: int, tokens: int, far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "ROWS_PER_BLOCK", rows)
    monkeypatch.setattr(layers, "TOKENS_PER_BLOCK", tokens)
    monkeypatch.setattr(model, "PADDED_TOKENS", 4 * tokens)
    ranker = small_model(max_antecedents=far).eval()
    with torch.no_grad():
        in_context, x = map(array, ranker._encode(one.texts))
        kept = ranker._kept(one)
    for vector, span in zip(array(kept.vectors), kept.spans, strict=True):
        assert_close(vector, span_vector(ranker, in_context, x, span))
    expected = [feedforward(ranker.mentions.scores, vector) for vector in array(kept.vectors)]
    assert_close(array(kept.scores), np.array(expected))
    assert abs(ranker.loss([one]).item() - literal_loss(ranker, one, kept.spans, in_context, x)) < 1e-3


def test_every_class_of_distances_occurs() -> None:
    ranker = small_model()
    apart = torch.tensor([[1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 250]])
    found = ranker.pairs._features(apart, torch.zeros(1, 14, dtype=torch.bool), 0)[0, :, :4]
    kinds = [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]
    assert_close(array(found), array(ranker.pairs.distances.weight)[kinds])


def test_answers_follow_the_best_antecedents() -> None:
    """Links by hand: a span joins the cluster of its best antecedent, if any has a score above 0."""
    ranker = small_model(spans_per_token=0.9).eval()
    with torch.no_grad():
        kept = ranker._kept(LONGER)
        scores = next(iter(ranker._scores(kept)))[2]
        ranker.pairs.scores.last.bias -= scores[:, 1:].amax(dim=1)[1:].median()  # half of the spans have an antecedent
        scores = next(iter(ranker._scores(kept)))[2]
        (answer,) = ranker.answers([LONGER])
    parent = list(range(len(kept.spans)))
    for i, row in enumerate(scores.tolist()):
        best = max(range(len(row)), key=lambda column: row[column])
        parent[i] = parent[best - 1] if best else i
    groups = {k: tuple(kept.spans[i] for i in range(len(parent)) if parent[i] == k) for k in parent}
    assert set(answer) == {group for group in groups.values() if len(group) > 1}
    assert answer == tuple(sorted(answer)) and len(answer) > 0


def test_kept_spans_do_not_cross_and_are_as_many_as_asked() -> None:
    ranker = small_model(spans_per_token=0.5)
    kept = ranker._kept(LONGER).spans
    assert len(kept) == int(0.5 * len(LONGER.tokens))
    assert not any(a.start < b.start < a.end < b.end for a, b in itertools.permutations(kept, 2))


@pytest.mark.parametrize("spans_per_token", [1e308, float("inf")])
def test_more_spans_are_asked_for_than_there_are(spans_per_token: float) -> None:
    """Every single token is kept: it crosses no other span."""
    ranker = small_model(spans_per_token=spans_per_token)
    kept = ranker._kept(LONGER).spans
    assert {Span(i, i + 1) for i in range(len(LONGER.tokens))} <= set(kept)
    assert not any(a.start < b.start < a.end < b.end for a, b in itertools.permutations(kept, 2))


@pytest.mark.parametrize("placement", ["none", "input", "output", "both"])
def test_the_gradient_reaches_every_parameter(placement: str) -> None:
    ranker = small_model(placement).train()
    ranker.loss([LONGER, EIGHT[6]]).backward()
    gradients = {name: float(p.grad.norm()) if p.grad is not None else 0.0 for name, p in ranker.named_parameters()}
    shift = gradients.pop("mentions.heads.last.bias")  # a softmax does not change if all its scores do by as much
    assert shift < 1e-5 * max(gradients.values())
    assert [name for name, norm in gradients.items() if not norm > 0] == []


def test_blocks_that_are_computed_again_have_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with dropout: the same units are dropped again."""
    gradients = []
    for limit in (0, 1024):
        monkeypatch.setattr(model, "KEPT_ACTIVATIONS", limit)
        monkeypatch.setattr(layers, "ROWS_PER_BLOCK", 4)
        ranker = small_model(dropout=0.3).train()
        torch.manual_seed(5)
        ranker.loss([LONGER]).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in ranker.parameters() if p.grad is not None]))
    assert_close(array(gradients[0]), array(gradients[1]))


def test_gradients_are_the_same_every_time_on_two_threads() -> None:
    """Tokens and spans are read many times each; their gradients must be summed in a fixed order."""
    ranker = small_model("both", hidden=40, feedforward=40, dropout=0.2).train()
    long = document(*["[1 Anna] saw [2 [1 her] dog] and fed [2 it] ."] * 25)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    found = []
    try:
        for _ in range(2):
            torch.manual_seed(1)
            found.append(torch.autograd.grad(ranker.loss([long]), list(ranker.parameters())))
    finally:
        torch.set_num_threads(threads)
    for gradients in found[1:]:
        assert all(torch.equal(one, first) for one, first in zip(gradients, found[0], strict=True))


def test_training_reads_a_random_piece_that_follows_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    ranker = small_model(max_sentences=2).train()
    encode = ranker._encode
    monkeypatch.setattr(ranker, "_encode", lambda texts: (read.append(texts), encode(texts))[1])
    for seed in (0, 0, 1, 2, 3, 4, 5):
        torch.manual_seed(seed)
        ranker.loss([EIGHT[5]])  # of four sentences
    assert read[0] == read[1] and all(len(texts) == 2 for texts in read)
    pieces = {EIGHT[5].texts[first : first + 2] for first in range(3)}
    assert set(read) == pieces
    read.clear()
    ranker.eval().answers([EIGHT[5]])
    assert read == [EIGHT[5].texts]


# Training


def test_eight_documents_are_learned_saved_and_loaded(tmp_path: Path) -> None:
    config = small_config("both", n_layers=1, spans_per_token=2.0)
    elmo = replace(config.inputs.elmo, model=str(write_model(tmp_path / "lm")))
    train = replace(config.train, epochs=16, patience=None, learning_rate=0.01)
    config = replace(config, inputs=replace(config.inputs, elmo=elmo), train=train)
    run = TaskTraining(TASK, config, {"train": EIGHT, "dev": EIGHT}, tmp_path / "run", cache=tmp_path / "cache")
    assert run.train()
    assert run.progress.best == pytest.approx(100)
    read = folder.load(tmp_path / "run" / "model", device="cpu")
    assert read.labels == ["news", "talk"] and read.scores["dev"]["f1"] == pytest.approx(100)
    assert read.model.answers(EIGHT) == [one.gold for one in EIGHT]
    (tmp_path / "story.txt").write_text("Anna saw Rex.\nShe fed it.\n", encoding="utf-8")
    assert predict_file(Predictor(read), tmp_path / "story.txt", tmp_path / "answers.jsonl") == 1
    answer = json.loads((tmp_path / "answers.jsonl").read_text(encoding="utf-8"))
    assert [[mention["text"] for mention in cluster] for cluster in answer["clusters"]] == [
        ["Anna", "She"], ["Rex", "it"]
    ]  # fmt: skip


# Documents of any size


def test_documents_without_tokens_or_mentions() -> None:
    ranker = small_model().train()
    empty, silent = Document((), ()), EIGHT[3]
    assert ranker.loss([empty]).item() == 0.0
    assert torch.isfinite(ranker.loss([empty, silent]))
    ranker.loss([empty]).backward()
    assert ranker.eval().answers([empty, silent, Document((("Hm",),), (), speakers=("",))])[0] == ()


def test_a_span_twice_in_a_cluster_is_one_mention() -> None:
    once, ranker = EIGHT[7], small_model().eval()
    twice = replace(once, gold=tuple((*cluster, cluster[0]) for cluster in once.gold))
    assert ranker.loss([twice]).item() == pytest.approx(ranker.loss([once]).item())


def test_a_sentence_of_500_tokens() -> None:
    words = ["Anna", "saw", "her", "dog", "and", "left", "it", "there", ",", "then"]
    long = Document((tuple(words * 50), ("She", "returned", ".")), (), speakers=("",) * 503)
    ranker = small_model("none").eval()
    with torch.no_grad():
        (clusters,) = ranker.answers([long])
    assert all(0 <= start < end <= 503 for cluster in clusters for start, end in cluster)


def largest_tensor(work: Any) -> int:
    """The bytes of the largest tensor that is made meanwhile."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for one in out if isinstance(out, list | tuple) else [out]:
                if isinstance(one, Tensor):
                    self.largest = max(self.largest, one.untyped_storage().nbytes())
            return out

    with Watch() as watch, torch.no_grad():
        work()
    return watch.largest


def test_memory_does_not_grow_with_the_square_of_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a document of 10,000 tokens, no tensor has more than a few numbers per token and span."""
    monkeypatch.setattr(layers, "ROWS_PER_BLOCK", 32)
    ranker = small_model("none", spans_per_token=0.4, max_antecedents=10).eval()
    sentence = ("Anna", "saw", "her", "old", "dog", "before", "she", "left", "it", "there")
    sizes = []
    for count in (250, 1000):
        long = Document((sentence,) * count, (), speakers=("",) * count * len(sentence))
        sizes.append(largest_tensor(lambda long=long: ranker.answers([long])))
    assert sizes[1] <= 4.05 * sizes[0]  # linear; all pairs of the 4000 spans would be 16 times as many as those of 1000
    assert sizes[1] < 10_000 * 100 * 4
