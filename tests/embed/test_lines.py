"""Lines of a text file as sentences: numbered, tokenized or split, and limited in length."""

from pathlib import Path

import pytest
from sacremoses import MosesTokenizer

from elmo.embed.lines import tokens_of_lines
from elmo.errors import DataError
from elmo.text.reader import Lines

TEXT = ["The cat isn't here.", "", "a  b\tc"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    return path


def test_raw_lines_are_tokenized(path: Path) -> None:
    moses = MosesTokenizer(lang="en")
    expected = [(number, moses.tokenize(line, escape=False)) for number, line in enumerate(TEXT, 1)]
    assert list(tokens_of_lines(Lines(path), tokenized=False, max_sentence_tokens=None)) == expected


def test_tokenized_lines_are_split_at_white_space(path: Path) -> None:
    expected = [(number, line.split()) for number, line in enumerate(TEXT, 1)]
    assert list(tokens_of_lines(Lines(path), tokenized=True, max_sentence_tokens=None)) == expected


def test_a_line_that_is_too_long_is_named_after_those_before_it(path: Path) -> None:
    found = tokens_of_lines(Lines(path), tokenized=True, max_sentence_tokens=3)
    with pytest.raises(DataError, match=r"in\.txt: line 1 has 4 tokens; expected at most 3\. Write one"):
        next(found)
    assert len(list(tokens_of_lines(Lines(path), tokenized=True, max_sentence_tokens=4))) == 3
