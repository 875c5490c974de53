"""Fine-tuning: what is gained on a domain's text, what stays as it was, and that an interruption changes nothing."""

import dataclasses
import json
import shutil
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from corpora import write_corpus
from elmo.errors import DataError, ElmoError, WeightsError
from elmo.pretrain import finetune as module
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.evaluate import perplexity
from elmo.pretrain.finetune import Change, finetune, with_new_softmax
from elmo.pretrain.loop import Training
from elmo.pretrain.plan import Plan
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf, folder, source
from elmo.weights.folder import Pretrained

SMALL = [
    "steps=8",
    "log_every=2",
    "batch.size=4",
    "batch.unroll=6",
    "negatives=6",
    "evaluation.every=4",
    "checkpoints.every=3",
    "optimizer.name=adam",
    "optimizer.learning_rate=0.02",
    "optimizer.warmup_steps=2",
    "device=cpu",
]
MODEL = [
    "model.lstm.dim=12",
    "model.lstm.projection_dim=6",
    "model.char_cnn.embedding_dim=4",
    "model.char_cnn.filters=[[1, 4], [2, 6]]",
    "model.char_cnn.max_characters_per_token=12",
]
LONGER = ["steps=40", "negatives=none", "dropout=0.0"]  # enough to gain something
VOCABULARY_SIZE = 18


def recipe(*changes: str) -> PretrainConfig:
    return PretrainConfig.load("tiny", None, [*SMALL, *changes], finetuning=True)


def sentences(seed: int, n: int, words: list[str]) -> list[list[str]]:
    """Words that follow each other round, from a random one on."""
    rng = np.random.default_rng(seed)
    starts, lengths = rng.integers(0, len(words), size=n), rng.integers(1, 9, size=n)
    return [
        [words[(start + k) % len(words)] for k in range(length)] for start, length in zip(starts, lengths, strict=True)
    ]


GENERAL = [f"word{k}" for k in range(16)]
DOMAIN = ["gene", *GENERAL[9:2:-1], *(f"protein{k}" for k in range(6)), "cell"]  # seven are known, in another order


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A general corpus, a domain's, and models that were trained on the first."""
    place = tmp_path_factory.mktemp("finetune")
    write_corpus(place / "general", [sentences(1, 80, GENERAL)], sentences(2, 10, GENERAL), VOCABULARY_SIZE)
    write_corpus(place / "domain", [sentences(3, 80, DOMAIN)], sentences(4, 20, DOMAIN), VOCABULARY_SIZE)
    for name, changes in {"characters": [], "words": ["model.char_cnn=none"]}.items():
        config = PretrainConfig.load("tiny", None, [*SMALL, *MODEL, "steps=20", *changes])
        assert Training(Corpus.open(place / "general"), place / name, config).train()
    read = folder.read(place / "characters" / "model")
    bilm_tf.write(read.bilm, place / "options.json", place / "weights.hdf5")
    table = folder.read(place / "words" / "model")
    (place / "table").mkdir()
    bilm_tf.write(table.bilm, place / "table" / "options.json", place / "table" / "weights.hdf5")
    shutil.copy(place / "words" / "model" / "vocabulary.txt", place / "table")
    return place


@pytest.fixture
def domain(home: Path) -> Corpus:
    return Corpus.open(home / "domain")


def with_softmax(home: Path) -> Pretrained:
    return source.read(home / "characters" / "model", softmax=True)


def without_softmax(home: Path) -> Pretrained:
    return source.read(home / "weights.hdf5", softmax=True)


@dataclass
class Stopping:
    """Stops a run after some step, counted over both of its stages."""

    after: int
    stop: threading.Event = field(default_factory=threading.Event)
    steps: list[int] = field(default_factory=list)

    def planned(self, plan: Plan, done: int) -> None:
        pass

    def stepped(self, step: int, plan: Plan) -> None:
        self.steps.append(step)
        if len(self.steps) == self.after:
            self.stop.set()

    def logged(self, values: dict[str, Any]) -> None:
        pass


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("time", "tokens_per_second")} for line in lines]


def done(change: Change | None) -> Change:
    assert change is not None
    return change


# With its softmax


def test_a_model_with_its_softmax_is_trained_on(home: Path, domain: Corpus, tmp_path: Path) -> None:
    model = with_softmax(home)
    assert model.vocabulary is not None
    before = perplexity(model.bilm, model.vocabulary, domain, domain.heldout)
    change = done(finetune(model, domain, tmp_path, recipe(*LONGER)))
    assert change.before == before
    assert change.after.mean < 0.8 * change.before.mean
    assert change.after.forward < change.before.forward
    assert change.after.backward is not None and before.backward is not None
    assert change.after.backward < before.backward

    result = folder.read(tmp_path / "model", softmax=True)
    assert result.vocabulary is not None
    assert result.vocabulary.words == model.vocabulary.words  # the model's, not the domain's
    assert result.bilm.config == model.bilm.config
    assert perplexity(result.bilm, result.vocabulary, domain, domain.heldout) == change.after
    unknown = sum(word not in model.vocabulary for sentence in sentences(4, 20, DOMAIN) for word in sentence)
    assert change.after.unknown == change.before.unknown == unknown / change.after.tokens
    assert not (tmp_path / "softmax").exists()
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["start"] == dataclasses.asdict(before)


def test_one_epoch_by_default(home: Path, domain: Corpus, tmp_path: Path) -> None:
    assert PretrainConfig.load("tiny", finetuning=True).epochs == 1.0
    finetune(with_softmax(home), domain, tmp_path, recipe("steps=none"))
    (shard,) = domain.train
    assert metrics(tmp_path)[-1]["step"] == -(-(len(shard) // 4) // 6)


def test_the_recipe_s_model_is_not_the_given_one_s(home: Path, domain: Corpus, tmp_path: Path) -> None:
    """The sizes are those of the model that is trained on, whatever preset the recipe began with."""
    finetune(with_softmax(home), domain, tmp_path, recipe("model.lstm.dim=99"))
    assert folder.read(tmp_path / "model").bilm.config.lstm.dim == 12


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16])
def test_rounded_weights_are_trained_on_as_float32(
    dtype: torch.dtype, home: Path, domain: Corpus, tmp_path: Path
) -> None:
    """As if the rounded weights had been those of a folder in float32."""
    model = with_softmax(home)
    folder.write(model, tmp_path / "rounded", dtype)
    folder.write(Pretrained(folder.rounded(model.bilm, dtype), model.vocabulary), tmp_path / "exact")
    before = {path: path.read_bytes() for path in (tmp_path / "rounded").iterdir()}
    found = [
        done(finetune(source.read(tmp_path / name, softmax=True), domain, tmp_path / f"tuned {name}", recipe()))
        for name in ("rounded", "exact")
    ]
    assert found[0] == found[1]
    assert found[0].before != perplexity(model.bilm, domain_words(model), domain, domain.heldout)
    assert_same(tmp_path / "tuned rounded", tmp_path / "tuned exact")
    assert {value.dtype for value in weights(tmp_path / "tuned rounded" / "model").values()} == {torch.float32}
    assert {path: path.read_bytes() for path in (tmp_path / "rounded").iterdir()} == before


def domain_words(model: Pretrained) -> Vocabulary:
    assert model.vocabulary is not None
    return model.vocabulary


# Without one


def test_a_new_softmax_is_trained_first(home: Path, domain: Corpus, tmp_path: Path) -> None:
    model = without_softmax(home)
    assert model.bilm.softmax is None
    given = {name: value.clone() for name, value in model.bilm.state_dict().items()}
    change = done(finetune(model, domain, tmp_path, recipe(*LONGER)))

    first = weights(tmp_path / "softmax" / "model")
    assert {name for name in first if name.startswith("softmax.")} == {"softmax.weight", "softmax.bias"}
    assert first.keys() - given.keys() == {"softmax.weight", "softmax.bias"}
    for name, value in given.items():
        assert torch.equal(first[name], value), name
    new = with_new_softmax(model, domain, seed=0)
    assert not torch.equal(first["softmax.weight"], new.bilm.state_dict()["softmax.weight"])

    last = weights(tmp_path / "model")
    assert last.keys() == first.keys()
    for name, value in first.items():
        assert not torch.equal(last[name], value), name
    read = folder.read(tmp_path / "softmax" / "model", softmax=True)
    assert read.vocabulary is not None
    assert read.vocabulary.words == domain.vocabulary.words
    assert change.before == perplexity(read.bilm, read.vocabulary, domain, domain.heldout)
    assert change.after.mean < change.before.mean < VOCABULARY_SIZE
    assert [line["step"] for line in metrics(tmp_path / "softmax") if "loss" in line] == list(range(2, 41, 2))


def test_a_new_softmax_has_its_initial_values(home: Path, domain: Corpus) -> None:
    model = without_softmax(home)
    one, same, other = (with_new_softmax(model, domain, seed).bilm.state_dict() for seed in (0, 0, 1))
    assert torch.equal(one["softmax.weight"], same["softmax.weight"])
    assert not torch.equal(one["softmax.weight"], other["softmax.weight"])
    assert one["softmax.weight"].shape == (VOCABULARY_SIZE, 6)
    assert not one["softmax.bias"].any()
    for name, value in model.bilm.state_dict().items():
        assert torch.equal(one[name], value), name


@pytest.mark.parametrize("softmax", [True, False])
def test_a_word_table_keeps_its_own_vocabulary(softmax: bool, home: Path, domain: Corpus, tmp_path: Path) -> None:
    place = home / "words" / "model" if softmax else home / "table"
    model = source.read(place, softmax=True)
    assert (model.bilm.softmax is None) != softmax
    own = Corpus.open(home / "general").vocabulary.words
    assert own != domain.vocabulary.words
    change = done(finetune(model, domain, tmp_path, recipe(*LONGER)))
    result = folder.read(tmp_path / "model", softmax=True)
    assert result.vocabulary is not None
    assert result.vocabulary.words == own
    assert (tmp_path / "model" / "vocabulary.txt").read_text().splitlines() == own
    assert result.bilm.config.n_words == result.bilm.config.n_softmax == len(own)
    assert change.after.mean < change.before.mean
    assert change.after.unknown > 0.2
    if not softmax:
        first, given = weights(tmp_path / "softmax" / "model"), model.bilm.state_dict()
        for name, value in given.items():
            assert torch.equal(first[name], value), name


# Interrupted


@pytest.mark.parametrize("after", [1, 3, 6, 7])
def test_interrupted_and_resumed(after: int, home: Path, domain: Corpus, tmp_path: Path) -> None:
    whole = done(finetune(with_softmax(home), domain, tmp_path / "whole", recipe()))
    told = Stopping(after)
    out = tmp_path / "resumed"
    assert finetune(with_softmax(home), domain, out, recipe(), stop=told.stop, report=told) is None
    assert not (out / "model").exists()
    resumed = finetune(with_softmax(home), domain, out, recipe(), resume=True)
    assert resumed == whole
    assert_same(out, tmp_path / "whole")


@pytest.mark.parametrize("after", [1, 5, 8, 9, 12, 15])
def test_interrupted_and_resumed_in_either_stage(after: int, home: Path, domain: Corpus, tmp_path: Path) -> None:
    whole = done(finetune(without_softmax(home), domain, tmp_path / "whole", recipe()))
    told = Stopping(after)
    out = tmp_path / "resumed"
    assert finetune(without_softmax(home), domain, out, recipe(), stop=told.stop, report=told) is None
    assert (out / "softmax" / "model").exists() == (after >= 8)  # its last step done, the first stage is
    assert (out / "run.json").exists() == (after > 8)
    again = Stopping(1000)
    resumed = finetune(without_softmax(home), domain, out, recipe(), resume=True, report=again)
    assert [*told.steps, *again.steps] == [*range(1, 9), *range(1, 9)]
    assert_same(out / "softmax", tmp_path / "whole" / "softmax")
    assert resumed == whole
    assert_same(out, tmp_path / "whole")


def assert_same(found: Path, expected: Path) -> None:
    for name, value in weights(expected / "model").items():
        assert torch.equal(weights(found / "model")[name], value), name
    assert metrics(found) == metrics(expected)


def test_resumed_after_its_end(home: Path, domain: Corpus, tmp_path: Path) -> None:
    change = done(finetune(without_softmax(home), domain, tmp_path / "out", recipe()))
    shutil.copytree(tmp_path / "out", tmp_path / "before")
    assert finetune(without_softmax(home), domain, tmp_path / "out", recipe(), resume=True) == change
    assert_same(tmp_path / "out", tmp_path / "before")


@pytest.mark.parametrize("softmax", [True, False])
def test_nothing_to_resume(softmax: bool, home: Path, domain: Corpus, tmp_path: Path) -> None:
    model = with_softmax(home) if softmax else without_softmax(home)
    with pytest.raises(DataError, match=r"out: nothing to resume, no run\.json in it\. Train without --resume first$"):
        finetune(model, domain, tmp_path / "out", recipe(), resume=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("after", [3, 12])
def test_another_model_is_not_resumed(after: int, home: Path, domain: Corpus, tmp_path: Path) -> None:
    """Nor trained on in silence: of its numbers nothing would be in the result."""
    report = Stopping(after)
    finetune(without_softmax(home), domain, tmp_path, recipe(), stop=report.stop, report=report)
    other = without_softmax(home)
    with torch.no_grad():
        next(other.bilm.parameters())[0, 0] += 1
    with pytest.raises(DataError, match=rf"not the model that the run in {tmp_path / 'softmax'} was started with"):
        finetune(other, domain, tmp_path, recipe(), resume=True)


def test_a_model_without_a_softmax_does_not_go_on_for_one_with_it(home: Path, domain: Corpus, tmp_path: Path) -> None:
    """Nor is a new softmax trained first, for hours, only to find that the run began with another model."""
    report = Stopping(3)
    finetune(with_softmax(home), domain, tmp_path, recipe(), stop=report.stop, report=report)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError) as refused:
        finetune(without_softmax(home), domain, tmp_path, recipe(), resume=True)
    assert str(refused.value) == (
        f"{tmp_path}: the run was started with a model that has a softmax, and this one has none (there is no "
        f"{tmp_path / 'softmax'}). Give the same model, or choose another folder"
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_of_the_first_stage_is_in_memory_in_the_second(
    home: Path, domain: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU its weights, its optimizer and its graphs would fill what the second stage needs."""
    made: list[weakref.ref[Training]] = []
    alive: list[int] = []

    class Watched(Training):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            alive.append(sum(one() is not None for one in made))
            made.append(weakref.ref(self))
            super().__init__(*arguments, **options)

    monkeypatch.setattr(module, "Training", Watched)
    finetune(without_softmax(home), domain, tmp_path, recipe())
    assert alive == [0, 0]


def test_killed_before_its_first_checkpoint(home: Path, domain: Corpus, tmp_path: Path) -> None:
    """The perplexity before training is in the record, and the checkpoint of step 0 is not there yet."""
    change = done(finetune(with_softmax(home), domain, tmp_path / "out", recipe()))
    shutil.copytree(tmp_path / "out", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "checkpoints")
    assert finetune(with_softmax(home), domain, tmp_path / "killed", recipe(), resume=True) == change


# Refused


@pytest.mark.parametrize("softmax", [True, False])
def test_a_corpus_with_nothing_held_out(softmax: bool, home: Path, tmp_path: Path) -> None:
    corpus = Corpus.open(write_corpus(tmp_path / "corpus", [sentences(1, 80, GENERAL)], [], VOCABULARY_SIZE))
    model = with_softmax(home) if softmax else without_softmax(home)
    with pytest.raises(ElmoError, match=r"corpus: nothing is held out; prepare it with --heldout to measure the"):
        finetune(model, corpus, tmp_path / "out", recipe())
    assert not (tmp_path / "out").exists()


def test_a_softmax_without_words(home: Path, domain: Corpus, tmp_path: Path) -> None:
    model = Pretrained(with_softmax(home).bilm)
    with pytest.raises(WeightsError, match=r"^the model has a softmax but no vocabulary\.txt; expected one, to train"):
        finetune(model, domain, tmp_path / "out", recipe())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("after", [3, 12, None])
def test_a_folder_that_holds_a_run(after: int | None, home: Path, domain: Corpus, tmp_path: Path) -> None:
    told = Stopping(after or 1000)
    finetune(without_softmax(home), domain, tmp_path, recipe(), stop=told.stop, report=told)
    with pytest.raises(ElmoError, match=r" already contains a run\. Use --resume to continue it, or choose"):
        finetune(without_softmax(home), domain, tmp_path, recipe())


def test_a_folder_that_contains_a_run_is_refused_before_the_first_stage(
    home: Path, domain: Corpus, tmp_path: Path
) -> None:
    """The run in it began with a model that has a softmax, so it has no first stage."""
    finetune(with_softmax(home), domain, tmp_path, recipe())
    with pytest.raises(DataError, match=rf"^{tmp_path} already contains a run\. Use --resume to continue it, or"):
        finetune(without_softmax(home), domain, tmp_path, recipe())
    assert not (tmp_path / "softmax").exists()


@pytest.mark.parametrize("more", [["one", "too", "many"], []])
def test_a_vocabulary_of_another_size(more: list[str], home: Path, domain: Corpus, tmp_path: Path) -> None:
    """A word for every row of the softmax: with more, some have no row; with fewer, some row has no word."""
    shutil.copytree(home / "characters" / "model", tmp_path / "model")
    words = (tmp_path / "model" / "vocabulary.txt").read_text().split()
    words = [*words, *DOMAIN[::-1], *more] if more else words[:-1]
    words = list(dict.fromkeys(words))
    (tmp_path / "model" / "vocabulary.txt").write_text("".join(f"{word}\n" for word in words))
    with pytest.raises(ElmoError, match=rf"softmax has {VOCABULARY_SIZE} words, the vocabulary {len(words)}"):
        finetune(source.read(tmp_path / "model", softmax=True), domain, tmp_path / "out", recipe())
