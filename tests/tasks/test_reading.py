"""Finding the files of a data folder, and parsing a sentence to predict from."""

from pathlib import Path
from typing import Any

import pytest
from sacremoses import MosesTokenizer

from elmo.errors import DataError
from elmo.tasks.examples import Example
from elmo.tasks.reading import files_in, parse_sentence

NAMES = {"train": ("official.train", "train.txt"), "dev": ("dev.txt",)}


def test_each_part_is_the_first_of_its_names_that_exists(tmp_path: Path) -> None:
    (tmp_path / "train.txt").touch()
    assert files_in(tmp_path, NAMES) == {"train": tmp_path / "train.txt"}
    (tmp_path / "official.train").touch()
    (tmp_path / "dev.txt").touch()
    assert files_in(tmp_path, NAMES) == {"train": tmp_path / "official.train", "dev": tmp_path / "dev.txt"}


def test_a_folder_without_any_of_the_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.txt").mkdir()  # not a file
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError) as error:
            files_in(folder, NAMES)
        expected = "contains no file of the task; expected some of official.train, train.txt, dev.txt"
        assert str(error.value) == f"{folder}: {expected}"


def test_raw_text_is_tokenized_as_moses_does() -> None:
    text = "Zorb (the mayor of Qua) isn't here; she's in Blim, they say."
    wanted = tuple(MosesTokenizer(lang="en").tokenize(text, escape=False))
    assert len(wanted) > 15
    for item in (text, f"  {text}\n", {"text": text}, {"text": text, "id": 7}):
        assert parse_sentence(item) == Example((wanted,))


def test_tokens_are_left_as_they_are() -> None:
    tokens = ["Zorb", "(the", "mayor)", "isn't", "10 000"]
    for item in (tokens, tuple(tokens), {"tokens": tokens}, {"tokens": tokens, "text": "something else"}):
        assert parse_sentence(item) == Example((tuple(tokens),))


@pytest.mark.parametrize(
    "item",
    [
        "", " \t\n", "\x00", [], None, ["a", ""], ["a", 5], [["a"]], 0, 1.5, True, {}, {"tokens": []}, {"tokens": 5},
        {"tokens": ["a", None]}, {"text": ""}, {"text": " "}, {"text": None}, {"text": 5}, {"words": ["a"]},
    ],
)  # fmt: skip
def test_anything_else_is_refused(item: Any) -> None:
    with pytest.raises(DataError) as error:
        parse_sentence(item)
    wanted = f"{item!r}: expected a sentence, a list of tokens, or an object with 'text' or 'tokens'"
    assert str(error.value) == wanted
