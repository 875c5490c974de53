"""Character ids against the reference's, which have no shift: ours are one more."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import numpy_reference
from elmo.text.characters import sentence_ids, word_ids, word_ids_from_bytes

WORDS = [
    "cat",
    "U.S.",
    "naïve",
    "日本語",
    "🙂",
    "\x00\x7f",
    "",
    "<S>",
    "</S>",
    "<UNK>",
    "<s>",
    "a" * 47,
    "a" * 48,  # just fits
    "a" * 49,
    "a" * 500,
    "a" * 47 + "é",  # cut inside the character
    "語" * 30,
]


def shifted(word: str, max_characters: int) -> list[int]:
    return [i + 1 for i in numpy_reference.character_ids(word, max_characters)]


@pytest.mark.parametrize("max_characters", [3, 4, 8, 20, 50, 51])
def test_ids_are_the_reference_s_shifted_by_one(max_characters: int) -> None:
    expected = np.array([shifted(word, max_characters) for word in WORDS])
    ids = word_ids(WORDS, max_characters)
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, expected)


def test_ids_by_hand() -> None:
    assert word_ids(["hi", "<S>", "</S>", ""], 6).tolist() == [
        [259, 105, 106, 260, 261, 261],
        [259, 257, 260, 261, 261, 261],
        [259, 258, 260, 261, 261, 261],
        [259, 260, 261, 261, 261, 261],
    ]


def test_the_byte_0_is_not_no_token() -> None:
    assert word_ids(["\x00"], 4).tolist() == [[259, 1, 260, 261]]


def test_a_word_is_cut_inside_a_character() -> None:
    assert word_ids(["abcé"], 6).tolist() == [[259, 98, 99, 100, 0xC3 + 1, 260]]


def test_no_words_have_no_ids() -> None:
    assert word_ids([], 50).shape == (0, 50)


def test_a_lone_surrogate_has_no_bytes() -> None:
    np.testing.assert_array_equal(word_ids(["a\ud800b", "\udfff"], 8), word_ids(["ab", ""], 8))


@given(st.lists(st.text(), max_size=5), st.integers(3, 60))
@settings(deadline=None, max_examples=200)
def test_any_text_has_the_reference_s_ids(words: list[str], max_characters: int) -> None:
    assert word_ids(words, max_characters).tolist() == [shifted(word, max_characters) for word in words]


def spelled(words: list[str], max_characters: int, before: bytes = b"", between: bytes = b"\n") -> np.ndarray:
    """The ids of words that stand in one text, each followed by `between`."""
    text, starts, lengths = before, [], []
    for word in words:
        starts.append(len(text))
        lengths.append(len(word.encode("utf-8")))
        text += word.encode("utf-8") + between
    return word_ids_from_bytes(
        np.frombuffer(text, dtype=np.uint8),
        np.array(starts, dtype=np.int64),
        np.array(lengths, dtype=np.int64),
        max_characters,
    )


# Boundaries have marks of their own; here they would be spelled.
SPELLED = [word for word in WORDS if word not in ("<S>", "</S>")]


@pytest.mark.parametrize("max_characters", [3, 4, 8, 20, 49, 50, 51])
@pytest.mark.parametrize(("before", "between"), [(b"", b"\n"), (b"\xff\xfe", b""), (b"x\n", b"\n\n")])
def test_words_in_one_text_have_the_reference_s_ids(max_characters: int, before: bytes, between: bytes) -> None:
    ids = spelled(SPELLED, max_characters, before, between)
    assert ids.dtype == np.int16
    np.testing.assert_array_equal(ids, [shifted(word, max_characters) for word in SPELLED])


@pytest.mark.parametrize("cut", range(3, 13))
def test_a_word_in_a_text_is_cut_at_every_byte(cut: int) -> None:
    """Characters of two, three and four bytes: most cuts are inside one."""
    word = "é語🙂"
    wanted = [259, *(byte + 1 for byte in word.encode("utf-8")[: cut - 2]), 260]
    assert spelled([word], cut).tolist() == [wanted + [261] * (cut - len(wanted))]


def test_words_of_no_text_have_no_ids() -> None:
    assert spelled([], 50).shape == (0, 50)
    assert spelled(["", ""], 4).tolist() == [[259, 260, 261, 261]] * 2


def test_the_byte_255_has_the_id_256() -> None:
    text = np.array([255, 0, 255], dtype=np.uint8)  # no UTF-8, but 255 + 1 must not become 0
    ids = word_ids_from_bytes(text, np.array([0]), np.array([3]), 6)
    assert ids.tolist() == [[259, 256, 1, 256, 260, 261]]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=6), st.integers(3, 60))
@settings(deadline=None, max_examples=300)
def test_any_words_in_one_text_have_the_reference_s_ids(words: list[str], max_characters: int) -> None:
    words = [word for word in words if word not in ("<S>", "</S>")]
    ids = spelled(words, max_characters)
    assert ids.tolist() == [shifted(word, max_characters) for word in words]
    np.testing.assert_array_equal(ids, word_ids(words, max_characters))


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), min_size=1), st.data())
@settings(deadline=None, max_examples=100)
def test_words_are_taken_in_any_order_and_more_than_once(text: str, data: st.DataObject) -> None:
    words = text.split("\n")
    chosen = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=8))
    ends = np.cumsum([len(word.encode("utf-8")) + 1 for word in words])
    lengths = np.array([len(word.encode("utf-8")) for word in words])
    some = np.array(chosen, dtype=np.int64)
    ids = word_ids_from_bytes(
        np.frombuffer(text.encode("utf-8"), np.uint8), (ends - 1 - lengths)[some], lengths[some], 9
    )
    assert ids.tolist() == [shifted(words[k], 9) for k in chosen]


def test_sentences_stand_between_boundaries_with_rows_of_zeros_behind() -> None:
    ids = sentence_ids([["The", "cat"], [], ["sat"]], 8)
    nothing = [0] * 8
    begin, end = shifted("<S>", 8), shifted("</S>", 8)
    assert ids.tolist() == [
        [begin, shifted("The", 8), shifted("cat", 8), end],
        [begin, end, nothing, nothing],
        [begin, shifted("sat", 8), end, nothing],
    ]
    assert ids.dtype == np.int64


def test_a_boundary_written_in_a_text_has_the_boundary_s_ids() -> None:
    ids = sentence_ids([["</S>", "<S>"]], 50)[0]
    np.testing.assert_array_equal(ids[1], ids[3])
    np.testing.assert_array_equal(ids[2], ids[0])


@pytest.mark.parametrize(("sentences", "shape"), [([], (0, 2, 20)), ([[]], (1, 2, 20)), ([[], ["a"]], (2, 3, 20))])
def test_shape_of_sentences_that_are_hardly_there(sentences: list[list[str]], shape: tuple[int, ...]) -> None:
    assert sentence_ids(sentences, 20).shape == shape


@given(st.lists(st.lists(st.text(max_size=12), max_size=6), min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_only_places_without_a_token_are_zero(sentences: list[list[str]]) -> None:
    ids = sentence_ids(sentences, 10)
    assert (ids > 0).all(axis=2).sum(axis=1).tolist() == [len(sentence) + 2 for sentence in sentences]
    np.testing.assert_array_equal((ids > 0).all(axis=2), (ids > 0).any(axis=2))
    for row, sentence in zip(ids, sentences, strict=True):
        assert row[1 : len(sentence) + 1].tolist() == [shifted(word, 10) for word in sentence]
