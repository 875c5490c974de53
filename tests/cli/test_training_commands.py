"""`elmo pretrain`, `perplexity` and `finetune`: what they print, how they end, and their one-line refusals."""

import contextlib
import errno
import json
import math
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from corpora import write_corpus
from elmo.cli.progress import StepReport
from elmo.files import locked
from elmo.model.bilm import BiLM
from elmo.pretrain import evaluate
from elmo.pretrain.corpus import Corpus
from elmo.text.vocabulary import Vocabulary
from elmo.training import checkpoint, memory
from elmo.weights import folder
from elmo.weights.folder import Pretrained
from embedders import OPTIONS, REFERENCE, WEIGHTS, Finished, assert_refused, elmo, nothing_new_in, pretrained
from models import write_published
from numpy_reference import State

D = OPTIONS["lstm"]["projection_dim"]
WORDS = [f"word{k}" for k in range(20)]
VOCABULARY = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", ".", "on", "mat", "naïve"]
SMALL = {
    "steps": 6,
    "log_every": 2,
    "batch.size": 4,
    "batch.unroll": 5,
    "negatives": 6,
    "evaluation.every": 4,
    "checkpoints.every": 2,
    "device": "cpu",
}
MODEL = {
    "model.lstm.dim": 12,
    "model.lstm.projection_dim": 6,
    "model.char_cnn.embedding_dim": 4,
    "model.char_cnn.filters": "[[1, 4], [2, 6]]",
}


def sets(**changes: Any) -> list[str]:
    return [f"--set={name}={value}" for name, value in (SMALL | changes).items()]


def pretrain(corpus: Path, out: Path, *more: object, **changes: Any) -> Finished:
    return elmo("pretrain", corpus, out, "--preset", "tiny", *sets(**MODEL, **changes), *more)


def random_text(seed: int, n: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    likely = 1 / np.arange(1, len(WORDS) + 1)
    return [rng.choice(WORDS, size=rng.integers(1, 9), p=likely / likely.sum()).tolist() for _ in range(n)]


def write_lines(path: Path, sentences: Sequence[Sequence[str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(" ".join(sentence) + "\n" for sentence in sentences), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, one with nothing held out, a language model in a folder, and one without softmax as HDF5."""
    place = tmp_path_factory.mktemp("verbs")
    write_corpus(place / "corpus", [random_text(1, 60)], random_text(2, 8), 16)
    write_corpus(place / "all", [random_text(1, 60)], [], 16)
    write_published(place, OPTIONS, WEIGHTS)
    given = pretrained().bilm
    rng = np.random.default_rng(3)
    softmax = {
        "softmax.weight": torch.from_numpy(rng.standard_normal((len(VOCABULARY), D)).astype(np.float32)),
        "softmax.bias": torch.from_numpy(rng.standard_normal(len(VOCABULARY)).astype(np.float32)),
    }
    bilm = BiLM(replace(given.config, n_softmax=len(VOCABULARY)))
    bilm.load_state_dict(given.state_dict() | softmax)
    folder.write(Pretrained(bilm, Vocabulary(VOCABULARY)), place / "model")
    return place


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def assert_ended(ended: Finished, *parts: str) -> None:
    """A run that had begun: its plan and its log, then one line that says what went wrong; no traceback."""
    assert ended.code == 2, ended.err[-1000:]
    assert ended.out == ""
    assert "Traceback" not in ended.err
    *_, last = ended.err.splitlines()
    assert last.startswith("elmo: ")
    assert ended.err.count("elmo: ") == 1
    for part in parts:
        assert part in last


# elmo pretrain


def test_pretrain_says_what_it_does(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ended = pretrain(home / "corpus", out)
    assert ended.code == 0, ended.err
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert elmo("info", out / "model").code == 0
    # characters 261 × 4, filters 74, a highway 10 × 20 + 20, a projection 10 × 6 + 6; LSTMs 4 × (12 × 48 + 48 + 72)
    assert lines[0].split(maxsplit=1) == ["parameters", "4,188, plus 112 of the softmax"]
    assert lines[1].split(maxsplit=1) == ["step", "20 tokens in each direction, 6 negatives"]
    (shard,) = Corpus.open(home / "corpus").train
    epochs = 6 / (len(shard) // 4 / 5)
    assert lines[2].split(maxsplit=1) == ["run", f"6 steps, {epochs:.2f} epochs, 0 done"]
    assert lines[3].startswith("memory       about ")
    assert lines[3].endswith(" GiB free on cpu")
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    expected = []
    for line in logged:
        start = f"step {line['step']} epoch {line['epoch']:.2f}: "
        if "loss" in line:
            speed = f"{line['tokens_per_second']:,.0f} tokens/s"
            expected.append(f"{start}loss {line['loss']:.3f} {speed}, gradient {line['gradient_norm']:.2f}")
        else:
            ways = f"forward {line['forward_perplexity']:.2f}, backward {line['backward_perplexity']:.2f}"
            expected.append(f"{start}held-out perplexity {line['perplexity']:.2f} ({ways})")
    assert lines[4:-1] == expected
    best = min(line["perplexity"] for line in logged if "perplexity" in line)
    assert lines[-1] == f"{out / 'model'}: 4,188 parameters, held-out perplexity {best:.2f}"


def test_pretrain_with_nothing_held_out_and_the_full_softmax(home: Path, tmp_path: Path) -> None:
    ended = pretrain(home / "all", tmp_path / "run", negatives="none")
    assert ended.code == 0, ended.err
    assert "20 tokens in each direction, full softmax\n" in ended.err
    assert "perplexity" not in ended.err
    assert ended.err.endswith(f"{tmp_path / 'run' / 'model'}: 4,188 parameters\n")


def test_one_direction(home: Path, tmp_path: Path) -> None:
    ended = pretrain(home / "corpus", tmp_path / "run", **{"model.bidirectional": "false"})
    assert ended.code == 0, ended.err
    assert "held-out perplexity" in ended.err
    assert "backward" not in ended.err
    tuned = elmo("finetune", tmp_path / "run" / "model", home / "corpus", tmp_path / "tuned", *sets())
    assert tuned.code == 0, tuned.err
    assert [line.split()[0] for line in tuned.out.splitlines()[1:-1]] == ["forward", "mean"]


def test_perplexity_of_one_direction(home: Path, tmp_path: Path) -> None:
    given = folder.read(home / "model", softmax=True)
    bilm = BiLM(replace(given.bilm.config, bidirectional=False))
    folder.write(Pretrained(bilm, given.vocabulary), tmp_path / "model")
    ended = elmo("perplexity", tmp_path / "model", home / "corpus")
    assert ended.code == 0, ended.err
    assert [line[:16].strip() for line in ended.out.splitlines()] == ["forward", "as bilm-tf", "tokens", "unknown"]


def test_a_word_table_knows_its_recipe(home: Path, tmp_path: Path) -> None:
    cells = {name: value for name, value in MODEL.items() if "lstm" in name}
    options = sets(**cells, **{"model.char_cnn": "none"})
    assert elmo("pretrain", home / "corpus", tmp_path / "run", "--preset", "tiny", *options).code == 0
    ended = elmo("pretrain", home / "corpus", tmp_path / "run", "--resume", "--set", "steps=8")
    assert ended.code == 0, ended.err
    assert folder.read(tmp_path / "run" / "model").bilm.config.n_words == 16


def test_a_recipe_may_be_a_file(home: Path, tmp_path: Path) -> None:
    """Defaults ◀ preset ◀ file ◀ --set."""
    file = tmp_path / "recipe.toml"
    model = "[model.lstm]\ndim = 10\n[optimizer]\nlearning_rate = 0.1\n"
    file.write_text(f'steps = 9\nseed = 5\nnegatives = "none"\n{model}')
    options = [f"--set={name}={value}" for name, value in MODEL.items() if name != "model.lstm.dim"]
    ended = elmo(
        "pretrain", home / "corpus", tmp_path / "run", "--preset", "tiny", "--config", file, *options,
        "--set=steps=2", "--set=batch.size=4", "--set=batch.unroll=5", "--set=device=cpu",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (config["steps"], config["seed"], config["negatives"]) == (2, 5, None)
    assert (config["model"]["lstm"]["dim"], config["optimizer"]["learning_rate"], config["dropout"]) == (10, 0.1, 0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_saves_and_says_so(
    number: signal.Signals, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pretrain(home / "corpus", tmp_path / "whole").code == 0
    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        interrupt(patched, number, at=3)
        ended = pretrain(home / "corpus", tmp_path / "run")
    assert ended.code == 130
    assert signal.getsignal(number) == before
    last = ended.err.splitlines()[-1]
    assert last == f"elmo: {tmp_path / 'run'}: interrupted after step 3. Use --resume to continue from there"
    assert not (tmp_path / "run" / "model").exists()
    resumed = elmo("pretrain", home / "corpus", tmp_path / "run", "--resume")  # it knows its recipe
    assert resumed.code == 0, resumed.err
    assert ", 3 done\n" in resumed.err
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(weights(tmp_path / "run")[name], value), name


def interrupt(patched: pytest.MonkeyPatch, number: signal.Signals, at: int) -> None:
    """Send this process a signal after a step, counted over all stages of the command."""
    stepped, seen = StepReport.stepped, []

    def interrupting(self: StepReport, step: int, plan: Any) -> None:
        stepped(self, step, plan)
        seen.append(step)
        if len(seen) == at:
            signal.raise_signal(number)

    patched.setattr(StepReport, "stepped", interrupting)


def test_a_resumed_run_may_be_longer(home: Path, tmp_path: Path) -> None:
    assert pretrain(home / "corpus", tmp_path / "run").code == 0
    ended = elmo("pretrain", home / "corpus", tmp_path / "run", "--resume", "--set", "steps=8")
    assert ended.code == 0, ended.err
    assert "8 steps" in ended.err


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--preset", "huge"], ["no preset 'huge'; expected one of tiny, small, medium, original"]),
        (["--set", "optimizer.nme=adam"], ["unknown field 'optimizer.nme'; did you mean 'optimizer.name'?"]),
        (["--set", "steps"], ["--set steps: expected name=value, such as optimizer.learning_rate=0.1"]),
        (["--set", "device=abacus"], ["device 'abacus' is not available; on this machine: auto, cpu"]),
        (["--set", "model=3"], ["model is 3; expected a table of its fields"]),
        (["--config", "none.toml"], ["none.toml: cannot be read (No such file or directory); expected a TOML file"]),
        (["--resume"], ["run: nothing to resume, no run.json in it. Train without --resume first"]),
    ],
)
def test_a_recipe_that_cannot_be_used(more: list[str], parts: list[str], home: Path, tmp_path: Path) -> None:
    with nothing_new_in(tmp_path):
        assert_refused(pretrain(home / "corpus", tmp_path / "run", *more), *parts)


def test_all_errors_of_a_file_are_printed_at_once(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text("dropout = 1\n[batch]\nsizes = 4\n")
    ended = pretrain(home / "corpus", tmp_path / "run", "--config", file)
    assert ended.code == 2
    assert ended.err.splitlines() == [
        "elmo: 2 errors in the config:",
        "  unknown field 'batch.sizes'; did you mean 'batch.size'?",
        "  dropout is 1.0; expected a number in [0, 1)",
    ]


@pytest.mark.parametrize("verb", ["pretrain", "finetune", "perplexity"])
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("nothing", ["nothing: not found; expected a text file, a folder of them"]),
        ("empty", ["empty: no file in this folder; expected text files"]),
        ("blank.txt", ["blank.txt: no sentence in it; expected text"]),
        ("latin.txt", ["latin.txt: line 2 is not UTF-8 (byte 4 is 0xe9)"]),
        ("damaged", ["corpus.json: not the manifest of a corpus", "prepare the text again"]),
    ],
)
def test_a_corpus_that_is_none(verb: str, name: str, parts: list[str], home: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes(b"the cat\ncaf\xe9 .\n")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "corpus.json").write_text("{}")
    model = [home / "model"] if verb != "pretrain" else []
    out = [tmp_path / "run"] if verb != "perplexity" else []
    assert_refused(elmo(verb, *model, tmp_path / name, *out), *parts)


def test_a_run_that_is_there(home: Path, tmp_path: Path) -> None:
    assert pretrain(home / "corpus", tmp_path / "run").code == 0
    with nothing_new_in(tmp_path):
        assert_refused(pretrain(home / "corpus", tmp_path / "run"), "run already contains a run. Use --resume to")
        ended = elmo("pretrain", home / "corpus", tmp_path / "run", "--resume", "--set", "seed=3")
        assert_refused(ended, "run: the run was started with seed 0, not 3. Give the same recipe")


def test_a_loss_that_is_no_number(home: Path, tmp_path: Path) -> None:
    changes = {"optimizer.learning_rate": 1e38, "optimizer.clip_norm": "none", "steps": 20}
    ended = pretrain(home / "corpus", tmp_path / "run", **changes)
    assert_ended(ended, "elmo: step ", ": loss ", "in the batch that begins with ", "lower optimizer.learning_rate")


# Text as it is


def test_tokenised_text_and_a_vocabulary(tmp_path: Path) -> None:
    """What bilm-tf trains on: a folder of text files, one sentence a line, and a file of words."""
    first, second = random_text(1, 30), random_text(4, 30)
    write_lines(tmp_path / "shards" / "news-00000", first)
    write_lines(tmp_path / "shards" / "news-00001", second)
    words = ["<S>", "</S>", "<UNK>", *WORDS[:11]]
    vocabulary = write_lines(tmp_path / "vocab.txt", [[word] for word in words])
    ended = pretrain(tmp_path / "shards", tmp_path / "run", "--vocabulary", vocabulary, "--tokenizer", "whitespace")
    assert ended.code == 0, ended.err
    assert (tmp_path / "run" / "model" / "vocabulary.txt").read_text().splitlines() == words
    (folder,) = (tmp_path / "run").glob("corpus-*")
    corpus = Corpus.open(folder)
    assert not corpus.heldout
    text = [corpus.words[row] for shard in corpus.train for row in corpus.rows(shard)]
    assert text == [word for sentence in [*first, *second] for word in ("<S>", *sentence, "</S>")]
    for steps, again in ((7, ("--vocabulary", vocabulary, "--tokenizer", "whitespace")), (8, ())):
        resumed = elmo("pretrain", tmp_path / "shards", tmp_path / "run", *again, "--resume", "--set", f"steps={steps}")
        assert resumed.code == 0, resumed.err
    assert list((tmp_path / "run").glob("corpus-*")) == [folder]


RAW = [f"The {k} rates of bank {k % 7} don't rise." for k in range(60)]
TOKENS = {"whitespace": {"rates", "rise.", "don't"}, "moses": {"rates", "rise", ".", "don", "'t"}}


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
@pytest.mark.parametrize("tokenizer", [None, "moses", "whitespace", "own"])
def test_text_is_tokenised_as_by_the_other_verbs(verb: str, tokenizer: str | None, home: Path, tmp_path: Path) -> None:
    """Moses if nothing is said: what `embed`, `score` and `perplexity` read of a text."""
    (tmp_path / "raw.txt").write_text("".join(f"{line}\n" for line in RAW))
    (tmp_path / "own.py").write_text("def upper(line):\n    return line.upper().split()\n")
    name = f"{tmp_path / 'own.py'}:upper" if tokenizer == "own" else tokenizer
    options = [] if name is None else ["--tokenizer", name]
    if verb == "pretrain":
        ended = pretrain(tmp_path / "raw.txt", tmp_path / "run", *options, steps=1)
    else:
        ended = elmo("finetune", home / "model", tmp_path / "raw.txt", tmp_path / "run", *sets(steps=1), *options)
    assert ended.code == 0, ended.err
    (folder,) = (tmp_path / "run").glob("corpus-*")
    words = set(Corpus.open(folder).words)
    assert words >= ({"RATES", "RISE.", "DON'T"} if tokenizer == "own" else TOKENS[tokenizer or "moses"])


def test_another_tokenizer_is_another_corpus(tmp_path: Path) -> None:
    """Also of a run that is resumed, and of a function that was changed."""
    (tmp_path / "raw.txt").write_text("".join(f"{line}\n" for line in RAW))
    own = tmp_path / "own.py"
    own.write_text("def mine(line):\n    return line.split()\n")
    assert pretrain(tmp_path / "raw.txt", tmp_path / "run", "--tokenizer", f"{own}:mine").code == 0
    again = ["pretrain", tmp_path / "raw.txt", tmp_path / "run", "--resume"]
    for options in ([], ["--tokenizer", f"{own}:mine"]):
        assert elmo(*again, *options).code == 0
    refused = f"--tokenizer is moses, but the run was started with {own}:mine. Leave out the option, or choose another"
    assert_refused(elmo(*again, "--tokenizer", "moses"), refused)
    own.write_text("def mine(line):\n    return line.upper().split()\n")
    for options in ([], ["--tokenizer", f"{own}:mine"]):
        assert_refused(elmo(*again, *options), "not the corpus that the run in", "was started with")


@pytest.mark.parametrize("stage", ["softmax", "both"])
def test_a_resumed_fine_tuning_knows_its_tokenizer(
    stage: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in its first stage, whose record is not in the folder of the run itself."""
    (tmp_path / "raw.txt").write_text("".join(f"{line}\n" for line in RAW))
    model = home / ("weights.hdf5" if stage == "softmax" else "model")
    started = ["finetune", model, tmp_path / "raw.txt", tmp_path / "run"]
    with monkeypatch.context() as patched:
        interrupt(patched, signal.SIGINT, 3)
        assert elmo(*started, *sets(), "--tokenizer", "whitespace").code == 130
    assert_refused(elmo(*started, "--resume", "--tokenizer", "moses"), "the run was started with whitespace")
    resumed = elmo(*started, "--resume")
    assert resumed.code == 0, resumed.err
    (folder,) = (tmp_path / "run").glob("corpus-*")
    assert set(Corpus.open(folder).words) >= TOKENS["whitespace"]


@pytest.mark.parametrize("verb", ["pretrain", "finetune", "perplexity"])
def test_a_prepared_corpus_is_tokenised(verb: str, home: Path, tmp_path: Path) -> None:
    model = [home / "model"] if verb != "pretrain" else []
    out = [tmp_path / "run"] if verb != "perplexity" else []
    ended = elmo(verb, *model, home / "corpus", *out, "--tokenizer", "moses")
    assert_refused(ended, "corpus is a prepared corpus and has its own tokenizer; --tokenizer moses is only for text.")


def test_text_without_a_vocabulary_has_its_own_words(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "text.txt", [*random_text(1, 60), ["once"]])
    ended = pretrain(path, tmp_path / "run")
    assert ended.code == 0, ended.err
    words = (tmp_path / "run" / "model" / "vocabulary.txt").read_text().splitlines()
    assert words[:3] == ["<S>", "</S>", "<UNK>"]
    assert "once" in words


def test_another_text_is_not_the_one_before(tmp_path: Path) -> None:
    """A first attempt that was refused leaves nothing that a second would train on."""
    one = write_lines(tmp_path / "one.txt", random_text(1, 60))
    other = write_lines(tmp_path / "other.txt", [[word.upper() for word in line] for line in random_text(2, 60)])
    assert pretrain(one, tmp_path / "run", stepz=4).code == 2
    assert pretrain(other, tmp_path / "run").code == 0
    assert "WORD0" in (tmp_path / "run" / "model" / "vocabulary.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        (["<S>", "</S>", *WORDS[:5]], ["vocab.txt: <UNK> not among its 7 words; a vocabulary begins with the lines"]),
        (["<S>", "</S>", *WORDS[:5], "<UNK>"], ["vocab.txt: begins with <S>, </S>, word0; expected <S>, </S>, <UNK>"]),
        (["<S>", "</S>", "<UNK>", "word0", "word1", "word0"], ["vocab.txt: 'word0' occurs more than once"]),
        (["<S>", "</S>", "<UNK>", *WORDS[::-1]], ["vocab.txt: not sorted by descending count"]),
        ([], ["vocab.txt: <S>, </S>, <UNK> not among its 0 words"]),
    ],
)
def test_a_vocabulary_that_cannot_be_used(lines: list[str], parts: list[str], tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.txt", random_text(1, 60))
    vocabulary = write_lines(tmp_path / "vocab.txt", [[word] for word in lines])
    assert_refused(pretrain(text, tmp_path / "run", "--vocabulary", vocabulary), *parts)


def test_a_vocabulary_that_is_not_utf8(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.txt", random_text(1, 60))
    (tmp_path / "vocab.txt").write_bytes(b"<S>\n</S>\n<UNK>\ncaf\xe9\n")
    ended = pretrain(text, tmp_path / "run", "--vocabulary", tmp_path / "vocab.txt")
    assert_refused(ended, "vocab.txt: line 4 is not UTF-8 (byte 4 is 0xe9); convert the file first")


# elmo perplexity

# Two sentences twice, a blank line, words that are not in the vocabulary.
TEXT = ["the cat sat on the mat .", "naïve dogs sat", "", "the cat", "the cat sat on the mat .", ".", "the cat", "x y"]


def brute_force(model: Path, sentences: list[list[str]], carried: bool) -> dict[str, float]:
    """Each sentence after the one before, or alone, in NumPy."""
    tensors = load_file(model / "model.safetensors")
    weight, bias = (tensors[f"softmax.{name}"].double().numpy() for name in ("weight", "bias"))
    state: State | None = None
    sums = {"forward": 0.0, "backward": 0.0}
    for sentence in sentences:
        layers, state = REFERENCE.layers(sentence, state if carried else None, keep_boundaries=True)
        rows = [VOCABULARY.index(word if word in VOCABULARY else "<UNK>") for word in ("<S>", *sentence, "</S>")]
        for name, hidden, targets in (
            ("forward", layers[-1][:-1, :D], rows[1:]),
            ("backward", layers[-1][1:, D:], rows[:-1]),
        ):
            scores = hidden @ weight.T + bias
            log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
            sums[name] += float(log_p[np.arange(len(targets)), targets].sum())
    n = sum(len(sentence) + 1 for sentence in sentences)
    return {name: math.exp(-total / n) for name, total in sums.items()} | {"tokens": n}


@pytest.mark.parametrize("state", ["carried", "fresh"])
@pytest.mark.parametrize("tokenizer", ["whitespace", "moses"])
def test_a_text_is_scored_in_its_own_order(
    state: str, tokenizer: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "ROWS", 1)
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    sentences = [line.split() for line in TEXT if line]
    expected = brute_force(home / "model", sentences, state == "carried")
    with nothing_new_in(tmp_path):
        ended = elmo("perplexity", home / "model", path, "--tokenizer", tokenizer, "--state", state, "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=2e-6), name
    assert found["mean"] == pytest.approx((expected["forward"] + expected["backward"]) / 2, rel=2e-6)
    unknown = sum(word not in VOCABULARY for sentence in sentences for word in sentence)
    assert found["unknown"] == pytest.approx(unknown / expected["tokens"])
    if state == "carried":  # another order is another text
        other = brute_force(home / "model", sentences[::-1], carried=True)
        assert abs(other["forward"] / expected["forward"] - 1) > 1e-3


def test_perplexity_prints_a_table(home: Path) -> None:
    as_json = json.loads(elmo("perplexity", home / "model", home / "corpus", "--json").out)
    ended = elmo("perplexity", home / "model", home / "corpus", "--device", "cpu")
    assert (ended.code, ended.err) == (0, "")
    assert [line.rsplit(maxsplit=1) for line in ended.out.splitlines()] == [
        ["forward", f"{as_json['forward']:.2f}"],
        ["backward", f"{as_json['backward']:.2f}"],
        ["mean", f"{as_json['mean']:.2f}"],
        ["geometric mean", f"{as_json['geometric_mean']:.2f}"],
        ["as bilm-tf", f"{as_json['as_bilm_tf']:.2f}"],
        ["tokens", str(as_json["tokens"])],
        ["unknown", f"{as_json['unknown']:.2%}"],
    ]
    assert {len(line) for line in ended.out.splitlines()} == {28}


def test_a_part_and_a_limit(home: Path) -> None:
    (train,), (heldout,) = Corpus.open(home / "corpus").train, Corpus.open(home / "corpus").heldout

    def tokens(*more: object) -> int:
        ended = elmo("perplexity", home / "model", home / "corpus", "--json", *more)
        assert ended.code == 0, ended.err
        found: int = json.loads(ended.out)["tokens"]
        return found

    assert tokens() == heldout.tokens + heldout.sentences
    assert tokens("--part", "train") == train.tokens + train.sentences
    assert 20 <= tokens("--part", "train", "--tokens", 30) < 40


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["weights.hdf5", "corpus"], ["weights.hdf5: has no softmax, so it predicts no words; published HDF5 files"]),
        (["model", "all"], ["all: nothing is held out; --part train scores the training text"]),
        (["model", "corpus", "--part", "test"], ["--part is 'test'; expected heldout or train"]),
        (["model", "corpus", "--state", "warm"], ["--state is 'warm'; expected carried or fresh"]),
        (["model", "corpus", "--device", "abacus"], ["device 'abacus' is not available"]),
        (["nothing", "corpus"], ["nothing: no such file or folder, and no model of that name"]),
    ],
)
def test_perplexity_refuses(arguments: list[str], parts: list[str], home: Path) -> None:
    with contextlib.chdir(home):
        assert_refused(elmo("perplexity", *arguments), *parts)


def test_no_tokens_is_a_mistake_of_usage(home: Path) -> None:
    ended = elmo("perplexity", home / "model", home / "corpus", "--tokens", 0)
    assert ended.code == 2
    assert "--tokens" in ended.err


def test_a_model_whose_words_do_not_fit_its_softmax(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "model", tmp_path / "model")
    write_lines(tmp_path / "model" / "vocabulary.txt", [[word] for word in [*VOCABULARY, *WORDS]])
    assert_refused(elmo("perplexity", tmp_path / "model", home / "corpus"), "softmax has 10 words, the vocabulary 30")


# elmo finetune


@pytest.mark.parametrize("model", ["model", "weights.hdf5"])
def test_finetune_says_what_was_gained(model: str, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    ended = elmo("finetune", home / model, home / "corpus", out, *sets(steps=20, **{"optimizer.learning_rate": 0.02}))
    assert ended.code == 0, ended.err
    head, *rows, last = ended.out.splitlines()
    assert head.split() == ["held-out", "perplexity", "before", "after"]
    assert [row.split()[0] for row in rows] == ["forward", "backward", "mean"]
    for row in rows:
        before, after = map(float, row.split()[1:])
        assert after < before
    after = json.loads(elmo("perplexity", out / "model", home / "corpus", "--json").out)
    assert rows[-1].split()[-1] == f"{after['mean']:.2f}"
    assert last == f"{out / 'model'}: {after['tokens']:,} tokens, {after['unknown']:.2%} unknown"
    assert ended.err.count("parameters ") == (2 if model == "weights.hdf5" else 1)  # a plan for each stage
    assert (out / "softmax").exists() == (model == "weights.hdf5")


@pytest.mark.parametrize(("model", "at"), [("model", 3), ("weights.hdf5", 3), ("weights.hdf5", 9)])
@pytest.mark.parametrize("said_again", [True, False], ids=["recipe given again", "recipe of the run"])
def test_finetune_interrupted_in_either_stage(
    model: str, at: int, said_again: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = elmo("finetune", home / model, home / "corpus", tmp_path / "whole", *sets())
    assert whole.code == 0, whole.err
    with monkeypatch.context() as patched:
        interrupt(patched, signal.SIGINT, at)
        ended = elmo("finetune", home / model, home / "corpus", tmp_path / "tuned", *sets())
    assert ended.code == 130
    assert ended.out == ""
    done = at - 6 if at > 6 else at
    message = f"elmo: {tmp_path / 'tuned'}: interrupted after step {done}. Use --resume to continue from there\n"
    assert ended.err.endswith(message)
    recipe = sets() if said_again else []
    resumed = elmo("finetune", home / model, home / "corpus", tmp_path / "tuned", *recipe, "--resume")
    assert resumed.code == 0, resumed.err
    assert resumed.out.replace(str(tmp_path / "tuned"), "") == whole.out.replace(str(tmp_path / "whole"), "")
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(weights(tmp_path / "tuned")[name], value), name


def test_finetune_needs_something_held_out(home: Path, tmp_path: Path) -> None:
    ended = elmo("finetune", home / "model", home / "all", tmp_path / "tuned", *sets())
    assert_refused(ended, "all: nothing is held out; prepare it with --heldout to measure the improvement")
    assert not (tmp_path / "tuned").exists()


def test_finetune_refuses_a_run_that_is_there(home: Path, tmp_path: Path) -> None:
    arguments = ("finetune", home / "model", home / "corpus", tmp_path / "tuned", *sets())
    assert elmo(*arguments).code == 0
    with nothing_new_in(tmp_path):
        assert_refused(elmo(*arguments), "tuned already contains a run. Use --resume to continue it, or choose another")


# Too little memory


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_a_run_that_will_not_fit(verb: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 1 << 20)
    model = [home / "model"] if verb == "finetune" else []
    arguments = [verb, *model, home / "corpus", tmp_path / "run", *sets(**(MODEL if verb == "pretrain" else {}))]
    with nothing_new_in(tmp_path):
        ended = elmo(*arguments)
        assert_refused(ended, "GiB of memory, and cpu has 0.0 GiB available. Raise batch.accumulate, lower batch.size")
    assert elmo(*arguments, "--ignore-memory").code == 0


# Two processes


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_another_process_that_writes_the_same_run(verb: str, home: Path, tmp_path: Path) -> None:
    model = [home / "model"] if verb == "finetune" else []
    out = tmp_path / "run"
    with locked(out), nothing_new_in(tmp_path):
        ended = elmo(verb, *model, home / "corpus", out, *sets())
        assert_refused(ended, f"{out}: another process is writing it. Wait until it ends, or choose another name")


def test_a_run_owns_its_folder_until_it_ends(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped, seen = StepReport.stepped, []

    def second(self: StepReport, step: int, plan: Any) -> None:
        stepped(self, step, plan)
        if not seen:
            seen.append(elmo("pretrain", home / "corpus", tmp_path / "run", "--resume"))

    monkeypatch.setattr(StepReport, "stepped", second)
    assert pretrain(home / "corpus", tmp_path / "run").code == 0
    assert_refused(seen[0], "run: another process is writing it")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# A full disk


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_disk_that_is_full_keeps_the_checkpoints_before(
    error: Exception, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pretrain(home / "corpus", tmp_path / "whole").code == 0
    out = tmp_path / "run"

    def full(tensors: dict[str, torch.Tensor], path: Path, **rest: Any) -> None:
        if "step-00000004" in str(path):
            path.write_bytes(b"half")
            raise error
        save_file(tensors, path, **rest)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_file", full)
        ended = pretrain(home / "corpus", out)
    saved = out / "checkpoints" / "step-00000004"
    assert_ended(ended, f"{saved}: the disk is full; nothing was written. Free some space first")
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000002"]
    resumed = elmo("pretrain", home / "corpus", out, "--resume")
    assert resumed.code == 0, resumed.err
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(weights(out)[name], value), name


def test_a_disk_that_is_full_before_the_rename(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def full(file: int) -> None:
        if (tmp_path / "run" / "checkpoints").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        ended = pretrain(home / "corpus", tmp_path / "run")
    assert_ended(ended, "checkpoints/step-00000002: the disk is full; nothing was written.")
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert elmo("pretrain", home / "corpus", tmp_path / "run", "--resume").code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_is_full_for_the_log(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "metrics.jsonl").symlink_to("/dev/full")
    assert_ended(pretrain(home / "corpus", out), "metrics.jsonl", "the disk is full")


def test_a_place_that_is_no_folder(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep")
    ended = elmo("finetune", home / "model", home / "corpus", tmp_path / "file" / "run", *sets())
    assert_refused(ended, "cannot be written")


# Help and threads


def test_threads_of_every_verb_that_computes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert pretrain(home / "corpus", tmp_path / "run", "--threads", 1, steps=1).code == 0
    tuned = ("finetune", home / "model", home / "corpus", tmp_path / "tuned", *sets(steps=1))
    assert elmo(*tuned, "--threads", 2).code == 0
    assert elmo("perplexity", home / "model", home / "corpus", "--threads", 3).code == 0
    assert asked == [1, 2, 3]
    for verb, number in (("train", 4), ("evaluate", 5)):  # refused later: there are no files
        folders = [tmp_path, tmp_path / "x"]
        assert elmo(verb, *(["ner"] if verb == "train" else []), *folders, "--threads", number).code == 2
    assert asked == [1, 2, 3, 4, 5]
    assert elmo("pretrain", home / "corpus", tmp_path / "no", "--threads", 0).code == 2


@pytest.mark.parametrize("verb", ["pretrain", "finetune", "train"])
def test_help_shows_what_set_takes(verb: str) -> None:
    shown = elmo(verb, "--help").out
    assert "--set FIELD=VALUE" in shown
    assert "list[" not in shown
    assert "--threads N" in shown
