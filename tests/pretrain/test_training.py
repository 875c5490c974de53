"""A run in small: what it learns, what it keeps, what it refuses; every variant trains, saves, loads and resumes."""

import itertools
import json
import math
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

import elmo
from corpora import write_corpus
from elmo.errors import ConfigError, DataError, ElmoError, WeightsError
from elmo.pretrain import evaluate
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.evaluate import Perplexity, perplexity
from elmo.pretrain.loop import Training
from elmo.pretrain.plan import Plan, bytes_needed
from elmo.weights import bilm_tf, folder, source
from elmo.weights.folder import Pretrained
from embedders import assert_same_bits

SMALL = [
    "steps=6",
    "log_every=2",
    "batch.size=4",
    "batch.unroll=5",
    "negatives=6",
    "model.lstm.dim=12",
    "model.lstm.projection_dim=6",
    "model.char_cnn.embedding_dim=4",
    "model.char_cnn.filters=[[1, 4], [2, 6]]",
    "model.char_cnn.max_characters_per_token=12",
    "evaluation.every=4",
    "checkpoints.every=2",
    "device=cpu",
]
WORDS = [f"word{k}" for k in range(30)]
VOCABULARY_SIZE = 20


def recipe(*changes: str) -> PretrainConfig:
    return PretrainConfig.load("tiny", None, [*SMALL, *changes])


def random_text(seed: int, n: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    likely = 1 / np.arange(1, len(WORDS) + 1)
    return [rng.choice(WORDS, size=rng.integers(0, 9), p=likely / likely.sum()).tolist() for _ in range(n)]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two shards and a held-out text; a third of the words is not predicted."""
    place = tmp_path_factory.mktemp("training") / "corpus"
    return Corpus.open(write_corpus(place, [random_text(1, 40), random_text(2, 25)], random_text(3, 12), 20))


@dataclass
class Told:
    """What a run reports; it may be asked to stop after a step."""

    stop_at: int | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    plans: list[tuple[Plan, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def planned(self, plan: Plan, done: int) -> None:
        self.plans.append((plan, done))

    def stepped(self, step: int, plan: Plan) -> None:
        self.steps.append(step)
        if step == self.stop_at:
            self.stop.set()

    def logged(self, values: dict[str, Any]) -> None:
        self.lines.append(values)


def train(corpus: Corpus, out: Path, *changes: str, stop_at: int | None = None, **more: Any) -> Training:
    told = Told(stop_at)
    training = Training(corpus, out, recipe(*changes), report=told, **more)
    assert training.train(told.stop) == (stop_at is None)
    return training


def saved_steps(out: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (out / "checkpoints").iterdir())


def tensors(out: Path, step: int) -> dict[str, torch.Tensor]:
    """Everything that a checkpoint holds."""
    place = out / "checkpoints" / f"step-{step:08d}"
    return {**load_file(place / "model.safetensors"), **load_file(place / "training.safetensors")}


def metrics(out: Path) -> list[dict[str, Any]]:
    """The log, without what depends on the clock."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("time", "tokens_per_second")} for line in lines]


def assert_same_run(found: Path, expected: Path, step: int) -> None:
    """The same weights, optimiser, states and log, bit for bit; and the same model came of it."""
    ours, theirs = tensors(found, step), tensors(expected, step)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name
    assert metrics(found) == metrics(expected)
    ours, theirs = (load_file(out / "model" / "model.safetensors") for out in (found, expected))
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name


# What it learns


def test_a_text_is_learned_by_heart(tmp_path: Path) -> None:
    """Each of four sentences is told by its first word: a model of single words cannot know what follows."""
    sentences = [
        ["one", "dog", "ran", "far", "off"],
        ["two", "cats", "ran", "back", "home", "again"],
        ["three", "dogs", "sat", "down"],
        ["four", "cats", "sat", "up", "far", "too", "long"],
    ]
    heldout = sentences * 3
    corpus = Corpus.open(write_corpus(tmp_path / "corpus", [sentences * 30], heldout, 22))
    assert len(corpus.vocabulary) == len(corpus.words)  # none unknown
    sizes = ["model.lstm.dim=32", "model.lstm.projection_dim=12", "batch.size=8", "batch.unroll=12"]
    quick = ["optimizer.name=adam", "optimizer.learning_rate=0.01", "negatives=none", "dropout=0.0"]
    every = ["steps=150", "log_every=25", "evaluation.every=50"]
    training = train(corpus, tmp_path / "run", *sizes, *quick, *every)
    lines = metrics(tmp_path / "run")
    loss = [line["loss"] for line in lines if "loss" in line]
    assert len(loss) == 6
    assert loss[-1] < loss[0] / 4

    counts = Counter(word for sentence in sentences for word in (*sentence, "</S>"))
    log_p = {word: math.log(count / counts.total()) for word, count in counts.items()}
    predicted = [word for sentence in heldout for word in (*sentence, "</S>")]
    unigram = math.exp(-sum(log_p[word] for word in predicted) / len(predicted))
    choosing = math.exp(len(heldout) * math.log(4) / len(predicted))  # only the sentence cannot be known
    assert unigram > 10
    found = training.heldout()
    assert found.tokens == len(predicted)
    assert training.progress.best is not None
    for value in (found.forward, found.backward, training.progress.best):
        assert value is not None
        assert choosing * 0.9 < value < unigram / 4


# Every variant

VARIANTS: dict[str, list[str]] = {
    "characters": [],
    "word table": ["model.char_cnn=none"],
    "shared softmax": ["model.char_cnn=none", "model.share_embedding_softmax=true"],
    "shared full softmax": ["model.char_cnn=none", "model.share_embedding_softmax=true", "negatives=none"],
    "one direction": ["model.bidirectional=false"],
    "one direction, word table": ["model.bidirectional=false", "model.char_cnn=none"],
    "no projection": ["model.lstm.dim=6"],
    "three layers, no skip, no clips": [
        "model.lstm.n_layers=3",
        "model.lstm.use_skip_connections=false",
        "model.lstm.cell_clip=none",
        "model.lstm.proj_clip=none",
    ],
    "full softmax": ["negatives=none"],
    "Adam": ["optimizer.name=adam", "optimizer.learning_rate=0.01"],
    "AdamW, word table": ["optimizer.name=adamw", "optimizer.learning_rate=0.01", "model.char_cnn=none"],
    "AdamW, full softmax": ["optimizer.name=adamw", "optimizer.learning_rate=0.01", "negatives=none"],
    "schedule": ["optimizer.schedule=cosine", "optimizer.warmup_steps=3", "optimizer.clip_norm=none"],
    "bfloat16": ["precision=bfloat16"],
    "accumulate": ["batch.accumulate=2"],
    "same text": ["batch.same_text=true"],
    "restart": ["batch.restart=0.5"],
    "no dropout": ["dropout=0.0"],
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_trains_saves_loads_and_resumes(name: str, text: Corpus, tmp_path: Path) -> None:
    changes = VARIANTS[name]
    whole = train(text, tmp_path / "whole", *changes)
    assert whole.progress.step == 6
    assert saved_steps(tmp_path / "whole")[-2:] == [4, 6]
    first, last = tensors(tmp_path / "whole", 4), tensors(tmp_path / "whole", 6)
    for which, value in last.items():
        assert torch.isfinite(value).all(), which
        assert value.dtype == torch.float32 or (which.endswith(".step") and value.dtype == torch.int64), which
    assert all(not torch.equal(first[which], last[which]) for which, _ in whole.bilm.named_parameters())

    # Interrupted between two checkpoints.
    train(text, tmp_path / "resumed", *changes, stop_at=3)
    assert not (tmp_path / "resumed" / "model").exists()
    assert saved_steps(tmp_path / "resumed") == [2, 3]
    resumed = train(text, tmp_path / "resumed", *changes, resume=True)
    assert resumed.report.plans[0][1] == 3
    assert resumed.report.steps == [4, 5, 6]
    assert_same_run(tmp_path / "resumed", tmp_path / "whole", 6)

    # What came of it is a model like any other.
    read = folder.read(tmp_path / "whole" / "model", softmax=True)
    assert read.vocabulary is not None
    assert read.vocabulary.words == text.vocabulary.words
    assert read.bilm.config == whole.config.model.for_vocabulary(VOCABULARY_SIZE)
    found = perplexity(read.bilm, read.vocabulary, text, text.heldout)
    assert found.mean == pytest.approx(whole.progress.best, rel=1e-6)
    embedder = elmo.load(tmp_path / "whole" / "model", device="cpu", softmax=True)
    (array,) = embedder.embed([["word1", "never", "seen"]])
    assert array.shape == (read.bilm.config.n_layers, 3, read.bilm.config.output_dim)
    assert np.isfinite(array).all()
    assert math.isfinite(embedder.score(["word1", "never"]).forward_end)


def test_the_same_recipe_gives_the_same_run(text: Corpus, tmp_path: Path) -> None:
    for number, name in enumerate(("one", "other")):
        torch.manual_seed(number)  # whatever was drawn before
        train(text, tmp_path / name)
    assert_same_run(tmp_path / "one", tmp_path / "other", 6)
    train(text, tmp_path / "seed", "seed=1")
    assert metrics(tmp_path / "seed") != metrics(tmp_path / "one")


@pytest.mark.parametrize("changes", [["batch.same_text=true"], ["batch.restart=0.5"], ["dropout=0.3"], ["negatives=9"]])
def test_a_field_changes_the_run(changes: list[str], text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path / "one")
    train(text, tmp_path / "other", *changes)
    one, other = (tensors(tmp_path / name, 6) for name in ("one", "other"))
    assert not torch.equal(one["lstms.0.bias"], other["lstms.0.bias"])


def test_rows_that_restart_begin_at_zeros(text: Corpus, tmp_path: Path) -> None:
    training = Training(text, tmp_path / "run", recipe("batch.restart=0.5"))
    for step in range(20):
        training.state = training.state._replace(
            h=torch.ones_like(training.state.h), c=torch.ones_like(training.state.c)
        )
        training._restart_some(step)
        kept = training.state.h.amax(dim=(0, 1, 3))
        assert torch.equal(kept, training.state.c.amin(dim=(0, 1, 3)))
        rng = np.random.default_rng([0, 4, step])
        assert kept.tolist() == (rng.random(4) >= 0.5).astype(float).tolist()


@pytest.mark.parametrize("changes", [[], ["negatives=none"]], ids=["sampled", "full"])
def test_reference_kernels_train_the_same_model(changes: list[str], text: Corpus, tmp_path: Path) -> None:
    """With the same dropout, too: it is drawn outside of the kernels."""
    assert train(text, tmp_path / "reference", "kernels=reference", *changes).bilm.reference
    assert not train(text, tmp_path / "auto", *changes).bilm.reference
    auto, reference = (tensors(tmp_path / name, 6) for name in ("auto", "reference"))
    assert auto.keys() == reference.keys()
    for name, value in reference.items():
        torch.testing.assert_close(auto[name], value, rtol=1e-4, atol=1e-6, msg=name)
    for ours, theirs in zip(metrics(tmp_path / "auto"), metrics(tmp_path / "reference"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("name", ["characters", "one direction", "no projection"])
def test_the_published_format_holds_what_was_trained(name: str, text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path / "run", *VARIANTS[name])
    read = folder.read(tmp_path / "run" / "model")
    bilm_tf.write(read.bilm, tmp_path / "options.json", tmp_path / "weights.hdf5")
    again = source.read(tmp_path / "weights.hdf5")
    assert again.bilm.config == replace(read.bilm.config, char_cnn=again.bilm.config.char_cnn)
    sentences = random_text(7, 5)
    ours, theirs = (elmo.Embedder(model) for model in (Pretrained(read.bilm), again))
    assert_same_bits(list(theirs.embed(sentences)), list(ours.embed(sentences)))


# What is kept


class Scripted:
    """Held-out perplexities as a test wants them, in place of the model's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
        self.steps: list[int] = []
        self._values = iter(values)
        monkeypatch.setattr(Training, "heldout", self.heldout(self))

    @staticmethod
    def heldout(script: "Scripted") -> Callable[[Training], Perplexity]:
        def scripted(training: Training) -> Perplexity:
            script.steps.append(training.progress.step)
            value = next(script._values)
            return Perplexity(forward=value, backward=value, as_bilm_tf=value, tokens=100, unknown=0.0)

        return scripted


def test_the_model_is_the_best_checkpoint(text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(monkeypatch, 9.0, 7.0, 8.0, 7.5)
    out = tmp_path / "run"
    training = train(text, out, "steps=8", "evaluation.every=2", "checkpoints.every=2")
    assert script.steps == [2, 4, 6, 8]
    assert (training.progress.best, training.progress.best_step, training.progress.worse) == (7.0, 4, 2)
    assert saved_steps(out) == [4, 6, 8]
    exported, best, last = (
        load_file(place / "model.safetensors")
        for place in (out / "model", *(out / "checkpoints" / f"step-{step:08d}" for step in (4, 8)))
    )
    for name, value in best.items():
        assert torch.equal(exported[name], value), name
    assert not torch.equal(exported["lstms.0.bias"], last["lstms.0.bias"])


def test_without_a_held_out_text_the_model_is_the_last(tmp_path: Path) -> None:
    corpus = Corpus.open(write_corpus(tmp_path / "corpus", [random_text(1, 40)], [], VOCABULARY_SIZE))
    train(corpus, tmp_path / "run")
    exported, last = load_file(tmp_path / "run" / "model" / "model.safetensors"), tensors(tmp_path / "run", 6)
    assert all(torch.equal(value, last[name]) for name, value in exported.items())
    assert all("loss" in line for line in metrics(tmp_path / "run"))


@pytest.mark.parametrize(
    ("keep", "best_at", "kept"), [(1, 2, [2, 10]), (1, 10, [10]), (3, 2, [2, 6, 8, 10]), (2, 8, [8, 10])]
)
def test_the_last_few_checkpoints_and_the_best_are_kept(
    keep: int, best_at: int, kept: list[int], text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scripted(monkeypatch, *(5.0 if step == best_at else 6.0 for step in (2, 4, 6, 8, 10)))
    train(text, tmp_path, "steps=10", "evaluation.every=2", "checkpoints.every=2", f"checkpoints.keep={keep}")
    assert saved_steps(tmp_path) == kept
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


def test_a_better_model_is_saved_between_two_checkpoints(
    text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scripted(monkeypatch, 5.0, 4.0, 4.5)
    train(text, tmp_path, "steps=6", "evaluation.every=2", "checkpoints.every=100", "checkpoints.keep=1")
    assert saved_steps(tmp_path) == [4, 6]


def test_patience_ends_a_run(text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(monkeypatch, 9.0, 8.0, 8.1, 7.9, 8.0, 8.0, 1.0)
    changes = ["steps=100", "evaluation.every=2", "evaluation.patience=2", "checkpoints.every=100"]
    training = train(text, tmp_path, *changes)
    assert script.steps == [2, 4, 6, 8, 10, 12]
    assert training.progress.step == 12
    assert training.progress.best_step == 8
    exported = load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(value, tensors(tmp_path, 8)[name]) for name, value in exported.items())
    assert saved_steps(tmp_path)[-1] == 12


def test_lines_of_the_log(text: Corpus, tmp_path: Path) -> None:
    training = train(text, tmp_path, "optimizer.schedule=linear", "evaluation.every=3")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == training.report.lines
    assert [(line["step"], "loss" in line) for line in lines] == [
        (2, True), (3, False), (4, True), (6, True), (6, False)
    ]  # fmt: skip
    for line in lines:
        assert line["tokens"] == line["step"] * 4 * 5
        assert line["epoch"] == pytest.approx(line["step"] / training.plan.steps_per_epoch)
        assert line["time"] > 1e9
    logged, evaluated = ([line for line in lines if ("loss" in line) == kind] for kind in (True, False))
    for line in logged:
        assert line["loss"] == pytest.approx((line["forward_loss"] + line["backward_loss"]) / 2)
        assert line["learning_rate"] == pytest.approx(0.2 * (1 - (line["step"] - 1) / 6))
        assert line["gradient_norm"] > 0
        assert line["tokens_per_second"] > 0
    for line in evaluated:
        ways = line["forward_perplexity"], line["backward_perplexity"]
        assert line["perplexity"] == pytest.approx(sum(ways) / 2)
        assert 0 < line["unknown"] < 1
    assert evaluated[-1]["perplexity"] == pytest.approx(training.heldout().mean)


def test_a_logged_loss_is_the_mean_of_its_steps(text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path / "each", "log_every=1")
    train(text, tmp_path / "three", "log_every=3")
    each, three = ([line for line in metrics(tmp_path / name) if "loss" in line] for name in ("each", "three"))
    for name in ("loss", "forward_loss", "backward_loss"):
        means = np.array([line[name] for line in each]).reshape(2, 3).mean(axis=1)
        assert [line[name] for line in three] == pytest.approx(means.tolist(), rel=1e-12)
    assert [line["gradient_norm"] for line in three] == [each[2]["gradient_norm"], each[5]["gradient_norm"]]


def test_one_direction_logs_one(text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path, "model.bidirectional=false")
    for line in metrics(tmp_path):
        assert "backward_loss" not in line
        assert line.get("backward_perplexity") is None


def test_the_record_says_what_was_asked(text: Corpus, tmp_path: Path) -> None:
    training = train(text, tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["config"] == json.loads(json.dumps(training.config.values()))
    assert record["sources"] == {"corpus": {"path": str(text.folder), "fingerprint": text.digest}}
    assert record["task"] == "pretrain"
    assert record["negatives"] == 6
    assert set(record["versions"]) >= {"torch", "numpy", "elmo-torch", "python"}


def test_evaluation_reads_some_tokens_only(text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(text, tmp_path, recipe("evaluation.tokens=10"))
    assert training.heldout().tokens < 20
    assert training.bilm.training  # again, after the evaluation
    seen: list[bool] = []
    score = evaluate._score
    monkeypatch.setattr(evaluate, "_score", lambda bilm, *rest: seen.append(bilm.training) or score(bilm, *rest))
    training.heldout()
    assert seen == [False]


# Frozen


@pytest.mark.parametrize("name", ["characters", "word table", "shared softmax", "AdamW, word table", "full softmax"])
def test_all_but_the_softmax_stay_as_they_were(name: str, text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path / "first", *VARIANTS[name])
    start = folder.read(tmp_path / "first" / "model", softmax=True)
    before = {which: value.clone() for which, value in start.bilm.state_dict().items()}
    train(text, tmp_path / "frozen", *VARIANTS[name], start=start, softmax_only=True)
    after = tensors(tmp_path / "frozen", 6)
    for which, value in before.items():
        assert torch.equal(after[which], value) != which.startswith("softmax."), which
    trained = {which for which in after if which.startswith("optimizer.")}
    assert trained
    assert all(which.startswith("optimizer.softmax.") for which in trained)

    train(text, tmp_path / "resumed", *VARIANTS[name], stop_at=3, softmax_only=True, start=fresh(tmp_path))
    train(text, tmp_path / "resumed", *VARIANTS[name], resume=True, softmax_only=True, start=fresh(tmp_path))
    assert_same_run(tmp_path / "resumed", tmp_path / "frozen", 6)


def fresh(folder_of_runs: Path) -> Pretrained:
    return folder.read(folder_of_runs / "first" / "model", softmax=True)


# What goes wrong on the way


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (4, r"the last good checkpoint is .*/checkpoints/step-00000004\. Try a lower optimizer\.learning_rate or"),
        (100, r"no checkpoint was saved before\. Try a lower optimizer\.learning_rate or optimizer\.clip_norm$"),
    ],
)
def test_a_loss_that_is_no_number_ends_the_run(saved: int, message: str, text: Corpus, tmp_path: Path) -> None:
    class Spoiling(Told):
        def stepped(self, step: int, plan: Plan) -> None:
            super().stepped(step, plan)
            if step == 5:
                with torch.no_grad():
                    training.bilm.lstms[1].bias[0, 0] = torch.nan

    changes = ["steps=20", f"checkpoints.every={saved}", "evaluation.every=0", "checkpoints.keep=9"]
    training = Training(text, tmp_path, recipe(*changes), report=Spoiling())
    window = training.streams.window(5)
    words = " ".join(text.words[row] for row in window[0, 0])
    where = re.escape(f"in the batch that begins with {words!r}; ")
    with pytest.raises(ElmoError, match=rf"^step 6: loss nan, [^,]+, gradient norm nan, {where}{message}"):
        training.train()
    assert "\n" not in words
    assert [path.name for path in (tmp_path / "checkpoints").glob("*")] == (["step-00000004"] if saved == 4 else [])
    assert not (tmp_path / "model").exists()
    for path in tmp_path.rglob("*.safetensors"):
        for name, value in load_file(path).items():
            assert torch.isfinite(value).all(), name
    assert all(math.isfinite(line["loss"]) for line in metrics(tmp_path))
    if saved == 4:  # and it goes on from there
        train(text, tmp_path, *changes, "steps=8", resume=True)
        assert saved_steps(tmp_path) == [4, 8]


def test_no_checkpoint_holds_what_is_no_number(text: Corpus, tmp_path: Path) -> None:
    """A step's loss may be finite and what comes of it absurd."""
    with pytest.raises(ElmoError, match=r"^step \d: .* (nan|inf).*Try a lower optimizer\.learning_rate"):
        train(text, tmp_path, "optimizer.learning_rate=1e38", "checkpoints.every=1", "evaluation.every=0")
    for path in tmp_path.rglob("*.safetensors"):
        for name, value in load_file(path).items():
            assert torch.isfinite(value).all(), f"{path}: {name}"


def test_a_gpu_without_memory_left_is_one_line(
    text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Training.step

    def full(self: Training, number: int, *rest: Any) -> Any:
        if number == 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.\nSee documentation")
        return step(self, number, *rest)

    monkeypatch.setattr(Training, "step", full)
    with pytest.raises(ElmoError) as error:
        train(text, tmp_path)
    assert str(error.value) == (
        f"out of memory on cpu after step 5; the last good checkpoint is {tmp_path / 'checkpoints' / 'step-00000004'}. "
        "Try a lower batch.size in a new run, or a higher batch.accumulate"
    )


class Worsening(Told):
    """After the fifth step the softmax is sure of one word, and wrong."""

    training: Training

    def stepped(self, step: int, plan: Plan) -> None:
        super().stepped(step, plan)
        if step == 5:
            assert self.training.bilm.softmax is not None
            with torch.no_grad():
                self.training.bilm.softmax.bias[3] += 20.0


def test_a_loss_far_above_its_lowest_ends_the_run(
    text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scripted(monkeypatch, 9.0, 8.0, 8.5, 8.6, 8.7)  # held-out perplexity: best at the second evaluation
    report = Worsening()
    changes = ["steps=20", "checkpoints.every=1", "evaluation.every=1", "checkpoints.keep=9", "negatives=none"]
    report.training = training = Training(text, tmp_path, recipe(*changes, "log_every=1"), report=report)
    with pytest.raises(ElmoError) as error:
        training.train()
    losses = [line["loss"] for line in metrics(tmp_path) if "loss" in line]
    assert len(losses) == 6
    assert losses[5] > min(losses) + 10
    assert str(error.value) == (
        f"step 6: diverged: loss {losses[5]:.2f}, the lowest was {min(losses):.2f}; the last good checkpoint is "
        f"{tmp_path / 'checkpoints' / 'step-00000002'}. Try a lower optimizer.learning_rate or optimizer.clip_norm"
    )
    assert saved_steps(tmp_path) == [1, 2, 3, 4, 5]
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("change", ["diverged=none", "diverged=40"])
def test_a_run_goes_on_where_nobody_minds(change: str, text: Corpus, tmp_path: Path) -> None:
    report = Worsening()
    changes = ["steps=8", "evaluation.every=0", "negatives=none", "log_every=1", change]
    report.training = training = Training(text, tmp_path, recipe(*changes), report=report)
    assert training.train()


def test_the_lowest_loss_is_remembered_across_a_resume(text: Corpus, tmp_path: Path) -> None:
    changes = ["evaluation.every=0", "negatives=none", "log_every=1"]
    first = train(text, tmp_path, *changes, "steps=4")
    assert first.progress.lowest == min(line["loss"] for line in metrics(tmp_path) if "loss" in line)
    report = Worsening()
    again = Training(text, tmp_path, recipe(*changes, "steps=20"), resume=True, report=report)
    report.training = again
    assert again.progress.lowest == first.progress.lowest
    with pytest.raises(ElmoError, match=r"^step 6: diverged: "):
        again.train()


def test_interrupted_at_its_last_step(text: Corpus, tmp_path: Path) -> None:
    """Nothing is left to train: it ends as if it had not been interrupted."""
    train(text, tmp_path / "whole")
    told = Told(stop_at=6)
    assert Training(text, tmp_path / "interrupted", recipe(), report=told).train(told.stop)
    assert told.stop.is_set()
    assert_same_run(tmp_path / "interrupted", tmp_path / "whole", 6)


def test_resumed_after_its_end(text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "before")
    again = train(text, tmp_path / "run", resume=True)
    assert again.report.steps == []
    assert_same_run(tmp_path / "run", tmp_path / "before", 6)
    train(text, tmp_path / "run", "steps=8", resume=True)
    train(text, tmp_path / "whole", "steps=8")
    ours, theirs = tensors(tmp_path / "run", 8), tensors(tmp_path / "whole", 8)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what is mapped into memory")
def test_a_resumed_run_needs_its_checkpoint_no_more(text: Corpus, tmp_path: Path) -> None:
    """It is removed while the run goes on; a network disk would refuse to remove a file that is mapped into memory."""
    train(text, tmp_path, stop_at=3)
    training = Training(text, tmp_path, recipe(), resume=True)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    assert training.train()


def test_fewer_steps_than_are_done(text: Corpus, tmp_path: Path) -> None:
    """The record would say that the run has four steps."""
    train(text, tmp_path, stop_at=5)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError) as refused:
        train(text, tmp_path, "steps=4", resume=True)
    message = "the recipe has 4 steps, but the run has done 5. Set steps to 5 or more"
    assert str(refused.value) == f"{tmp_path}: {message}"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(("last", "best"), [(6.5, 5), (7.5, 4)])
def test_no_step_more_than_are_done(
    last: float, best: int, text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was interrupted at step 5 is to end there: that step may be the best, so it is evaluated, once."""
    script = Scripted(monkeypatch, 7.0, last, 9.0)
    train(text, tmp_path, stop_at=5)
    assert script.steps == [4]
    for _ in range(2):
        train(text, tmp_path, "steps=5", resume=True)
        assert script.steps == [4, 5]
        exported = load_file(tmp_path / "model" / "model.safetensors")
        assert all(torch.equal(value, tensors(tmp_path, best)[name]) for name, value in exported.items())
    evaluated = [(line["step"], line["perplexity"]) for line in metrics(tmp_path) if "perplexity" in line]
    assert evaluated == [(4, 7.0), (5, last)]
    longer = train(text, tmp_path, "steps=6", resume=True)  # and it remembers
    assert (longer.progress.best_step, longer.progress.worse) == (best, 1 if best == 5 else 2)
    assert longer.progress.best == min(7.0, last)


def test_resumed_after_its_patience_ended(text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(monkeypatch, 7.0, 8.0, 1.0, 1.0)
    changes = ["steps=100", "evaluation.every=2", "evaluation.patience=1"]
    train(text, tmp_path, *changes)
    assert script.steps == [2, 4]
    again = train(text, tmp_path, *changes, resume=True)
    assert again.report.steps == []


def test_an_interruption_before_the_first_checkpoint_loses_nothing(text: Corpus, tmp_path: Path) -> None:
    """A run that was killed early has a record and a log, and no checkpoint: resumed, it begins again."""
    train(text, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "checkpoints")
    shutil.rmtree(tmp_path / "killed" / "model")
    train(text, tmp_path / "killed", resume=True)
    assert_same_run(tmp_path / "killed", tmp_path / "whole", 6)


# What is refused


def test_a_folder_that_holds_a_run(text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=r" already contains a run\. Use --resume to continue it, or choose another"):
        train(text, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nothing_to_resume(text: Corpus, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"run: nothing to resume, no run\.json in it\. Train without --resume first$"):
        train(text, tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.lstm.dim=13", r"model\.lstm\.dim 12, not 13"),
        ("model.lstm.n_layers=1", r"model\.lstm\.n_layers 2, not 1"),
        ("model.bidirectional=false", r"model\.bidirectional True, not False"),
        ("model.char_cnn.n_highway=2", r"model\.char_cnn\.n_highway 1, not 2"),
        ("model.char_cnn=none", r"model\.char_cnn .*, not None"),
        ("seed=3", "seed 0, not 3"),
        ("batch.size=8", r"batch\.size 4, not 8"),
        ("batch.unroll=6", r"batch\.unroll 5, not 6"),
        ("batch.same_text=true", r"batch\.same_text False, not True"),
        ("negatives=none", "negatives 6, not None"),
        ("optimizer.learning_rate=0.1", r"optimizer\.learning_rate 0\.2, not 0\.1"),
        ("optimizer.name=adam", r"optimizer\.name adagrad, not adam"),
        ("dropout=0.0", r"dropout 0\.1, not 0\.0"),
        ("precision=bfloat16", "precision float32, not bfloat16"),
    ],
)
def test_another_recipe(change: str, message: str, text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path, stop_at=3)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=rf": the run was started with {message}\. Give the same recipe \(only ep"):
        train(text, tmp_path, change, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("change", ["epochs=2", "log_every=3", "evaluation.every=2", "checkpoints.keep=5", "steps=7"])
def test_what_may_change(change: str, text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path, stop_at=3)
    train(text, tmp_path, change, resume=True)


def test_another_corpus(text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path / "run", stop_at=3)
    shards = [random_text(1, 40), random_text(2, 25)[::-1]]
    other = Corpus.open(write_corpus(tmp_path / "other", shards, random_text(3, 12), VOCABULARY_SIZE))
    with pytest.raises(DataError, match=r"other: not the corpus that the run in .*/run was started with; its"):
        train(other, tmp_path / "run", resume=True)


def test_a_shard_that_has_changed(text: Corpus, tmp_path: Path) -> None:
    shutil.copytree(text.folder, tmp_path / "corpus")
    rows = np.load(tmp_path / "corpus" / "train-00001.npy")
    np.save(tmp_path / "corpus" / "train-00001.npy", np.append(rows[5:], rows[:5]))
    with pytest.raises(DataError, match=r"train-00001\.npy: has changed since the corpus was prepared; prepare the"):
        train(Corpus.open(tmp_path / "corpus"), tmp_path / "run", "steps=40")


def test_a_moved_corpus_is_the_same(text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path / "whole")
    train(text, tmp_path / "run", stop_at=3)
    shutil.copytree(text.folder, tmp_path / "moved")
    train(Corpus.open(tmp_path / "moved"), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole", 6)


def test_a_damaged_checkpoint(text: Corpus, tmp_path: Path) -> None:
    train(text, tmp_path, stop_at=3)
    saved = tmp_path / "checkpoints" / "step-00000003"
    short = (saved / "training.safetensors").read_bytes()[:20]
    some = save({"state.h": torch.zeros(1, 1, 4, 1)})
    damaged = {
        "training.json": [
            *(b"", b"{", b"[]", b"{}", b'{"progress": {"steps": 3}}', b"\xff", b"[" * 100_000),
            *(b'{"progress": {"step": [3], "sums": [0, 0]}}', b'{"progress": {"step": 2, "sums": [0, 0]}}'),
            *(b'{"progress": {"step": 3, "sums": [0]}}', b'{"progress": {"step": 3, "sums": 0}}'),
        ],
        "training.safetensors": [b"", short, some],
        "model.safetensors": [b"", some],
        "config.json": [b"{"],
    }
    for name, contents in damaged.items():
        content = (saved / name).read_bytes()
        for wrong in contents:
            (saved / name).write_bytes(wrong)
            with pytest.raises(WeightsError, match=r"step-00000003: a damaged checkpoint \(.*\)\. Remove this") as e:
                train(text, tmp_path, resume=True)
            assert str(e.value).count("damaged checkpoint") == 1
        (saved / name).unlink()
        with pytest.raises(WeightsError, match=r"step-00000003: a damaged checkpoint \(.*\)\. Remove this folder; "):
            train(text, tmp_path, resume=True)
        (saved / name).write_bytes(content)
    shutil.rmtree(saved)  # as it says; the one before is there
    train(text, tmp_path, resume=True)


def test_a_corpus_smaller_than_a_batch(text: Corpus, tmp_path: Path) -> None:
    tokens = sum(len(shard) for shard in text.train)
    message = rf"corpus: {tokens:,} training tokens in 2 shards do not fill one batch of 64 rows × 51 tokens; expected"
    with pytest.raises(DataError, match=message):
        train(text, tmp_path / "run", "batch.size=64", "batch.unroll=50")
    assert not (tmp_path / "run").exists()


def test_a_batch_that_processes_cannot_share(text: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^batch\.size is 4; expected a multiple of 4 processes × 2 parts$"):
        Training(text, tmp_path / "run", recipe("batch.accumulate=2"), world=World(0, 4))
    assert not (tmp_path / "run").exists()


# The plan


def plan(text: Corpus, out: Path, *changes: str, processes: int = 1) -> Plan:
    training = Training(text, out, recipe(*changes))
    return Plan.of(training.config, training.bilm.config, training.streams, torch.device("cpu"), processes)


def test_the_plan_of_a_model_of_characters(text: Corpus, tmp_path: Path) -> None:
    found = plan(text, tmp_path)
    characters, filters, n = 261 * 4, 1 * 4 * 4 + 2 * 4 * 6, 4 + 6
    cnn = characters + filters + n + 2 * (n * n + n) + n * 6 + 6
    lstm = (6 + 6) * 4 * 12 + 4 * 12 + 12 * 6
    assert found.parameters == cnn + 2 * 2 * lstm
    assert found.softmax_parameters == VOCABULARY_SIZE * 6 + VOCABULARY_SIZE
    assert (found.tokens_per_step, found.steps, found.device) == (4 * 5, 6, "cpu")


@pytest.mark.parametrize(
    ("changes", "table", "softmax"),
    [
        (["model.char_cnn=none"], VOCABULARY_SIZE * 6, VOCABULARY_SIZE * 7),
        (["model.char_cnn=none", "model.share_embedding_softmax=true"], VOCABULARY_SIZE * 6, VOCABULARY_SIZE),
    ],
)
def test_the_plan_of_a_word_table(changes: list[str], table: int, softmax: int, text: Corpus, tmp_path: Path) -> None:
    found = plan(text, tmp_path, *changes)
    assert found.parameters == table + 4 * ((6 + 6) * 4 * 12 + 4 * 12 + 12 * 6)
    assert found.softmax_parameters == softmax


@pytest.mark.parametrize("epochs", [0.5, 1, 2.3])
def test_steps_of_epochs(epochs: float, text: Corpus, tmp_path: Path) -> None:
    found = plan(text, tmp_path, "steps=none", f"epochs={epochs}")
    columns = sum(len(shard) // 4 for shard in text.train)
    assert found.steps_per_epoch == pytest.approx(columns / 5)
    assert found.steps == math.ceil(epochs * columns / 5)


@pytest.mark.parametrize(("asked", "found"), [("9", 9), ("10", None), ("8192", None), ("none", None), ("1", 1)])
def test_negatives_of_a_small_vocabulary(asked: str, found: int | None, text: Corpus, tmp_path: Path) -> None:
    """Where twice as many would be all words, the full softmax costs no more."""
    assert plan(text, tmp_path, f"negatives={asked}").negatives == found
    train(text, tmp_path / "run", f"negatives={asked}", "steps=1")


def test_memory_grows_with_the_batch_and_falls_with_its_parts(text: Corpus, tmp_path: Path) -> None:
    bilm = Training(text, tmp_path, recipe()).bilm

    def needed(*changes: str, processes: int = 1) -> int:
        return bytes_needed(recipe(*changes), bilm, "cpu", processes)

    def rises(values: list[int]) -> bool:
        return all(one < other for one, other in itertools.pairwise(values))

    assert rises([needed(f"batch.size={size}") for size in (4, 8, 64, 256)])
    assert rises([needed(f"batch.unroll={unroll}") for unroll in (5, 20, 100)])
    assert rises([needed("batch.size=256", f"batch.accumulate={parts}") for parts in (64, 8, 2, 1)])
    assert rises([needed("batch.size=256", processes=processes) for processes in (16, 4, 1)])
    assert needed("batch.size=8", "batch.accumulate=2") == needed("batch.size=4") == needed("batch.size=8", processes=2)
    assert rises([needed(), needed("optimizer.name=adam")])
    assert rises([needed(), needed("negatives=none")])


def test_tensorboard_sees_the_log(text: Corpus, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(text, tmp_path / "run", "tensorboard=true")
    seen = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    seen.Reload()
    for name in ("loss", "perplexity", "gradient_norm"):
        logged = {line["step"]: line[name] for line in metrics(tmp_path / "run") if name in line}
        assert {event.step: event.value for event in seen.Scalars(name)} == pytest.approx(logged)
