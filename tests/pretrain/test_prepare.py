"""Text ─▶ corpus folder, held to what plain Python says of the same text: split, Counter, set."""

import errno
import gzip
import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import zlib
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError
from elmo.pretrain import merge, sorted_parts
from elmo.pretrain import prepare as module
from elmo.pretrain.corpus import Corpus, sentences_in
from elmo.pretrain.prepare import prepare
from elmo.text.sentences import split
from elmo.text.tokens import words
from embedders import nothing_new_in

SPECIAL = ["<S>", "</S>", "<UNK>"]
PLAIN: dict[str, Any] = {"tokenizer": "whitespace", "sentences": "lines", "min_count": 1}
WORDS = ["a", "b", "c", "é", "日本", "<UNK>", "xyz"]
SMALL = 600  # bytes of a block: many blocks

Sentences = list[tuple[str, ...]]


def sentences_of(corpus: Corpus, part: str) -> Sentences:
    """What the shards of a part say, in their order; and that they are what corpus.json says."""
    found: Sentences = []
    for shard in getattr(corpus, part):
        rows = corpus.rows(shard)
        assert rows.dtype == np.uint32
        assert zlib.crc32(rows.tobytes()) == shard.crc32
        text = [corpus.words[row] for row in rows.tolist()]
        sentences = [tuple(line.split()) for line in " ".join(text).removeprefix("<S> ").split(" <S> ")] if text else []
        assert all(sentence[-1] == "</S>" and "</S>" not in sentence[:-1] for sentence in sentences)
        assert len(sentences) == shard.sentences
        assert len(rows) == shard.tokens + 2 * shard.sentences == len(shard)
        found += [sentence[:-1] for sentence in sentences]
    return found


def assert_corpus(folder: Path, wanted: Sentences, heldout: Sentences | None = None, least: int = 1) -> Corpus:
    """The folder holds these sentences, in any order, and all that follows from them; `heldout` if they are others."""
    corpus = Corpus.open(folder)
    train, held = sentences_of(corpus, "train"), sentences_of(corpus, "heldout")
    assert Counter(train + held if heldout is None else train) == Counter(wanted)
    if heldout is not None:
        assert Counter(held) == Counter(heldout)
    counts = Counter(word for sentence in train for word in sentence)
    seen = {word for sentence in train + held for word in sentence} - set(SPECIAL)
    expected = SPECIAL + sorted(seen, key=lambda word: (-counts[word], word))
    assert list(corpus.words) == expected
    assert (folder / "words.txt").read_bytes() == "".join(f"{word}\n" for word in expected).encode()
    predicted = SPECIAL + [word for word in expected[3:] if counts[word] >= least]
    assert corpus.vocabulary.words == predicted
    manifest = corpus.manifest
    assert (manifest["vocabulary"], manifest["words"]) == (len(predicted), len(expected))
    assert manifest["counts"]["sentences"] == len(train) + len(held)
    assert manifest["counts"]["tokens"] == sum(map(len, train + held))
    assert manifest["counts"]["unknown"] == sum(counts[word] for word in expected[len(predicted) :])
    assert manifest["counts"]["truncated"] == sum(len(word.encode()) > 48 for word in expected)
    files = {shard.file for shard in corpus.train + corpus.heldout}
    assert {path.name for path in folder.iterdir()} == files | {"words.txt", "vocabulary.txt", "corpus.json"}
    return corpus


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def some_text(n: int = 200, seed: int = 0) -> list[str]:
    """Lines of a text in which few words are frequent; some lines are equal."""
    rng = np.random.default_rng(seed)
    lines = [" ".join(f"w{word}" for word in rng.zipf(1.5, rng.integers(1, 12)) % 500) for _ in range(n)]
    return lines + lines[: n // 4]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write(tmp_path / "text.txt", some_text())


def distinct(lines: list[str]) -> Sentences:
    return list({tuple(line.split()) for line in lines if line.strip()})


# What is in the folder


@pytest.mark.parametrize("block_bytes", [1, SMALL, 8 << 20])
@pytest.mark.parametrize("shards", [None, 3])
def test_a_corpus_holds_each_sentence_once(block_bytes: int, shards: int | None, text: Path, tmp_path: Path) -> None:
    manifest = prepare(text, tmp_path / "out", block_bytes=block_bytes, shards=shards, heldout="10%", **PLAIN)
    corpus = assert_corpus(tmp_path / "out", distinct(some_text()))
    assert manifest == corpus.manifest == json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert manifest["counts"]["duplicates"] == len(some_text()) - len(distinct(some_text()))
    assert len(corpus.train) == (shards or 1)
    assert len(corpus.heldout) == 1
    assert not (tmp_path / "out.part").exists()
    assert [manifest[key] for key in ("format", "tokenizer", "sentences", "deduplicated", "seed")] == [
        *(1, "whitespace", "lines", True, 0)
    ]


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=4), min_size=1), st.integers(1, 40))
@example([["<UNK>"]], 1)
@settings(deadline=None, max_examples=40)
def test_any_text_with_duplicates_or_without(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[str]], block_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    path = write(folder / "text.txt", [" ".join(sentence) for sentence in sentences])
    everything = [tuple(sentence) for sentence in sentences if sentence]
    if not any(set(sentence) - {"<UNK>"} for sentence in everything):
        with pytest.raises(DataError, match=r"no sentence in it|the training text has no word except <S>, </S>, <UNK>"):
            prepare(path, folder / "out", heldout=0, **PLAIN)
        return
    prepare(path, folder / "once", heldout=0, block_bytes=block_bytes, **PLAIN)
    assert_corpus(folder / "once", list(set(everything)), [])
    prepare(path, folder / "all", heldout="0", block_bytes=block_bytes, deduplicate=False, **PLAIN)
    corpus = assert_corpus(folder / "all", everything, [])
    assert corpus.manifest["counts"]["duplicates"] == 0


def test_raw_text_is_split_into_sentences_and_tokens(tmp_path: Path) -> None:
    lines = ["Dr. Smith isn't here. He left!", "", "It rained (a lot). It rained (a lot)."] * 3 + ["x" * 49, "é" * 24]
    path = tmp_path / "text.txt"
    path.write_bytes("\r\n".join(lines).encode())
    prepare(path, tmp_path / "out", heldout=0, min_count=1)
    wanted = {tuple(words(sentence)) for line in lines for sentence in split(line)}
    assert ("It", "rained", "(", "a", "lot", ")", ".") in wanted
    corpus = assert_corpus(tmp_path / "out", list(wanted), [])
    assert corpus.manifest["counts"]["truncated"] == 1
    assert corpus.manifest["counts"]["duplicates"] == 3 * 4 - 3


@pytest.mark.parametrize("least", [1, 2, 5])
def test_words_that_occur_often_enough_are_predicted(least: int, text: Path, tmp_path: Path) -> None:
    prepare(text, tmp_path / "out", heldout="20%", **(PLAIN | {"min_count": least}))
    corpus = assert_corpus(tmp_path / "out", distinct(some_text()), least=least)
    assert (corpus.manifest["counts"]["unknown"] > 0) == (least > 1)


def test_twice_is_often_enough_unless_told_otherwise(text: Path, tmp_path: Path) -> None:
    prepare(text, tmp_path / "out", tokenizer="whitespace", sentences="lines")
    assert_corpus(tmp_path / "out", distinct(some_text()), least=2)


@pytest.mark.parametrize("size", [4, 20, 10_000])
def test_the_most_frequent_words_are_predicted(size: int, text: Path, tmp_path: Path) -> None:
    prepare(text, tmp_path / "out", heldout="20%", vocab_size=size, **(PLAIN | {"min_count": None}))
    corpus = Corpus.open(tmp_path / "out")
    trained = {word for sentence in sentences_of(corpus, "train") for word in sentence}
    assert len(corpus.words) > 3 + len(trained)  # some words are held out with all their sentences
    assert corpus.vocabulary.words == list(corpus.words)[: min(size, 3 + len(trained))]


@pytest.mark.parametrize("deduplicate", [True, False])
@pytest.mark.parametrize("known", [None, ["<S>", "</S>", "<UNK>", "a", "b"]])
def test_a_token_spelled_like_a_boundary_splits_no_sentence(
    known: list[str] | None, deduplicate: bool, tmp_path: Path
) -> None:
    """It is read as `<UNK>`: rows 0 and 1 stand around sentences, and nowhere in them."""
    lines = ["a </S> b", "<S> <UNK> a", "<S>", "a </S> <S> a b"]
    vocabulary = None if known is None else write(tmp_path / "known.txt", known)
    options = PLAIN | {"heldout": 0, "vocabulary": vocabulary, "deduplicate": deduplicate}
    prepare(write(tmp_path / "a.txt", lines), tmp_path / "out", **options)
    corpus = Corpus.open(tmp_path / "out")
    assert list(corpus.words) == [*SPECIAL, "a", "b"]
    rows = corpus.rows(corpus.train[0])
    starts, lengths = sentences_in(rows)
    found = [rows[start : start + length].tolist() for start, length in zip(starts, lengths, strict=True)]
    assert sorted(found) == sorted([[0, 3, 2, 4, 1], [0, 2, 2, 3, 1], [0, 2, 1], [0, 3, 2, 2, 3, 4, 1]])
    assert (corpus.train[0].sentences, corpus.train[0].tokens) == (4, 12)


# The order


def test_the_order_is_that_of_a_hash_of_the_sentence(text: Path, tmp_path: Path) -> None:
    prepare(text, tmp_path / "out", heldout=0, shards=4, seed=5, block_bytes=SMALL, **PLAIN)
    corpus = Corpus.open(tmp_path / "out")

    def key(sentence: tuple[str, ...]) -> int:
        return int.from_bytes(hashlib.blake2b(f"5 {' '.join(sentence)}".encode(), digest_size=8).digest(), "little")

    assert sentences_of(corpus, "train") == sorted(distinct(some_text()), key=key)
    assert min(shard.sentences for shard in corpus.train) > 25  # of 50


@pytest.mark.parametrize("deduplicate", [True, False])
def test_the_shuffle_crosses_blocks_and_shards(deduplicate: bool, tmp_path: Path) -> None:
    lines = [f"s{k:03d}" for k in range(400)]
    prepare(
        write(tmp_path / "a.txt", lines),
        tmp_path / "out",
        **PLAIN,
        heldout=0,
        shards=4,
        deduplicate=deduplicate,
        block_bytes=SMALL,
    )
    corpus = Corpus.open(tmp_path / "out")
    order = [int(sentence[0][1:]) for sentence in sentences_of(corpus, "train")]
    assert sorted(order) == list(range(400))
    assert abs(np.corrcoef(order, range(400))[0, 1]) < 0.2
    first = order[: corpus.train[0].sentences]
    assert {k // 100 for k in first} == {0, 1, 2, 3}


def test_duplicates_that_are_kept_are_scattered(tmp_path: Path) -> None:
    prepare(
        write(tmp_path / "a.txt", ["same"] * 100 + [f"s{k}" for k in range(100)]),
        tmp_path / "out",
        **PLAIN,
        heldout=0,
        deduplicate=False,
    )
    same = [sentence == ("same",) for sentence in sentences_of(Corpus.open(tmp_path / "out"), "train")]
    assert sum(same) == 100
    assert 30 < sum(one != other for one, other in pairwise(same)) < 170


def test_a_text_may_keep_its_order(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "RANGE_TOKENS", 50)
    held = write(tmp_path / "held.txt", ["b a", "a", "b a"])
    options = PLAIN | {"shuffle": False, "deduplicate": False, "block_bytes": SMALL, "heldout": held}
    prepare(text, tmp_path / "out", shards=3, **options)
    corpus = assert_corpus(
        tmp_path / "out", [tuple(line.split()) for line in some_text()], [("b", "a"), ("a",), ("b", "a")]
    )
    assert sentences_of(corpus, "train") == [tuple(line.split()) for line in some_text()]
    assert sentences_of(corpus, "heldout") == [("b", "a"), ("a",), ("b", "a")]
    assert len(corpus.train) == 3


def test_another_seed_is_another_order_and_another_held_out_part(text: Path, tmp_path: Path) -> None:
    found = []
    for seed in (0, 1):
        prepare(text, tmp_path / f"out{seed}", seed=seed, heldout="20%", **PLAIN)
        corpus = assert_corpus(tmp_path / f"out{seed}", distinct(some_text()))
        found.append((sentences_of(corpus, "train"), set(sentences_of(corpus, "heldout"))))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_sentences_of_one_key_are_kept_unless_they_are_equal(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hashes(_: object, texts: Iterable[bytes]) -> sorted_parts.Keys:
        return np.array([len(text) % 3 for text in texts], dtype=np.uint64)

    monkeypatch.setattr(sorted_parts.SentenceReader, "hashes", hashes)
    lines = ["a b", "b a", "a b", "c d", "e fgh", "e fgh", "x", "x"]
    prepare(write(tmp_path / "a.txt", lines), tmp_path / "out", heldout=0, block_bytes=9, **PLAIN)
    assert_corpus(tmp_path / "out", distinct(lines), [])


def test_a_shard_is_sorted_range_by_range(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(text, tmp_path / "whole", **PLAIN)
    monkeypatch.setattr(merge, "RANGE_TOKENS", 50)
    monkeypatch.setattr(merge, "_CHUNK", 7)
    prepare(text, tmp_path / "out", **PLAIN)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_shards_go_by_tokens_unless_told_otherwise(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARD_TOKENS", 200)
    prepare(text, tmp_path / "out", heldout="40%", **PLAIN)
    corpus = assert_corpus(tmp_path / "out", distinct(some_text()))
    tokens = sum(len(line.split()) for line in some_text())
    assert len(corpus.train) == round(tokens * 0.6 / 200)
    assert len(corpus.heldout) == round(tokens * 0.4 / 200)


@pytest.mark.parametrize("heldout", ["0", "40%"])
def test_a_text_of_few_sentences_has_no_empty_shard(
    heldout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 tokens would be six shards of 100, and of the two distinct sentences each is in one."""
    monkeypatch.setattr(module, "SHARD_TOKENS", 100)
    lines = ["a b c", "c d e"] * 100
    calls: list[tuple[Any, ...]] = []
    path = write(tmp_path / "a.txt", lines)
    prepare(path, tmp_path / "out", heldout=heldout, progress=lambda *call: calls.append(call), **PLAIN)
    corpus = assert_corpus(tmp_path / "out", distinct(lines))
    assert all(shard.sentences for shard in (*corpus.train, *corpus.heldout))
    merged = [(done, total) for stage, done, total, _ in calls if stage == "merging"]
    assert merged[-1][0] == merged[-1][1] == len(merged) > 2


# The held-out part


@pytest.mark.parametrize("deduplicate", [True, False])
@pytest.mark.parametrize(("heldout", "share"), [("30%", 0.3), (0.3, 0.3), ("0.3", 0.3), (".05", 0.05)])
def test_no_sentence_is_on_both_sides(heldout: str | float, share: float, deduplicate: bool, tmp_path: Path) -> None:
    lines = some_text(2000)
    prepare(write(tmp_path / "a.txt", lines), tmp_path / "out", heldout=heldout, deduplicate=deduplicate, **PLAIN)
    everything = [tuple(line.split()) for line in lines]
    corpus = assert_corpus(tmp_path / "out", list(set(everything)) if deduplicate else everything)
    train, held = (set(sentences_of(corpus, part)) for part in ("train", "heldout"))
    assert not train & held
    n = len(set(everything))
    assert abs(len(held) / n - share) < 5 * (share * (1 - share) / n) ** 0.5  # five standard deviations


def test_duplicates_do_not_change_what_is_held_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", some_text())
    prepare(path, tmp_path / "once", heldout="10%", **PLAIN)
    prepare(path, tmp_path / "all", heldout="10%", deduplicate=False, **PLAIN)
    once, every = (set(sentences_of(Corpus.open(tmp_path / name), "heldout")) for name in ("once", "all"))
    assert once == every


def test_a_tiny_share_is_a_share(tmp_path: Path) -> None:
    """As a number, too, which Python writes as 1e-07."""
    for name, heldout in (("text", "0.0000001"), ("number", 1e-7)):
        prepare(write(tmp_path / "a.txt", ["a", "b", "c"]), tmp_path / name, heldout=heldout, **PLAIN)
        assert len(sentences_of(Corpus.open(tmp_path / name), "heldout")) == 1


@pytest.mark.parametrize("heldout", ["0.0001%", "99.9999%"])
def test_a_tiny_text_has_one_sentence_on_each_side_at_least(heldout: str, tmp_path: Path) -> None:
    prepare(write(tmp_path / "a.txt", ["a", "b", "c", "a"]), tmp_path / "out", heldout=heldout, **PLAIN)
    corpus = assert_corpus(tmp_path / "out", [("a",), ("b",), ("c",)])
    sides = [len(sentences_of(corpus, part)) for part in ("train", "heldout")]
    assert sides == ([2, 1] if heldout == "0.0001%" else [1, 2])


@pytest.mark.parametrize("deduplicate", [True, False])
def test_a_text_of_its_own_is_held_out(
    deduplicate: bool, text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = [*some_text()[:7], "never seen", "never seen", "nor w1 this"]
    path = tmp_path / "held.txt.gz"
    path.write_bytes(gzip.compress("\n".join(other).encode()))
    with caplog.at_level(logging.WARNING, "elmo"):
        prepare(text, tmp_path / "out", heldout=path, deduplicate=deduplicate, block_bytes=SMALL, **PLAIN)
    if deduplicate:
        corpus = assert_corpus(tmp_path / "out", distinct(some_text()), distinct(other))
    else:
        everything = [tuple(line.split()) for line in some_text()]
        corpus = assert_corpus(tmp_path / "out", everything, [tuple(line.split()) for line in other])
    assert list(corpus.words)[-4:] == ["never", "nor", "seen", "this"]  # not in the training part: count 0
    assert "this" not in corpus.vocabulary
    assert f"{path}: 7 of its 10 sentences are in the training text too" in caplog.text


@pytest.mark.parametrize("deduplicate", [True, False])
def test_the_training_text_is_no_held_out_text(deduplicate: bool, text: Path, tmp_path: Path) -> None:
    for lines in (some_text(), some_text()[40:43]):
        held = write(tmp_path / "held.txt", lines)
        with pytest.raises(DataError, match=r"held\.txt: all of its .* sentences are in the training text too\. "):
            prepare(text, tmp_path / f"out{len(lines)}", heldout=held, deduplicate=deduplicate, **PLAIN)


# A vocabulary of one's own


def test_a_given_vocabulary_keeps_its_order(text: Path, tmp_path: Path) -> None:
    own = write(tmp_path / "own.txt", [*SPECIAL, "w2", "w1", "w4", "w3", "absent"])
    options = PLAIN | {"min_count": None, "deduplicate": False}
    prepare(text, tmp_path / "out", vocabulary=own, heldout=0, **options)
    corpus = Corpus.open(tmp_path / "out")
    everything = [tuple(line.split()) for line in some_text()]
    assert Counter(sentences_of(corpus, "train")) == Counter(everything)
    counts = Counter(word for sentence in everything for word in sentence)
    head = [*SPECIAL, "w2", "w1", "w4", "w3", "absent"]
    rest = sorted(set(counts) - set(head), key=lambda word: (-counts[word], word))
    assert list(corpus.words) == head + rest
    assert corpus.vocabulary.words == head
    assert (tmp_path / "out" / "vocabulary.txt").read_bytes() == own.read_bytes()
    assert corpus.manifest["counts"]["unknown"] == sum(counts[word] for word in rest)


def test_a_vocabulary_must_begin_with_the_special_words(text: Path, tmp_path: Path) -> None:
    own = write(tmp_path / "own.txt", ["the", *SPECIAL])
    message = r"own\.txt: begins with the, <S>, </S>; expected <S>, </S>, <UNK>, .* log-uniform sampler draws early"
    with nothing_new_in(tmp_path), pytest.raises(DataError, match=message):
        prepare(text, tmp_path / "out", vocabulary=own)
    with pytest.raises(DataError, match=r"own\.txt: <S>, </S>, <UNK> not among its 1 words"):
        prepare(text, tmp_path / "out", vocabulary=write(own, ["the"]))


def test_a_vocabulary_must_fall(text: Path, tmp_path: Path) -> None:
    own = write(tmp_path / "own.txt", [*SPECIAL, "absent", "gone", "w2", "w1"])
    counts = Counter(word for sentence in distinct(some_text()) for word in sentence)
    message = (
        rf"own\.txt: not sorted by descending count: the first half of its words occurs 0 times in the training text, "
        rf"the second half {counts['w1'] + counts['w2']:,} times. Sort it"
    )
    options = PLAIN | {"min_count": None, "heldout": 0}
    with pytest.raises(DataError, match=message):
        prepare(text, tmp_path / "out", vocabulary=own, **options)
    write(own, [*SPECIAL, "w1", "w2", "gone", "absent"])  # mended, it goes on from the parts that are there
    prepare(text, tmp_path / "out", vocabulary=own, **options)
    prepare(text, tmp_path / "fresh", vocabulary=own, **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sentences": "paragraphs"}, "sentences is 'paragraphs'; expected 'split' or 'lines'"),
        ({"vocab_size": 9, "min_count": 2}, "vocab_size and min_count both define the vocabulary. Give only one"),
        ({"vocabulary": "own.txt", "min_count": 2}, "vocabulary and min_count both define"),
        ({"vocab_size": 3}, "vocab_size is 3; expected more than the 3 special words"),
        ({"min_count": 0}, "min_count is 0; expected 1 or more"),
        ({"shards": 0}, "shards is 0; expected 1 or more"),
        ({"heldout": "100%"}, r"heldout is 100%; expected a share below 1, such as 0\.5%, or a text file"),
        ({"heldout": 1}, "heldout is 1; expected a share below 1"),
        ({"shuffle": False}, "shuffle is False; expected True, because removing duplicates and"),
        ({"tokenizer": "spacy"}, "tokenizer is 'spacy'; expected moses, whitespace, or PATH:FUNC"),
    ],
)
def test_mistaken_options(options: dict[str, Any], message: str, text: Path, tmp_path: Path) -> None:
    with nothing_new_in(tmp_path), pytest.raises(ConfigError, match=message):
        prepare(text, tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"", {}, r"a\.txt: no sentence in it; expected text"),
        (b"\n \r\n\t\n", {}, r"a\.txt: no sentence in it; expected text"),
        (b"ok\nbad \xff\n", {}, r"a\.txt: line 2 is not UTF-8 \(byte 5 is 0xff\)"),
        (
            b"one\ntwo\n" + b"x" * 200 + b"\n",
            {"longest_line": 99},
            r"line 3 has 200 bytes, more than 99; .*--longest-l",
        ),
        (b"ok\n", {"heldout": "none.txt"}, r"none\.txt: not found"),
    ],
)
def test_text_that_cannot_be_used_leaves_nothing(
    data: bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    with nothing_new_in(tmp_path), pytest.raises(DataError, match=message):
        prepare(tmp_path / "a.txt", tmp_path / "out", **(PLAIN | options))


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["a", "a"], {"heldout": "1%"}, r"only one distinct sentence, so none can be held out; .* or --heldout 0"),
        (["a", "b"], {"shards": 9, "heldout": 0}, "--shards 9: too many for this text, because one would be empty"),
        (["a", "b"], {"min_count": 2, "heldout": 0}, "no word occurs 2 times in the training text; .* lower --min"),
    ],
)
def test_too_little_text(lines: list[str], options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", lines)
    with pytest.raises(DataError, match=message):
        prepare(path, tmp_path / "out", **(PLAIN | options))
    assert not (tmp_path / "out").exists()
    # What it asks for helps: the run goes on with it.
    prepare(path, tmp_path / "out", **(PLAIN | {"heldout": 0, "min_count": 1}))
    assert_corpus(tmp_path / "out", distinct(lines), [])


def test_a_folder_that_exists_is_kept(text: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (
        nothing_new_in(tmp_path),
        pytest.raises(DataError, match=r"out: exists already; give another name, or remove it"),
    ):
        prepare(text, tmp_path / "out")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[text]", r"returned the token 'a b'; expected a string without white space"),
        ("['']", r"returned the token ''; expected a string without white space"),
        ("['a\\n']", r"returned the token 'a\\n'; expected a string without white space"),
        ("[1]", r"a\.txt: line 2: the tokenizer .*tok\.py:mine fails \(TypeError: sequence item 0: expected str"),
        ("['\\ud800']", r"a\.txt: line 2: the tokenizer .* fails \(UnicodeEncodeError"),
        ("text.no_such()", r"a\.txt: line 2: the tokenizer .* fails \(AttributeError: 'str' object has no"),
    ],
)
def test_a_tokenizer_of_one_s_own_is_watched(body: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tok.py").write_text(f"def mine(text):\n    return {body} if text else []\n")
    with pytest.raises(DataError, match=message):
        prepare(
            write(tmp_path / "a.txt", ["", "a b"]),
            tmp_path / "out",
            tokenizer=f"{tmp_path / 'tok.py'}:mine",
            sentences="lines",
        )


def test_a_tokenizer_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "tok.py").write_text("def upper(text):\n    return (word.upper() for word in text.split())\n")
    name = f"{tmp_path / 'tok.py'}:upper"
    prepare(write(tmp_path / "a.txt", ["a b", "c"]), tmp_path / "out", **(PLAIN | {"tokenizer": name}), heldout=0)
    corpus = assert_corpus(tmp_path / "out", [("A", "B"), ("C",)], [])
    assert corpus.manifest["tokenizer"] == name


@pytest.mark.parametrize("at", ["parts", "shards", "corpus"])
def test_a_full_disk_says_so_and_room_helps(
    at: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.parent.name == at and target.suffix != ".json":
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(DataError, match=rf"out\.part/{at}/.+: the disk is full; .* Free some space first"):
            prepare(text, tmp_path / "out", **PLAIN)
    assert not (tmp_path / "out").exists()
    prepare(text, tmp_path / "out", **PLAIN)
    assert_corpus(tmp_path / "out", distinct(some_text()))


# Going on


def run_until(k: int, text: Path, out: Path, after: bool) -> None:
    """Prepare until the k-th file is to be put in place, and die as by kill -9, before that or after."""
    replace, left = Path.replace, [k]

    def counting(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] == 0:
            if after:
                replace(self, target)
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    Path.replace = counting  # type: ignore[method-assign]
    prepare(text, out, shards=2, block_bytes=2000, heldout="10%", **PLAIN)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed_anywhere_goes_on_and_ends_in_the_same_files(
    after: bool, text: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    prepare(text, whole, shards=2, block_bytes=2000, heldout="10%", **PLAIN)
    killed = 0
    for k in range(1, 200):
        out = tmp_path / f"out{k}"
        process = multiprocessing.get_context("fork").Process(target=run_until, args=(k, text, out, after))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        assert not out.exists()
        killed += 1
        prepare(text, out, shards=2, block_bytes=2000, heldout="10%", **PLAIN)
        assert contents(out) == contents(whole)
        assert not out.with_name(out.name + ".part").exists()
    assert killed > 30


def interrupted(text: Path, out: Path, at: str = "merging", **options: Any) -> None:
    """A run that has read all blocks and stops while it merges, or at a later stage."""

    def stop(step: str, *_: object) -> None:
        if step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(text, out, progress=stop, **(PLAIN | {"block_bytes": SMALL} | options))
    assert not out.exists()
    assert len(list((out.with_name(out.name + ".part") / "parts").glob("*.json"))) > 5


def test_what_is_done_is_not_done_again(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(text, tmp_path / "out")

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "write_part", never)
    prepare(text, tmp_path / "out", block_bytes=SMALL, **PLAIN)
    monkeypatch.undo()
    prepare(text, tmp_path / "fresh", **PLAIN)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": "moses"}, "tokenizer is 'moses', but the interrupted run had 'whitespace'. Give the same"),
        ({"sentences": "split"}, "split is True, but the interrupted run had False"),
        ({"seed": 1}, "seed is 1, but the interrupted run had 0"),
        ({"deduplicate": False}, "deduplicate is False, but the interrupted run had True"),
        ({"field": "body"}, "field is 'body', but the interrupted run had 'text'"),
        ({"block_bytes": 99}, "block_bytes is 99, but the interrupted run had 600"),
    ],
)
def test_other_settings_do_not_go_on(change: dict[str, Any], message: str, text: Path, tmp_path: Path) -> None:
    interrupted(text, tmp_path / "out")
    with nothing_new_in(tmp_path), pytest.raises(ConfigError, match=rf"out\.part: {message}"):
        prepare(text, tmp_path / "out", **(PLAIN | {"block_bytes": SMALL} | change))


@pytest.mark.parametrize("change", [{"shards": 3}, {"heldout": "20%"}, {"min_count": 2}, {"longest_line": 1_000_000}])
def test_what_the_parts_do_not_depend_on_may_change(change: dict[str, Any], text: Path, tmp_path: Path) -> None:
    interrupted(text, tmp_path / "out")
    prepare(text, tmp_path / "out", **(PLAIN | {"block_bytes": SMALL} | change))
    prepare(text, tmp_path / "fresh", **(PLAIN | {"block_bytes": SMALL} | change))
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_text_that_has_changed_does_not_go_on(text: Path, tmp_path: Path) -> None:
    interrupted(text, tmp_path / "out")
    lines = some_text()
    write(text, [*lines[:-3], "changed", *lines[-2:]])
    message = (
        rf"text\.txt: line \d+ or some lines after it have changed since this run began. Remove {tmp_path}/out\.part"
    )
    with pytest.raises(DataError, match=message):
        prepare(text, tmp_path / "out", block_bytes=SMALL, **PLAIN)
    write(text, lines[:-40])
    with pytest.raises(DataError, match=r"text\.txt: line \d+ or some lines after it have changed"):
        prepare(text, tmp_path / "out", block_bytes=SMALL, **PLAIN)


def killed_while_merging(texts: list[Path], out: Path) -> None:
    """A run that stops after it has merged one shard of two."""
    stages: list[str] = []

    def stop(stage: str, *_: object) -> None:
        stages.append(stage)
        if stages.count("merging") == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(texts, out, progress=stop, shards=2, heldout=0, block_bytes=SMALL, **PLAIN)
    assert len(list((out.with_name(out.name + ".part") / "shards").glob("train-*.json"))) == 1


@pytest.mark.parametrize("began_with", [1, 3])
def test_a_file_more_or_less_is_merged_again(began_with: int, text: Path, tmp_path: Path) -> None:
    """Every block that is read again is unchanged, so only the number of blocks tells."""
    other, third = (write(tmp_path / f"{seed}.txt", some_text(seed=seed)) for seed in (1, 2))
    texts = [text, other, third]
    killed_while_merging(texts[:began_with], tmp_path / "out")
    prepare(texts[:2], tmp_path / "out", shards=2, heldout=0, block_bytes=SMALL, **PLAIN)
    prepare(texts[:2], tmp_path / "fresh", shards=2, heldout=0, block_bytes=SMALL, **PLAIN)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    assert_corpus(tmp_path / "out", distinct(some_text() + some_text(seed=1)), [])


def test_a_tokenizer_that_has_changed_does_not_go_on(text: Path, tmp_path: Path) -> None:
    (tmp_path / "tok.py").write_text("def mine(text):\n    return text.split()\n")
    options = {"tokenizer": f"{tmp_path / 'tok.py'}:mine"}
    interrupted(text, tmp_path / "out", **options)
    (tmp_path / "tok.py").write_text("def mine(text):\n    return text.split()[1:]\n")
    with pytest.raises(ConfigError, match=r"tokenizer_crc32 is \d+, but the interrupted run had \d+"):
        prepare(text, tmp_path / "out", **(PLAIN | {"block_bytes": SMALL} | options))


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_damaged_work_folder_is_one_line(content: bytes, text: Path, tmp_path: Path) -> None:
    interrupted(text, tmp_path / "out")
    (tmp_path / "out.part" / "settings.json").write_bytes(content)
    with pytest.raises(DataError, match=r"settings\.json: damaged\. Remove the folder .*/out\.part to start over"):
        prepare(text, tmp_path / "out", block_bytes=SMALL, **PLAIN)


@pytest.mark.parametrize(
    "name",
    ["keys.npy", "ends.npy", "ids.npy", "words.txt", "json", "shards/train-00000.json", "shards/train-00000.bin"],
)
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damaged_files_of_an_interrupted_run_are_one_line(name: str, damage: str, text: Path, tmp_path: Path) -> None:
    interrupted(text, tmp_path / "out", at="writing" if "/" in name else "merging")
    path = tmp_path / "out.part" / (name if "/" in name else f"parts/000003.{name}")
    if "/" not in name:  # what is merged does not need its parts
        shutil.rmtree(tmp_path / "out.part" / "shards")
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-1] + b"\xff" if name == "words.txt" else content[: len(content) // 2])
    else:
        path.unlink()
    before = sorted(tmp_path.iterdir())
    options = PLAIN | {"block_bytes": SMALL}
    if damage == "gone" and name.endswith("json"):  # it says that the others are complete
        prepare(text, tmp_path / "out", **options)
        return
    message = r"out\.part/.+: missing or damaged\. Remove the folder .*/out\.part to start over"
    with pytest.raises(DataError, match=message):
        prepare(text, tmp_path / "out", **options)
    assert sorted(tmp_path.iterdir()) == before


def test_two_runs_do_not_share_a_folder(text: Path, tmp_path: Path) -> None:
    def again(*_: object) -> None:
        with pytest.raises(DataError, match=r"out: another process is writing it\. Wait until it ends, or"):
            prepare(text, tmp_path / "out", **PLAIN)

    prepare(text, tmp_path / "out", progress=again, **PLAIN)
    assert_corpus(tmp_path / "out", distinct(some_text()))


# Several processes


def test_two_processes_write_the_same_files_as_one(text: Path, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None, int]] = []
    options = PLAIN | {"tokenizer": "moses", "shards": 3, "block_bytes": SMALL, "heldout": "10%"}
    prepare(text, tmp_path / "one", **options)
    prepare(text, tmp_path / "two", jobs=2, progress=lambda *call: calls.append(call), **options)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    for step, total in (("reading", text.stat().st_size), ("merging", 4), ("writing", 4)):
        done = [call[1] for call in calls if call[0] == step]
        assert done == sorted(done)
        assert done[-1] == total == next(call[2] for call in calls if call[0] == step)
    manifest = json.loads((tmp_path / "two" / "corpus.json").read_text())
    assert calls[-1][3] == manifest["counts"]["tokens"]


def test_a_mistake_in_another_process_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\n" * 500 + b"\xff\n")
    with pytest.raises(DataError, match=r"a\.txt: line 501 is not UTF-8"):
        prepare(tmp_path / "a.txt", tmp_path / "out", jobs=2, **PLAIN)


@pytest.mark.parametrize("gone", [[], ["settings.json"], ["settings.json", "parts"]])
def test_a_run_killed_after_its_corpus_was_moved(gone: list[str], text: Path, tmp_path: Path) -> None:
    """The next run refuses the corpus that is there, and removes the rest, whatever the killed one had removed."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    out, work = tmp_path / "out", tmp_path / "out.part"
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("elmo.pretrain.prepare_settings._remove", killed)
        prepare(text, out, **PLAIN)
    for name in gone:
        (shutil.rmtree if (work / name).is_dir() else Path.unlink)(work / name)
    before = contents(out)
    assert work.is_dir()
    with pytest.raises(DataError, match="out: exists already"):
        prepare(text, out, **PLAIN)
    assert {path for path in tmp_path.iterdir() if path.name.startswith((".", "out"))} == {out}
    assert contents(out) == before


def test_the_work_folder_of_another_corpus_stays(text: Path, tmp_path: Path) -> None:
    interrupted(text, tmp_path / "out")
    (tmp_path / "out").mkdir()
    with nothing_new_in(tmp_path), pytest.raises(DataError, match="out: exists already"):
        prepare(text, tmp_path / "out", **PLAIN)
    assert (tmp_path / "out.part" / "settings.json").exists()


def test_a_folder_of_the_user_is_no_work_folder(text: Path, tmp_path: Path) -> None:
    """It would have been removed with all that is in it."""
    mine = tmp_path / "out.part" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with nothing_new_in(tmp_path), pytest.raises(DataError) as refused:
        prepare(text, tmp_path / "out", **PLAIN)
    assert str(refused.value) == (
        f"{mine.parent}: contains 'notes.txt', which `elmo prepare` did not write there; it would remove the folder at "
        "its end. Move it away, or choose another output"
    )
    assert mine.read_text() == "mine"


def test_a_work_folder_without_its_settings_is_begun_again(tmp_path: Path) -> None:
    """Nobody knows how its parts were made: here with another tokenizer, which splits off the full stops."""
    text = write(tmp_path / "text.txt", [f"{line}." for line in some_text()])
    interrupted(text, tmp_path / "out", tokenizer="moses")
    (tmp_path / "out.part" / "settings.json").unlink()
    prepare(text, tmp_path / "out", block_bytes=SMALL, **PLAIN)
    prepare(text, tmp_path / "fresh", **PLAIN)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_the_current_folder_is_no_output(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with nothing_new_in(tmp_path), pytest.raises(DataError, match=r"^\.: exists already; give another name"):
        prepare(text, ".", **PLAIN)
