"""What is taken for sentences, and what is refused: by its index, before it can do harm."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import elmo
from elmo.embed.sentences import MAX_SENTENCE_TOKENS, tokenize_sentences
from elmo.errors import ConfigError, DataError
from elmo.text.tokens import words
from embedders import embedder

TEXT = "It isn't so."


@pytest.fixture(scope="module")
def model() -> elmo.Embedder:
    return embedder()


class Column:
    """A column of values as a data frame gives it: it can be iterated, and is no list."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


class Scalar:
    """A value as pyarrow wraps it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def as_py(self) -> Any:
        return self.value


def test_strings_are_tokenised_and_the_rest_is_tokens() -> None:
    given = [TEXT, ["It", "is"], ("It",), np.array(["It", "is"]), Column("a", "b"), np.str_(TEXT), iter(["x"]), [], ""]
    split = words(TEXT)
    found = list(tokenize_sentences(given))
    assert found == [split, ["It", "is"], ["It"], ["It", "is"], ["a", "b"], split, ["x"], [], []]


def test_numpys_and_pyarrows_strings_become_plain_ones() -> None:
    given = [[np.str_("It"), "is"], np.array(["a", "b"]), Scalar(TEXT), Scalar(["a", "b"]), [Scalar("a")]]
    found = list(tokenize_sentences(given))
    assert found == [["It", "is"], ["a", "b"], words(TEXT), ["a", "b"], ["a"]]
    assert {type(token) for tokens in found for token in tokens} == {str}


def test_pyarrows_arrays_are_read() -> None:
    import pyarrow

    assert list(tokenize_sentences(pyarrow.array([TEXT, "x"]))) == [words(TEXT), ["x"]]
    assert list(tokenize_sentences(pyarrow.array([["a", "b"], []]))) == [["a", "b"], []]
    with pytest.raises(DataError, match=r"^sentence 1 is None; .*dropna"):
        list(tokenize_sentences(pyarrow.array([TEXT, None])))


@pytest.mark.parametrize("dtype", ["object", "string", "str", "string[pyarrow]"])
def test_columns_of_pandas_are_read_and_missing_values_are_named(dtype: str) -> None:
    import pandas

    column = pandas.Series([TEXT, "x"], dtype=dtype)
    assert list(tokenize_sentences(column)) == [words(TEXT), ["x"]]
    assert list(tokenize_sentences([column.str.split().iloc[0], column])) == [TEXT.split(), [TEXT, "x"]]
    missing = pandas.Series([TEXT, "x", None], dtype=dtype)
    message = r"2 is (None|nan \(float\)|<NA> \(NAType\)); expected .*\. Drop missing values first, .*dropna\(\)"
    with pytest.raises(DataError, match=rf"^sentence {message}$"):
        list(tokenize_sentences(missing))
    with pytest.raises(DataError, match=rf"^token {message.replace('2 is', '2 of sentence 0 is')}$"):
        list(tokenize_sentences([missing]))
    assert list(tokenize_sentences(missing.dropna())) == [words(TEXT), ["x"]]


class Rows:
    """A dataset that knows only how to give row k."""

    def __getitem__(self, row: int) -> str:
        return ["one", "two"][row]


def test_what_gives_its_rows_one_by_one_is_a_list_of_sentences() -> None:
    assert list(tokenize_sentences(Rows())) == [["one"], ["two"]]


def test_rows_of_an_array_are_sentences() -> None:
    assert list(tokenize_sentences(np.array([["a", "b"], ["c", "d"]]))) == [["a", "b"], ["c", "d"]]
    assert list(tokenize_sentences(np.array([TEXT, "x"]))) == [words(TEXT), ["x"]]


class NAType:
    """pandas' missing value: it equals nothing, and nobody may ask."""

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self) -> str:
        return "<NA>"


DROP = "Drop missing values first, e.g. with dropna()"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, f"sentence 2 is None; expected a string or a list of tokens. {DROP}"),
        (float("nan"), f"sentence 2 is nan (float); expected a string or a list of tokens. {DROP}"),
        (NAType(), f"sentence 2 is <NA> (NAType); expected a string or a list of tokens. {DROP}"),
        (3, "sentence 2 is 3 (int); expected a string or a list of tokens"),
        (np.float32(0.5), f"sentence 2 is {np.float32(0.5)!r} (float32); expected a string or a list of tokens"),
        (b"bytes", "sentence 2 is b'bytes' (bytes); expected a string or a list of tokens. Decode it first, e.g. with "
         ".decode('utf-8')"),
        ({"text": "x"}, "sentence 2 is {'text': 'x'} (dict); expected a string or a list of tokens"),
        ({"x"}, "sentence 2 is {'x'} (set); expected a string or a list of tokens"),
        (["a", None], f"token 1 of sentence 2 is None; expected a string. {DROP}"),
        (["a", "b", float("nan")], f"token 2 of sentence 2 is nan (float); expected a string. {DROP}"),
        ([1, 2], "token 0 of sentence 2 is 1 (int); expected a string"),
        (np.array([1, 2]), f"token 0 of sentence 2 is {np.int64(1)!r} (int64); expected a string"),
        ([["a"]], "token 0 of sentence 2 is ['a'] (list); expected a string"),
        ([b"a"], "token 0 of sentence 2 is b'a' (bytes); expected a string. Decode it first, e.g. with "
         ".decode('utf-8')"),
        ([["x" * 90]], f"token 0 of sentence 2 is ['{'x' * 35}... (list); expected a string"),
    ],
)  # fmt: skip
def test_what_is_no_sentence_is_named_by_its_index(wrong: Any, message: str, model: elmo.Embedder) -> None:
    sentences = ["one", ["two"], wrong, "three"]
    for call in (model.embed, model.encode, model.ids, lambda given: model.embed(given, state="carried")):
        with pytest.raises(DataError) as error:
            list(call(sentences))
        assert str(error.value) == message
    arrays = model.embed(sentences, batch_tokens=1, layers="top")
    with pytest.raises(DataError, match="sentence 2 is"):
        list(arrays)
    model.reset_state()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("A sentence.", r"found one string; write \[text\]$"),
        (b"A sentence.", "found one object of type bytes$"),
        ({"a": "b"}, "found one object of type dict$"),
        ({"a", "b"}, "found one object of type set$"),
        (None, "found one object of type NoneType$"),
        (5, "found one object of type int$"),
        (np.array("A sentence."), "found one object of type ndarray$"),
    ],
)
def test_what_is_no_list_of_sentences_is_refused_at_once(wrong: Any, message: str, model: elmo.Embedder) -> None:
    for call in (model.embed, model.encode, model.ids):
        with pytest.raises(DataError, match=f"^expected a list of sentences, {message}"):
            call(wrong)


def test_a_table_is_not_taken_for_the_names_of_its_columns(model: elmo.Embedder) -> None:
    import pyarrow

    table = pyarrow.table({"text": ["one", "two"]})
    with pytest.raises(DataError, match=r"found a Table; choose one of its columns, e\.g\. table\['text'\]$"):
        model.encode(table)
    assert model.encode(table["text"]).shape == model.encode(["one", "two"]).shape


def test_words_are_checked_too(model: elmo.Embedder) -> None:
    with pytest.raises(DataError, match=r"^token 1 of sentence 0 is None; expected a string"):
        model.token_vectors(["a", None])


# Length


def test_a_sentence_that_is_too_long_is_refused(model: elmo.Embedder) -> None:
    long = ["the"] * (MAX_SENTENCE_TOKENS + 1)
    message = (
        r"^sentence 1 has 100,001 tokens; expected at most 100,000\. Split it into sentences, or raise the limit with "
        r"max_sentence_tokens=$"
    )
    for call in (model.embed, model.encode, lambda given: model.embed(given, state="carried")):
        for sentence in (long, " ".join(long)):
            with pytest.raises(DataError, match=message):
                list(call([["short"], sentence]))
    model.reset_state()


def test_the_limit_is_the_callers(model: elmo.Embedder) -> None:
    with pytest.raises(DataError, match=r"^sentence 0 has 4 tokens; expected at most 3\."):
        model.encode([["a"] * 4], max_sentence_tokens=3)
    for most in (4, 5, None):
        assert len(list(model.embed([["a"] * 4], max_sentence_tokens=most))) == 1
    with pytest.raises(ConfigError, match=r"^max_sentence_tokens is -1; expected 1 or more, or None for no limit$"):
        model.encode([["a"]], max_sentence_tokens=-1)
