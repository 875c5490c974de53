"""Blocks of text as sorted parts, compared with plain Python: split, hash, sort."""

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo.errors import DataError
from elmo.pretrain.sorted_parts import BLOCK_KEYS, KEYS, Block, Part, SentenceReader, blocks, rearranged, write_part
from elmo.text.reader import Piece

LINES = ["the cat sat", "a dog", "", "the cat sat", "who knows who", "a dog", "x"]
SENTENCES = [line for line in LINES if line]


def reader(**changes: Any) -> SentenceReader:
    settings = {"tokenizer": "whitespace", "split": False, "deduplicate": True, "shuffle": True, "heldout": 0}
    return SentenceReader(**{**settings, "seed": 3, "longest_line": 1000, **changes})


def piece(lines: list[str], first: int = 1) -> Piece:
    return Piece("text.txt", first, "".join(f"{line}\n" for line in lines).encode())


def block(number: int = 0) -> Block:
    return Block(number, (piece(LINES[:3]), piece(LINES[3:], 4)), 99)


def hashed(text: str, seed: int = 3) -> int:
    digest = hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def read(part: Part) -> list[tuple[int, str]]:
    """The key and the text of each sentence of a part, in its order."""
    words, ends = part.words(), part.array("ends").tolist()
    tokens = [words[row] for row in part.array("ids").tolist()]
    texts = [" ".join(tokens[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    return list(zip(part.array("keys").tolist(), texts, strict=True))


@pytest.mark.parametrize(("size", "expected"), [(1, [1, 1, 1, 1]), (10, [2, 1, 1]), (14, [2, 2]), (1000, [4])])
def test_small_pieces_are_joined_to_blocks(size: int, expected: list[int]) -> None:
    pieces = [Piece("a", 1, b"1234\n", read=5), Piece("b", 1, b"678\n", read=9), Piece("b", 2, b"abcdef\n", read=16)]
    pieces.append(Piece("c", 1, b"hijklm\n", read=23))
    found = list(blocks(pieces, size))
    assert [len(one.pieces) for one in found] == expected
    assert [one.number for one in found] == list(range(len(expected)))
    assert [piece for one in found for piece in one.pieces] == pieces
    assert [one.read for one in found] == [one.pieces[-1].read for one in found]
    assert found[0].crc32 == zlib.crc32(b"".join(piece.data for piece in found[0].pieces))


def test_a_part_is_the_sentences_of_its_block_sorted_by_their_hash(tmp_path: Path) -> None:
    part = Part(tmp_path, 7)
    assert part.summary() is None
    summary = write_part(block(), part, reader())
    assert read(part) == sorted((hashed(sentence), sentence) for sentence in SENTENCES)
    tokens = sum(len(sentence.split()) for sentence in SENTENCES)
    assert summary == part.summary() == {"crc32": block().crc32, "sentences": len(SENTENCES), "tokens": tokens}
    assert part.words() == list(dict.fromkeys(" ".join(SENTENCES).split()))
    names = {f"000007.{what}" for what in ("keys.npy", "ends.npy", "ids.npy", "words.txt", "json")}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_without_shuffling_a_key_is_the_place_in_the_text(tmp_path: Path) -> None:
    write_part(block(2), Part(tmp_path, 2), reader(shuffle=False, deduplicate=False))
    expected = [(2 * BLOCK_KEYS + k, sentence) for k, sentence in enumerate(SENTENCES)]
    assert read(Part(tmp_path, 2)) == expected


@pytest.mark.parametrize("heldout", [0, KEYS // 2])
def test_duplicates_are_scattered_but_held_out_together(heldout: int, tmp_path: Path) -> None:
    write_part(block(), Part(tmp_path, 0), reader(deduplicate=False, heldout=heldout))
    found = read(Part(tmp_path, 0))
    assert sorted(text for _, text in found) == sorted(SENTENCES)
    assert [key for key, _ in found] == sorted({key for key, _ in found})  # every copy has a key of its own
    if heldout:
        assert all((key < heldout) == (hashed(text) < heldout) for key, text in found)
    contents = Part(tmp_path, 0).array("contents").tolist()
    assert contents == [hashed(sentence) for sentence in SENTENCES]


def test_the_seed_changes_every_key(tmp_path: Path) -> None:
    for seed in (3, 4):
        write_part(block(), Part(tmp_path, seed), reader(seed=seed))
        assert read(Part(tmp_path, seed)) == sorted((hashed(sentence, seed), sentence) for sentence in SENTENCES)
    assert not {key for key, _ in read(Part(tmp_path, 3))} & {key for key, _ in read(Part(tmp_path, 4))}


def test_sentences_are_rearranged() -> None:
    ids = np.array([1, 2, 3, 4, 5, 6], dtype=np.uint32)
    lengths = np.array([2, 0, 1, 3])
    assert rearranged(ids, lengths, np.array([3, 0, 1, 2])).tolist() == [4, 5, 6, 1, 2, 3]
    assert rearranged(ids, lengths, np.array([2])).tolist() == [3]


def test_a_tokenizer_that_fails_is_reported_with_the_line(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def f(line):\n    return line.split() if 'who' not in line else 1 / 0\n")
    with pytest.raises(DataError, match=r"^text\.txt: line 5: the tokenizer .*own\.py:f fails \(ZeroDivisionError"):
        write_part(block(), Part(tmp_path / "parts", 0), reader(tokenizer=f"{own}:f"))
    own.write_text("def f(line):\n    return [line]\n")
    with pytest.raises(DataError, match=r"returned the token 'the cat sat'; expected a string without white space$"):
        write_part(block(), Part(tmp_path / "parts", 0), reader(tokenizer=f"{own}:f"))
    assert not (tmp_path / "parts").exists()


def test_a_part_without_its_summary_is_not_complete(tmp_path: Path) -> None:
    part = Part(tmp_path, 0)
    write_part(block(), part, reader())
    content = part.path("json").read_text()
    part.path("json").unlink()
    assert part.summary() is None
    part.path("json").write_text(content)
    assert part.summary() == json.loads(content)
