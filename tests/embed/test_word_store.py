"""Word vectors on disk, against vectors that a formula gives; whatever happens to the file, results are right."""

import logging
import multiprocessing
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import elmo
from elmo.embed import word_store
from elmo.embed.runner import Runner
from elmo.embed.word_store import PROBES, WORD_BYTES, WordStore
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.text import tokens
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained, write
from embedders import LINES, assert_same_bits, pretrained
from embedders import elmo as command
from fuzzing.mutations import changed_bytes

DIM = 3
WORDS = ["<S>", "</S>", "<UNK>"]
SENTENCES = [line.split() for line in LINES]


def vector_of(word: str) -> list[float]:
    number = crc32(word.encode("utf-8", "surrogatepass"))
    return [float(number % 65521), float(number % 1009), number / 7]


class Encoder:
    """Notes what it is asked for, and gives each word a vector of its own."""

    def __init__(self, plus: float = 0.0) -> None:
        self.asked: list[str] = []
        self.plus = plus

    def __call__(self, words: Sequence[str]) -> Tensor:
        self.asked += words
        return torch.tensor([vector_of(word) for word in words]).view(len(words), DIM) + self.plus


def write_model(folder: Path) -> Path:
    """A model whose widths are multiples of 16, as those of real models are: a word has the same bits in any batch."""
    config = pretrained().bilm.config
    assert config.char_cnn is not None
    cnn = replace(config.char_cnn, filters=((1, 16), (2, 16)), embedding_dim=16)
    lstm = replace(config.lstm, dim=32, projection_dim=16)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bilm = BiLM(replace(config, char_cnn=cnn, lstm=lstm, n_softmax=len(WORDS)))
    write(Pretrained(bilm, Vocabulary(WORDS)), folder)
    return folder


def store_in(folder: Path, max_bytes: int = 1 << 20) -> WordStore:
    return WordStore(folder, "a model", torch.zeros(1), DIM, max_bytes)


def words(first: int, last: int) -> list[str]:
    return [f"w{number}" for number in range(first, last)]


def assert_right(store: WordStore, asked: Sequence[str], plus: float = 0.0) -> list[str]:
    """Check the vectors; return the words that were encoded."""
    encoder = Encoder(plus)
    assert torch.equal(store.vectors(asked, encoder), Encoder(plus)(asked))
    return encoder.asked


def stored(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as file:
        return [word.decode() for (word,) in file.execute("SELECT word FROM words ORDER BY number")]


def test_words_are_encoded_once_by_all_processes_together(tmp_path: Path) -> None:
    assert assert_right(store_in(tmp_path), words(0, 700)) == words(0, 700)
    later = store_in(tmp_path)
    # Its first words are computed again, to see whether they are the same on this machine.
    assert assert_right(later, words(600, 1300)) == [*words(0, PROBES), *words(700, 1300)]
    assert assert_right(later, list(reversed(words(0, 1300)))) == []
    assert assert_right(later, []) == []
    assert stored(later.path) == words(0, 1300)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(st.text(max_size=3), min_size=1, max_size=9, unique=True), max_size=6))
def test_any_words_in_any_order(tmp_path_factory: pytest.TempPathFactory, calls: list[list[str]]) -> None:
    folder = tmp_path_factory.mktemp("words")
    for asked in calls:
        assert_right(store_in(folder), asked)
    every = list(dict.fromkeys(word for asked in calls for word in asked))
    assert assert_right(store_in(folder), every) == every[:PROBES]


def test_lone_surrogates_and_very_long_words(tmp_path: Path) -> None:
    odd = ["\ud800", "\udfff", "a\0b", "", "x" * 257]
    assert_right(store_in(tmp_path), odd)
    assert assert_right(store_in(tmp_path), odd) == [*odd[:PROBES], odd[-1]]  # the long one is not kept


def test_the_size_is_bounded_and_the_oldest_words_make_room(tmp_path: Path) -> None:
    store = store_in(tmp_path, max_bytes=100 * (4 * DIM + WORD_BYTES))
    for start in range(0, 1000, 40):
        assert_right(store, words(start, start + 40))
        assert stored(store.path) == words(max(start - 60, 0), start + 40)
    assert_right(store, words(2000, 2300))  # more than there is room for
    assert stored(store.path) == words(2200, 2300)
    assert store.path.stat().st_size < 50_000


def test_damaged_files_are_started_over_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(tmp_path)
    assert_right(store, words(0, 300))
    whole = store.path.read_bytes()
    vector = np.array(vector_of("w250"), dtype=np.float32).tobytes()
    assert whole.count(vector) == 1
    flipped = whole.replace(vector, bytes([vector[0] ^ 1, *vector[1:]]))
    for content in (flipped, b"not a database" * 1000, whole[:4096]):
        store.path.write_bytes(content)
        caplog.clear()
        assert_right(store_in(tmp_path), words(200, 300))
        assert len(caplog.records) == 1
        assert "damaged (" in caplog.text and "; starting it over" in caplog.text
        assert set(stored(store.path)) <= set(words(200, 300))
        assert_right(store_in(tmp_path), words(200, 300))
        assert assert_right(store_in(tmp_path), words(200, 300)) == stored(store.path)[:PROBES]
        assert len(caplog.records) == 1
    caplog.clear()
    store.path.write_bytes(b"")  # as SQLite begins a file
    assert_right(store_in(tmp_path), words(0, 10))
    assert caplog.records == []


def test_any_damage_leaves_results_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "elmo")
    store = store_in(tmp_path)
    assert_right(store, words(0, 300))
    whole = store.path.read_bytes()
    for case in range(150):
        store.path.write_bytes(changed_bytes(Random(case), whole))
        later = store_in(tmp_path)
        assert_right(later, words(100, 200))
        assert_right(later, words(0, 400))


def test_a_file_may_be_deleted_at_any_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(tmp_path / "words")
    assert_right(store, words(0, 10))
    store.path.unlink()
    assert assert_right(store, words(0, 10))[-10:] == words(0, 10)
    assert stored(store.path) == words(0, 10)
    assert caplog.records == []
    store.path.unlink()
    store.folder.rmdir()
    assert_right(store, words(0, 20))
    assert_right(store, words(0, 20))
    assert [record.message.split(": ")[1] for record in caplog.records] == [
        "cannot be written (unable to open database file); new word vectors are not kept"
    ]


def test_vectors_of_another_machine_are_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert_right(store_in(tmp_path), words(0, 50))
    later = store_in(tmp_path)
    assert assert_right(later, words(0, 50), plus=1e-4) == [*words(0, PROBES), *words(0, 50)]
    assert "other last bits than computed here; starting it over" in caplog.text
    assert assert_right(store_in(tmp_path), words(0, 50), plus=1e-4) == words(0, PROBES)


def test_a_file_that_another_process_has_locked_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(word_store, "WAIT", 0.01)
    store = store_in(tmp_path)
    assert_right(store, words(0, 10))
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert assert_right(store, words(5, 15)) == words(5, 15)
    assert assert_right(store, words(0, 15))[-5:] == words(10, 15)
    assert caplog.records == []


def test_a_file_that_cannot_be_opened_gives_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_in(tmp_path)
    store.path.mkdir()
    for _ in range(3):
        assert assert_right(store, words(0, 5)) == words(0, 5)
    assert len(caplog.records) == 1
    assert "cannot be read (unable to open database file); new word vectors are not kept" in caplog.text


def test_a_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("mine")
    with pytest.raises(ConfigError, match=r"text: is a file; word_cache is a folder: choose another name$"):
        store_in(tmp_path / "text")


def _work(folder: Path, number: int) -> None:
    store = store_in(folder)
    for start in range(0, 400, 20):
        assert_right(store, words(start + 3 * number, start + 3 * number + 40))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_several_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_work, args=(tmp_path, number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(stored(store_in(tmp_path).path)) == sorted(words(0, 429))


@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16"])
def test_results_are_equal_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    model = write_model(tmp_path / "model")
    asked: list[str] = []
    encode = Runner._encode

    def noted(runner: Runner, words: Sequence[str]) -> Tensor:
        asked.extend(words)
        return encode(runner, words)

    expected = list(elmo.load(model, device="cpu", precision=precision).embed(SENTENCES))
    monkeypatch.setattr(Runner, "_encode", noted)
    for encoded in (len({"<S>", "</S>"}.union(*SENTENCES)) + 2, PROBES):  # the boundaries are probes, too
        asked.clear()
        kept = elmo.load(model, device="cpu", precision=precision, word_cache=tmp_path / "words")
        assert_same_bits(list(kept.embed(SENTENCES)), expected)
        assert len(asked) == encoded, asked


def test_every_precision_and_model_has_its_own_file(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    for precision in ("float32", "int8", "bfloat16"):
        loaded = elmo.load(model, device="cpu", precision=precision, word_cache=tmp_path / "words")
        list(loaded.embed(SENTENCES))
    assert len(list((tmp_path / "words").glob("*.sqlite"))) == 3


def test_weights_that_others_may_change_are_not_kept(tmp_path: Path) -> None:
    loaded = elmo.load(write_model(tmp_path / "model"), device="cpu", word_cache=tmp_path / "words")
    list(loaded.embed([["before"]]))
    with torch.no_grad():
        for parameter in loaded.bilm.token_encoder.parameters():
            parameter.mul_(1.5)
    list(loaded.embed([["after"]]))
    (path,) = (tmp_path / "words").glob("*.sqlite")
    assert "before" in stored(path)
    assert "after" not in stored(path)


def test_commands_share_a_file_and_write_the_same_with_it(tmp_path: Path) -> None:
    text, model = tmp_path / "text.txt", write_model(tmp_path / "model")
    text.write_text("\n".join(LINES), encoding="utf-8")
    outputs = []
    for number, option in enumerate([[], ["--word-cache", tmp_path / "words"]] * 2):
        vectors, scores = tmp_path / f"{number}.npz", tmp_path / f"{number}.jsonl"
        for words in (["embed", text, vectors], ["score", text, "--output", scores]):
            ended = command(*words, "--model", model, "--device", "cpu", *option)
            assert ended.code == 0, ended.err
        outputs.append((vectors.read_bytes(), scores.read_bytes()))
    assert all(output == outputs[0] for output in outputs)
    (path,) = (tmp_path / "words").glob("*.sqlite")
    assert set(stored(path)) == {"<S>", "</S>"}.union(*map(tokens.words, LINES))


def test_ray_has_no_word_cache(tmp_path: Path) -> None:
    ended = command("embed", "text.txt", tmp_path / "out", "--engine", "ray", "--word-cache", tmp_path / "words")
    assert (ended.code, ended.err) == (2, "elmo: --word-cache is for --engine local; leave it out\n")
