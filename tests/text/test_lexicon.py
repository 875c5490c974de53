"""Words and code points of ELMoForManyLangs as ids."""

from pathlib import Path

import numpy as np
import pytest

from elmo.errors import DataError
from elmo.text.lexicon import Lexicon, read_rows

WORDS = {"<oov>": 0, "<pad>": 1, "<bos>": 2, "<eos>": 3, "hi": 4, "abcd": 5, "abcde": 6}
CHARACTERS = {"<oov>": 0, "<pad>": 1, "<bos>": 2, "<eos>": 3, "<bow>": 4, "<eow>": 5, "h": 6, "i": 7, "🙂": 8}


def test_a_word_is_its_row_and_its_code_points_between_the_marks() -> None:
    both = Lexicon(WORDS, CHARACTERS, 6)
    assert both.width == 7
    #             word, <eow>, h, i, <bow>, <pad>, <pad>: each one more than its row
    assert both.ids(["hi"]).tolist() == [[5, 6, 7, 8, 5, 2, 2]]
    assert both.ids(["h🙂x"]).tolist() == [[1, 6, 7, 9, 1, 5, 2]]  # unknown; 🙂 is one code point
    assert both.ids([""]).tolist() == [[1, 6, 5, 2, 2, 2, 2]]
    assert both.ids([]).shape == (0, 7)
    assert Lexicon(WORDS, None, 6).ids(["hi", "?"]).tolist() == [[5], [1]]
    assert Lexicon(None, CHARACTERS, 4).ids(["hi", "i"]).tolist() == [[6, 7, 8, 5], [6, 8, 5, 2]]


def test_a_long_word_is_cut_before_it_is_looked_up() -> None:
    ids = Lexicon(WORDS, CHARACTERS, 6).ids(["abcdef", "abcde", "abcd"])
    assert ids[:, 0].tolist() == [6, 6, 6]  # all are "abcd"
    assert np.array_equal(ids[0], ids[2])


def test_boundaries_are_entries_of_both_tables() -> None:
    lexicon = Lexicon(WORDS, CHARACTERS, 7)
    begin, end = [3, 6, 3, 5, 2, 2, 2, 2], [4, 6, 4, 5, 2, 2, 2, 2]
    assert lexicon.ids(["<S>", "<bos>", "</S>", "<eos>"]).tolist() == [begin, begin, end, end]
    ids = lexicon.sentence_ids([["hi"], []])
    assert ids.shape == (2, 3, 8)
    assert ids[0].tolist() == [begin, *lexicon.ids(["hi"]).tolist(), end]
    assert ids[1].tolist() == [begin, end, [0] * 8]


def test_its_files_are_read_and_written(tmp_path: Path) -> None:
    text = "<oov>\t0\n<pad>\t1\n\u3000\t2\n naïve \t3\n<bos>\t4\n<eos>\t5\n<bow>\t6\n<eow>\t7\nx\u2028\t8\n"
    (tmp_path / "char.dic").write_text(text, encoding="utf-8")
    lexicon = Lexicon.read(tmp_path, n_words=None, n_characters=9, max_characters=6)
    expected = {"<oov>": 0, "<pad>": 1, "\u3000": 2, "naïve ": 3, "<bos>": 4, "<eos>": 5, "<bow>": 6, "<eow>": 7}
    assert lexicon.characters == expected | {"x\u2028": 8}
    lexicon.write(tmp_path)
    assert Lexicon.read(tmp_path, n_words=None, n_characters=9, max_characters=6).characters == lexicon.characters
    assert not (tmp_path / "word.dic").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<oov>\t0\n<pad>\tx\n", r"word\.dic, line 2: found '<pad>\\tx'; expected an entry, a tab, a row number"),
        (b"<oov>\t0\na\tb\t1\n", r"line 2: found"),
        (b"<oov>\t0\n\n", r"line 2: found ''"),
        (b"<oov>\t0\n<pad>\t-1\n", "line 2: found"),
        (b"<oov>\t0\n<pad>\t" + b"9" * 5000, "line 2: found"),
        (b"<oov>\t0\n<pad>\t5\n", "line 2: row 5 of a table of 5 rows"),
        (b"<oov>\t0\n", "<pad> not among its 1 entries"),
        (b"<oov>\t0\n\xff\t1\n", "not UTF-8 at byte 8"),
    ],
)
def test_a_wrong_line_is_named(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "word.dic").write_bytes(data)
    with pytest.raises(DataError, match=message) as error:
        read_rows(tmp_path / "word.dic", ("<oov>", "<pad>"), 5)
    assert "\n" not in str(error.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"char\.dic: cannot be read \(No such file"):
        Lexicon.read(tmp_path, n_words=None, n_characters=3, max_characters=6)


def test_a_device_instead_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "word.dic").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"word.dic: not a file of at most 536,870,912 bytes; expected entries with"):
        read_rows(tmp_path / "word.dic", (), 5)
