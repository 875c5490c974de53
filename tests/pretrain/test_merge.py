"""Parts merged to shards, compared with one sorted list of all sentences."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from elmo.pretrain import merge as module
from elmo.pretrain.merge import KeyRange, Merged, merge, number_words, write_shard
from elmo.pretrain.sorted_parts import KEYS, Block, Part, SentenceReader, write_part
from elmo.text.reader import Piece
from elmo.text.vocabulary import SPECIAL

TEXTS = [["a b", "c", "a b", "d e f"], ["c", "<S> x </S>", "a b"], ["<UNK> a"]]  # by part
READER = SentenceReader("whitespace", split=False, deduplicate=True, shuffle=True, heldout=0, seed=0, longest_line=99)


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Part, ...]:
    found = tuple(Part(tmp_path / "parts", number) for number in range(len(TEXTS)))
    for part, lines in zip(found, TEXTS, strict=True):
        data = "".join(f"{line}\n" for line in lines).encode()
        write_part(Block(part.number, (Piece("text", 1, data),), 0), part, READER)
    return found


def by_key(lines: list[str]) -> list[str]:
    """Sentences in the order of their keys, equal ones in that of the text; boundaries in the text are unknown."""
    keys = READER.hashes(line.encode() for line in lines).tolist()
    ordered = [line for _, line in sorted(zip(keys, lines, strict=True), key=lambda pair: pair[0])]
    return [" ".join("<UNK>" if word in ("<S>", "</S>") else word for word in line.split()) for line in ordered]


def everything(parts: tuple[Part, ...], low: int = 0, high: int = KEYS) -> KeyRange:
    return KeyRange("train", parts, low, high, 100)


def text_of(rows: list[int], words: list[str]) -> list[str]:
    text = " ".join(words[row] for row in rows)
    return [sentence.removesuffix(" </S>") for sentence in text.removeprefix("<S> ").split(" <S> ")]


def test_words_are_numbered_in_the_order_in_which_they_are_found(parts: tuple[Part, ...]) -> None:
    words = number_words(parts, SPECIAL)
    assert words == ["<S>", "</S>", "<UNK>", "a", "b", "c", "d", "e", "f", "x"]
    for part in parts:
        own = ["<UNK>" if word in ("<S>", "</S>") else word for word in part.words()]
        assert [words[number] for number in part.array("numbers")] == own


@pytest.mark.parametrize("deduplicate", [True, False])
@pytest.mark.parametrize("at_once", [1, 30, 4_000_000])
def test_a_shard_has_all_sentences_in_the_order_of_their_keys(
    deduplicate: bool, at_once: int, parts: tuple[Part, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RANGE_TOKENS", at_once)
    words = number_words(parts, SPECIAL)
    expected = by_key([line for lines in TEXTS for line in lines])
    duplicates = 0
    if deduplicate:
        duplicates, expected = len(expected), list(dict.fromkeys(expected))
        duplicates -= len(expected)
    merged, counts = merge(everything(parts), tmp_path / "shards", deduplicate, len(words))
    numbers = np.fromfile(tmp_path / "shards" / "train.bin", dtype=np.uint32)
    assert text_of(numbers.tolist(), words) == expected
    tokens = [word for sentence in expected for word in sentence.split()]
    assert merged == Merged("train", len(expected), len(tokens), duplicates)
    every = tokens + ["<S>", "</S>"] * len(expected)
    assert counts.tolist() == [every.count(word) for word in words]


def test_ranges_divide_the_keys(parts: tuple[Part, ...]) -> None:
    for n in (1, 3, 7):
        pieces = everything(parts, 10, KEYS).pieces(n)
        assert [piece.name for piece in pieces] == [f"train-{k:05d}" for k in range(n)]
        assert [piece.low for piece in pieces] == [10, *(piece.high for piece in pieces[:-1])]
        assert pieces[-1].high == KEYS
        sizes = [piece.high - piece.low for piece in pieces]
        assert max(sizes) - min(sizes) <= 1
    assert len(everything(parts, 10, 12).pieces(5)) == 2  # no empty range


def test_the_shards_of_all_ranges_are_the_whole(parts: tuple[Part, ...], tmp_path: Path) -> None:
    words = number_words(parts, SPECIAL)
    found = []
    for piece in everything(parts).pieces(3):
        merge(piece, tmp_path, True, len(words))
        found += np.fromfile(tmp_path / f"{piece.name}.bin", dtype=np.uint32).tolist()
    merge(everything(parts), tmp_path, True, len(words))
    assert found == np.fromfile(tmp_path / "train.bin", dtype=np.uint32).tolist()


def test_a_merged_shard_is_not_merged_again(parts: tuple[Part, ...], tmp_path: Path) -> None:
    words = number_words(parts, SPECIAL)
    first = merge(everything(parts), tmp_path, True, len(words))
    for part in parts:
        part.path("keys.npy").unlink()
    again = merge(everything(parts), tmp_path, True, len(words))
    assert again[0] == first[0]
    assert again[1].tolist() == first[1].tolist()


def test_equal_keys_of_different_sentences_are_both_kept() -> None:
    """A key is only a hash: here every sentence has the same one."""
    ids = np.array([1, 2, 1, 3, 1, 2, 9], dtype=np.uint32)
    lengths = np.array([2, 2, 2, 1])  # 1 2, 1 3, 1 2, 9
    repeats = module._repeats(np.full(4, 5, dtype=np.uint64), ids, lengths)
    assert repeats.tolist() == [False, False, True, False]


@pytest.mark.parametrize("chunk", [3, 1 << 20])
def test_a_written_shard_is_an_array_of_final_rows(
    chunk: int, parts: tuple[Part, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    words = number_words(parts, SPECIAL)
    merged, _ = merge(everything(parts), tmp_path, True, len(words))
    final = np.arange(len(words), dtype=np.uint32)[::-1].copy()  # word number ─▶ row
    np.save(tmp_path / "rows.npy", final)
    shard = write_shard(merged, tmp_path, tmp_path / "corpus", tmp_path / "rows.npy")
    rows = np.load(tmp_path / "corpus" / "train.npy")
    numbers = np.fromfile(tmp_path / "train.bin", dtype=np.uint32)
    assert rows.dtype == np.dtype("<u4")
    assert rows.tolist() == [len(words) - 1 - number for number in numbers.tolist()]
    assert (shard.file, shard.tokens, shard.sentences) == ("train.npy", merged.tokens, merged.sentences)
    assert shard.crc32 == zlib.crc32(rows.tobytes())
