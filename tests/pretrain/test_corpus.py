"""A corpus folder: its words, its rows and its targets; and a folder that was changed is refused with what changed."""

import errno
import json
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import numpy_reference
from corpora import write_corpus
from elmo.errors import DataError
from elmo.pretrain.corpus import Corpus
from elmo.text.vocabulary import Vocabulary

TRAIN = [
    [["the", "cat", "sat"], ["naïve", "日本語", "the"], []],
    [["the", "<UNK>", "y" * 60], ["a", "cat", "🙂"]],
]
HELDOUT = [["unseen", "the"], ["cat"]]
# by falling count, equal ones by code points, then what is held out only
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "a", "naïve", "sat", "y" * 60, "日本語", "🙂", "unseen"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", TRAIN, HELDOUT, 6)


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "corpus.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_words_shards_and_vocabulary_are_what_was_written(folder: Path) -> None:
    corpus = Corpus.open(folder)
    assert list(corpus.words) == WORDS
    assert len(corpus.words) == 12
    assert corpus.vocabulary.words == WORDS[:6]
    for shards, parts in ((corpus.train, TRAIN), (corpus.heldout, [HELDOUT])):
        assert [shard.sentences for shard in shards] == [len(sentences) for sentences in parts]
        assert [shard.tokens for shard in shards] == [sum(map(len, sentences)) for sentences in parts]
        for shard, sentences in zip(shards, parts, strict=True):
            text = [word for sentence in sentences for word in ("<S>", *sentence, "</S>")]
            rows = corpus.rows(shard)
            assert [WORDS[row] for row in rows] == text
            assert len(shard) == len(text) == len(rows)
            assert rows.dtype == np.uint32
            assert isinstance(rows, np.memmap)


def test_words_are_found_by_any_index(folder: Path) -> None:
    words = Corpus.open(folder).words
    assert [words[row] for row in range(len(words))] == WORDS
    assert words[np.uint32(9)] == "日本語"
    assert words[-1] == "unseen"
    with pytest.raises(IndexError):
        words[12]


@pytest.mark.parametrize("max_characters", [3, 10, 50])
def test_characters_are_those_of_the_spelling_or_a_boundary_s_marks(folder: Path, max_characters: int) -> None:
    words = Corpus.open(folder).words
    rows = np.array([9, 0, 3, 1, 0, 2, 8, 10, 11], dtype=np.uint32)
    ids = words.characters(rows, max_characters)
    assert ids.dtype == np.int16
    assert ids.tolist() == [
        [i + 1 for i in numpy_reference.character_ids(WORDS[row], max_characters)] for row in rows.tolist()
    ]


def test_boundaries_by_hand(folder: Path) -> None:
    ids = Corpus.open(folder).words.characters(np.array([0, 1, 2]), 7)
    assert ids.tolist() == [
        [259, 257, 260, 261, 261, 261, 261],
        [259, 258, 260, 261, 261, 261, 261],
        [259, *(byte + 1 for byte in b"<UNK>"), 260],
    ]
    assert Corpus.open(folder).words.characters(np.empty(0, dtype=np.int64), 7).shape == (0, 7)


ANY_WORD = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=20)


@given(st.lists(st.lists(ANY_WORD, max_size=5), min_size=1, max_size=5), st.integers(3, 30))
@settings(deadline=None, max_examples=40)
def test_any_words_are_read_again(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[str]], max_characters: int
) -> None:
    corpus = Corpus.open(write_corpus(tmp_path_factory.mktemp("any") / "corpus", [sentences], [], 3))
    counts = Counter(word for sentence in sentences for word in sentence)
    assert set(corpus.words) == {"<S>", "</S>", "<UNK>", *counts}
    assert [word for row in corpus.rows(corpus.train[0]) for word in [corpus.words[row]]] == [
        word for sentence in sentences for word in ("<S>", *sentence, "</S>")
    ]
    rows = np.arange(len(corpus.words))
    expected = [[i + 1 for i in numpy_reference.character_ids(word, max_characters)] for word in corpus.words]
    assert corpus.words.characters(rows, max_characters).tolist() == expected


# Targets


def test_the_targets_of_its_own_vocabulary_are_its_rows(folder: Path) -> None:
    corpus = Corpus.open(folder)
    for vocabulary in (corpus.vocabulary, Vocabulary(WORDS[:6])):
        targets = corpus.targets(vocabulary)
        assert targets.tolist() == [0, 1, 2, 3, 4, 5, 2, 2, 2, 2, 2, 2]
        assert targets.dtype == np.int32


@pytest.mark.parametrize(
    "words",
    [
        ["🙂", "<UNK>", "unheard", "</S>", "<S>", "cat", "unseen"],  # <UNK> is no longer row 2
        WORDS[:5],  # a head of its own, but shorter
        WORDS[:8],
        ["<S>", "</S>", "<UNK>", "cat", "the", "a"],  # its own words, another order
        ["<S>", "</S>", "<UNK>"],
        [*WORDS, "unheard"],
    ],
)
def test_the_targets_of_another_vocabulary_are_its_lines(folder: Path, words: list[str]) -> None:
    targets = Corpus.open(folder).targets(Vocabulary(words))
    assert targets.tolist() == [words.index(word if word in words else "<UNK>") for word in WORDS]
    assert targets.dtype == np.int32


def test_a_vocabulary_that_holds_every_word_has_no_unknown(tmp_path: Path) -> None:
    corpus = Corpus.open(write_corpus(tmp_path / "corpus", TRAIN, HELDOUT, len(WORDS)))
    assert corpus.targets(corpus.vocabulary).tolist() == list(range(12))


# What tells a corpus from another


def test_a_digest_is_that_of_the_content(tmp_path: Path) -> None:
    def digest(name: str, *arguments: Any) -> str:
        return Corpus.open(write_corpus(tmp_path / name, *arguments)).digest

    first = digest("a", TRAIN, HELDOUT, 6)
    assert digest("b", TRAIN, HELDOUT, 6) == first
    others = [
        digest("c", TRAIN, HELDOUT, 7),
        digest("d", TRAIN[::-1], HELDOUT, 6),
        digest("e", TRAIN, HELDOUT[::-1], 6),
        digest("f", TRAIN, [], 6),
    ]
    assert len({first, *others}) == 5


# Refusals


def refused(what: Callable[[], Any]) -> str:
    with pytest.raises(DataError) as error:
        what()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_folder_without_a_manifest_is_no_corpus(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        message = refused(lambda place=place: Corpus.open(place))
        assert message == f"{place}: no corpus.json in it; expected a folder that `elmo prepare` wrote"


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("text")
    assert refused(lambda: Corpus.open(path)) == f"{path / 'corpus.json'}: cannot be read (Not a directory)"


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "3", "{}", "[" * 100_000),
        *('{"format": 1, "train": []}', '{"train": [{"file": "x"}], "heldout": []}'),
    ],
)
def test_a_manifest_that_is_none_is_refused(folder: Path, content: str) -> None:
    (folder / "corpus.json").write_text(content)
    message = refused(lambda: Corpus.open(folder))
    assert message.startswith(f"{folder / 'corpus.json'}: not the manifest of a corpus (")
    assert message.endswith("); prepare the text again")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"words": "12"}, "'12' is no number of words, tokens or sentences, nor a checksum"),
        ({"words": -1}, "-1 is no number of words"),
        ({"words": 1 << 48}, "281474976710656 is no number of words"),
        ({"train": [{"file": "a.npy", "tokens": 1.5, "sentences": 1, "crc32": 0}]}, "1.5 is no number of words"),
        ({"train": [{"file": "a.npy", "tokens": 1, "sentences": [], "crc32": 0}]}, "[] is no number of words"),
        ({"heldout": [{"file": "../a.npy", "tokens": 1, "sentences": 1, "crc32": 0}]}, "'../a.npy' is no file of a"),
        ({"heldout": [{"file": 3, "tokens": 1, "sentences": 1, "crc32": 0}]}, "3 is no file of a corpus"),
        ({"train": [{"file": "x" * 300 + ".npy", "tokens": 1, "sentences": 1, "crc32": 0}]}, "is no file of a corpus"),
    ],
)
def test_a_manifest_of_impossible_numbers_is_refused(folder: Path, change: dict[str, Any], found: str) -> None:
    edit(folder, **change)
    message = refused(lambda: Corpus.open(folder))
    assert message.startswith(f"{folder / 'corpus.json'}: not the manifest of a corpus (")
    assert found in message


def test_a_manifest_without_its_number_of_words_is_refused(folder: Path) -> None:
    path = folder / "corpus.json"
    manifest = json.loads(path.read_text())
    del manifest["words"]
    path.write_text(json.dumps(manifest))
    assert refused(lambda: Corpus.open(folder)) == (
        f"{path}: not the manifest of a corpus ('words'); prepare the text again"
    )


def test_a_manifest_of_other_bytes_is_refused(folder: Path) -> None:
    (folder / "corpus.json").write_bytes(b'{"format": "\xff"}')
    assert "not the manifest of a corpus" in refused(lambda: Corpus.open(folder))


@pytest.mark.parametrize("number", [0, 2, "1", None])
def test_another_format_is_refused_with_its_number(folder: Path, number: Any) -> None:
    edit(folder, format=number)
    message = refused(lambda: Corpus.open(folder))
    assert message == f"{folder / 'corpus.json'}: format {number!r}; expected 1. Prepare the text again"


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("words.txt", lambda corpus: corpus.words),
        ("vocabulary.txt", lambda corpus: corpus.vocabulary),
        ("train-00001.npy", lambda corpus: corpus.rows(corpus.train[1])),
        ("heldout-00000.npy", lambda corpus: corpus.rows(corpus.heldout[0])),
    ],
)
def test_a_missing_file_is_named(folder: Path, name: str, use: Callable[[Corpus], Any]) -> None:
    (folder / name).unlink()
    corpus = Corpus.open(folder)
    message = refused(lambda: use(corpus))
    assert message == f"{folder / name}: not found, though it is part of the corpus. Prepare the text again"


@pytest.mark.parametrize("name", ["words.txt", "vocabulary.txt"])
def test_a_file_that_may_not_be_read_is_named(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(folder)
    corpus.words  # noqa: B018 (read before the vocabulary)
    if name == "words.txt":
        del corpus.__dict__["words"]

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(np, "memmap", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    message = refused(lambda: corpus.words if name == "words.txt" else corpus.vocabulary)
    assert message == f"{folder / name}: cannot be read (Permission denied)"


def other_rows(rows: np.ndarray) -> np.ndarray:
    changed = rows.copy()
    changed[2] += 1
    return changed


@pytest.mark.parametrize(
    "change",
    [
        other_rows,
        lambda rows: rows[:-1],
        lambda rows: np.append(rows, rows[:1]),
        lambda rows: rows[::-1].copy(),
        lambda rows: rows.astype(np.int32),  # the same bytes: only the type tells
        lambda rows: rows.astype(np.uint16),
        lambda rows: rows.astype(np.int64),
        lambda rows: rows.astype(">u4"),
        lambda rows: rows.reshape(-1, 1),
        lambda rows: rows[0],
    ],
    ids=["value", "shorter", "longer", "order", "int32", "uint16", "int64", "endian", "shape", "scalar"],
)
def test_a_changed_shard_is_refused(folder: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    path = folder / "train-00000.npy"
    np.save(path, change(np.load(path)))
    corpus = Corpus.open(folder)
    message = refused(lambda: corpus.rows(corpus.train[0]))
    assert message == f"{path}: has changed since the corpus was prepared; prepare the text again"
    corpus.rows(corpus.train[1])


HEADER = b"\x93NUMPY\x01\x00\x0a\x00"  # of ten bytes


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"not an array", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{"),
        *(HEADER + b"{'descr': ", HEADER + b"  {}\n {   ", HEADER + b'"""       '),
    ],
)
def test_a_damaged_shard_is_refused(folder: Path, content: bytes) -> None:
    path = folder / "train-00000.npy"
    path.write_bytes(content)
    corpus = Corpus.open(folder)
    message = refused(lambda: corpus.rows(corpus.train[0]))
    assert message.startswith(f"{path}: damaged (")
    assert message.endswith("); prepare the text again")


def test_a_shard_cut_by_a_full_disk_is_refused(folder: Path) -> None:
    path = folder / "train-00000.npy"
    path.write_bytes(path.read_bytes()[:-3])
    corpus = Corpus.open(folder)
    assert refused(lambda: corpus.rows(corpus.train[0])).startswith(f"{path}: damaged (")


def test_pickled_objects_are_never_read(folder: Path) -> None:
    path = folder / "train-00000.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    corpus = Corpus.open(folder)
    assert refused(lambda: corpus.rows(corpus.train[0])).startswith(f"{path}: damaged (")


@pytest.mark.parametrize(("text", "found"), [("more\n", 13), ("a\nb\n", 14)])
def test_words_that_were_added_are_noticed(folder: Path, text: str, found: int) -> None:
    with (folder / "words.txt").open("a") as file:
        file.write(text)
    assert refused(lambda: Corpus.open(folder).words) == (
        f"{folder / 'words.txt'}: {found} words; expected 12, the number in corpus.json. Prepare the text again"
    )


def test_words_that_lost_a_line_are_noticed(folder: Path) -> None:
    path = folder / "words.txt"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert "11 words; expected 12" in refused(lambda: Corpus.open(folder).words)


def test_an_empty_word_file_is_noticed(folder: Path) -> None:
    (folder / "words.txt").write_bytes(b"")
    assert "0 words; expected 12" in refused(lambda: Corpus.open(folder).words)


def test_a_vocabulary_that_is_not_the_head_of_the_words_is_noticed(folder: Path) -> None:
    """Targets take its lines for the first rows of words.txt."""
    Vocabulary(["<S>", "</S>", "<UNK>", "cat", "the", "a"]).write(folder / "vocabulary.txt")
    corpus = Corpus.open(folder)
    assert "vocabulary.txt" in refused(lambda: corpus.targets(corpus.vocabulary))


def test_the_checksum_is_that_of_the_bytes(folder: Path) -> None:
    corpus = Corpus.open(folder)
    for shard in corpus.train:
        assert shard.crc32 == zlib.crc32(np.load(folder / shard.file).tobytes())
