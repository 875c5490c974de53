"""Vocabulary files: their order, their ids, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.text import vocabulary
from elmo.text.vocabulary import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "the", ",", "naïve", "日本"]


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8"))
    return path


def test_words_keep_the_file_s_order_and_ids_begin_at_one(tmp_path: Path) -> None:
    vocabulary = Vocabulary.read(write(tmp_path / "words.txt", "\n".join(WORDS) + "\n"))
    assert vocabulary.words == WORDS
    assert len(vocabulary) == 7
    ids = vocabulary.ids(["日本", "the", "<S>", "</S>", "<UNK>", "the"])
    assert ids.tolist() == [7, 4, 1, 2, 3, 4]
    assert ids.dtype == np.int64


def test_an_unknown_word_has_the_id_of_unk_wherever_that_stands() -> None:
    vocabulary = Vocabulary(["the", "</S>", "<UNK>", "<S>"])
    assert vocabulary.ids(["The", "", "the", "<unk>"]).tolist() == [3, 3, 1, 3]
    assert "the" in vocabulary
    assert "The" not in vocabulary
    assert vocabulary.ids([]).shape == (0,)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_are_no_part_of_the_words(tmp_path: Path, newline: str, last: bool) -> None:
    text = newline.join(WORDS) + (newline if last else "")
    assert Vocabulary.read(write(tmp_path / "words.txt", text)).words == WORDS


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>", "a\u2028b", "c\x85d", "e\x0bf"]  # str.splitlines would cut these
    assert Vocabulary.read(write(tmp_path / "words.txt", "\n".join(words))).words == words


@given(st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1), unique=True))
@settings(deadline=None, max_examples=50)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    path = tmp_path_factory.mktemp("vocabulary") / "words.txt"
    words = ["<S>", "</S>", "<UNK>", *(word for word in words if word not in ("<S>", "</S>", "<UNK>"))]
    Vocabulary(words).write(path)
    again = Vocabulary.read(path)
    assert again.words == words
    assert again.ids(words).tolist() == list(range(1, len(words) + 1))
    assert path.read_bytes().decode("utf-8") == "\n".join(words) + "\n"


@pytest.mark.parametrize("missing", ["<S>", "</S>", "<UNK>"])
def test_a_missing_special_word_is_named(tmp_path: Path, missing: str) -> None:
    path = write(tmp_path / "words.txt", "\n".join(word for word in WORDS if word != missing))
    with pytest.raises(DataError, match=rf"words\.txt: {missing} not among its 6 words; .* <S>, </S>, <UNK>$"):
        Vocabulary.read(path)


def test_an_empty_file_misses_all_three(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"words\.txt: <S>, </S>, <UNK> not among its 0 words"):
        Vocabulary.read(write(tmp_path / "words.txt", ""))


def test_a_word_that_stands_twice_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "words.txt", "\n".join([*WORDS, "a", "b", "a", "c"]))
    with pytest.raises(DataError, match=r"words\.txt: 'a' occurs more than once; expected one line per word"):
        Vocabulary.read(path)


def test_a_file_in_another_encoding_is_refused_with_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes("<S>\n</S>\n<UNK>\ncafé\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"words\.txt: line 4 is not UTF-8 \(byte 4 is 0xe9\); convert the file first"):
        Vocabulary.read(path)


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_words(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbf<S>\r\n</S>\r\n<UNK>\r\nthe\r\n")
    assert Vocabulary.read(path).words == ["<S>", "</S>", "<UNK>", "the"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"words\.txt: cannot be read \(No such file or directory\)"):
        Vocabulary.read(tmp_path / "words.txt")


def test_a_vocabulary_that_is_no_file_says_so() -> None:
    with pytest.raises(DataError, match=r"^vocabulary: <UNK> not among"):
        Vocabulary(["<S>", "</S>"])


@pytest.mark.parametrize(("limit", "value"), [("MAX_WORDS", 4), ("MAX_CHARACTERS", 16)])
def test_a_file_that_is_no_vocabulary_but_endless(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_text("<S>\n</S>\n<UNK>\nthe\n")  # 15 characters
    monkeypatch.setattr(vocabulary, limit, value)
    assert len(Vocabulary.read(path)) == 4
    path.write_text("<S>\n</S>\n<UNK>\nthe\nof\n")
    with pytest.raises(DataError, match=r"vocabulary.txt: has more than .*; expected a vocabulary, one word per line"):
        Vocabulary.read(path)
