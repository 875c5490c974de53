"""Word vectors: what is read of a file, what is refused, and the table of a task."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from elmo.errors import DataError
from elmo.tasks import word_vectors
from elmo.tasks.examples import Example
from elmo.tasks.inputs import ElmoConfig, InputsConfig

TEXT = "the 1 2.5\ncafé -3 4e-1\n"


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".zst", zstandard.ZstdCompressor().compress),
        ("", lambda data: b"\xef\xbb\xbf" + data),
        ("", lambda data: data.replace(b"\n", b"\r\n")),
    ],
)
def test_a_file_may_be_compressed(ending: str, compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / f"glove.txt{ending}"
    path.write_bytes(compress(TEXT.encode()))
    read = word_vectors.read_vectors(path, 10)
    assert read.words == ["the", "café"]
    np.testing.assert_array_equal(read.matrix, np.array([[1, 2.5], [-3, 0.4]], dtype=np.float32))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", TEXT.encode("latin-1"), "v.txt: line 2 is not UTF-8 (byte 4 is 0xe9)"),
        ("v.bin", b"2 3\nthe \x00\x00\x80\x3f\xff\xff\xff\xff\xcd\xcc\x4c\x3d\n", "v.bin: line 2 is not UTF-8"),
        ("v.bin", b"2 2\nthe \x00\x00\x00\x3f \x00\x00\x00\x3f\n", "v.bin:2: "),
        ("v.txt.gz", TEXT.encode(), "v.txt.gz: damaged, or not a .gz file"),
        ("v.txt.gz", gzip.compress(TEXT.encode() * 99, mtime=0)[:60], "v.txt.gz: is cut short"),
        ("v.txt.zst", TEXT.encode(), "v.txt.zst: damaged, or not a .zst file"),
        ("v.txt", b"a 1 2\nb nan 2\n", "v.txt:2: the vector of 'b' contains nan; expected finite numbers"),
        ("v.txt", b"a 1 2\nb 1 -inf\n", "v.txt:2: the vector of 'b' contains -inf; expected finite numbers"),
        ("v.txt", b"a 1 2\nb 1 1e39\n", "v.txt:2: the vector of 'b' contains 1e39; expected finite numbers"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_file_that_cannot_be_used_is_one_line(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as refused:
        word_vectors.read_vectors(tmp_path / name, 10)
    assert str(refused.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(refused.value)


def test_vectors_of_the_first_lines_and_of_the_words_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2.5\ncat -3 4e-1\n. 5 6\nrare 7 8\n", encoding="utf-8")
    read = word_vectors.read_vectors(path, 2, {"rare", "absent"})
    assert read.words == ["the", "cat", "rare"]
    np.testing.assert_array_equal(read.matrix, np.array([[1, 2.5], [-3, 0.4], [7, 8]], dtype=np.float32))


def test_the_first_line_of_word2vec_is_no_word(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("2 3\na 1 2 3\nb 4 5 6\n", encoding="utf-8")
    assert word_vectors.read_vectors(path, 10).words == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2 3\nb 1 2\n", r":2: 2 numbers after 'b'; expected 3$"),
        ("a 1 x\n", r":1: could not convert string to float: 'x'; expected a word and its numbers, as in GloVe's f"),
        ("a\n", r":1: 'a'; expected a word and its numbers, as in GloVe's files$"),
        ("", r": contains no word vectors; expected a word and its numbers on each line$"),
    ],
)
def test_a_file_that_is_no_vectors(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"v\.txt{message}"):
        word_vectors.read_vectors(tmp_path / "v.txt", 10)


def test_a_word_may_contain_spaces(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("the 1 2\n. . . 3 4\nat a@b.org 5 6\n", encoding="utf-8")
    read = word_vectors.read_vectors(tmp_path / "v.txt", 10)
    assert read.words == ["the", ". . .", "at a@b.org"]
    assert read.matrix.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"v\.txt: cannot be read \(No such file or directory\); expected a text file"):
        word_vectors.read_vectors(tmp_path / "v.txt", 10)


def test_words_without_a_vector_get_one_that_is_like_the_others() -> None:
    rng = np.random.default_rng(0)
    file = word_vectors.WordVectors(["a", "b"], rng.normal(2, 3, (2, 5000)).astype(np.float32))
    both = word_vectors.with_random(file, ["b", "n't", "--", "n't"], np.random.default_rng(1))
    assert both.words == ["n't", "--", "a", "b"]
    new, old = np.split(both.matrix, 2)
    assert np.array_equal(old, file.matrix) and both.matrix.dtype == np.float32
    assert np.allclose(new.mean(axis=1), 2, atol=0.2) and np.allclose(new.std(axis=1), 3, atol=0.2)
    assert abs(np.corrcoef(new)[0, 1]) < 0.05
    assert word_vectors.with_random(file, ["a"], rng).words == ["a", "b"]


def test_words_are_counted_in_all_texts() -> None:
    examples = [Example((("The", "cat"), ("the", "end"))), Example((("The",),))]
    assert word_vectors.count_words(examples, lowercase=False) == {"The": 2, "cat": 1, "the": 1, "end": 1}
    assert word_vectors.count_words(examples, lowercase=True) == {"the": 3, "cat": 1, "end": 1}


@pytest.mark.parametrize(("least", "new"), [(3, ["dora"]), (5, []), (None, [])])
def test_the_table_of_a_task(least: int | None, new: list[str], tmp_path: Path) -> None:
    """The words of the training part, first lines of the file, words of any part that are in the file."""
    path = tmp_path / "v.txt"
    path.write_text("the 1 2\nrare 3 4\nsaw 5 6\nquito 7 8\n", encoding="utf-8")
    config = InputsConfig(ElmoConfig(), vectors=str(path), max_words=1, own_words=least)
    train = [Example((("Dora", "saw", "dora"),)), Example((("dora", "dora", "Anna"),))]
    splits = {"train": train, "dev": [Example((("Quito", "Dora", "Bela", "Bela", "Bela"),))]}
    table = word_vectors.for_task(config, splits, seed=0)
    assert table is not None
    assert table.words == [*new, "saw", "the", "quito"]
    assert table.matrix[len(new) :].tolist() == [[5, 6], [1, 2], [7, 8]]
    again, other = (word_vectors.for_task(config, splits, seed) for seed in (0, 1))
    assert again is not None and other is not None
    assert np.array_equal(again.matrix, table.matrix)
    assert np.array_equal(other.matrix, table.matrix) == (not new)


def test_no_table_without_a_file() -> None:
    assert word_vectors.for_task(InputsConfig(), {"train": []}, seed=0) is None
