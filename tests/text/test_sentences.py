"""Where a sentence ends, and where it only seems to."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.text.sentences import split


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained.", "We left."],
        ["Really?", "Yes!", "No?!", "Well."],
        ["He left...", "She stayed…", "It ended."],
        ['"Go!"', "She went.", "(An aside.)", "[Another.]", "“So.”", "‘Then this.’"],
        ['"Really?" she asked.', '"Yes."', "Then he left."],
        ["It cost $3.50.", "2 of them cost 7."],
        ["He came at 5 p.m.", "Then he left."],
        ["It was 1998.", "Nothing happened in 1999."],
        ["Élan came.", "Österreich too.", "«Да.»", "Потом ещё."],
        ["מי זה?", "אף אחד."],  # letters without case
        ["¿Quién?", "¡Nadie!"],
    ],
)
def test_sentences_are_told_apart(sentences: list[str]) -> None:
    assert split(" ".join(sentences)) == sentences
    assert split("  " + " \t ".join(sentences) + "\n") == sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Mr. Smith met Dr. Jones and Mrs. Lee on Jan. 3.",
        "J. R. R. Tolkien wrote it.",
        'Horst, S. "Titan\'s Veil."',
        "The U.S. Army and the Ph.D. Committee met.",
        "See No. 5, pp. 3 and Fig. 2 of Vol. 3.",
        "Smith et al. (2004) found e.g. That.",
        "2. Regard for Military Government.",
        "1998. Rousing the Nation.",
        "IV. In France.",
        "Oh! now it comes out.",
        "“To-morrow?” he said.",
        "Use Sites.USA.Gov for it; version 2.0 costs 3.50.",
        "(T. P. H.)",
        "no end at all",
        "…",
        ".",
    ],
)
def test_what_only_seems_to_end_a_sentence_does_not(sentence: str) -> None:
    assert split(sentence) == [sentence]


def test_a_number_ends_a_sentence_that_it_does_not_open() -> None:
    assert split("It has 5. The other has No. Good.") == ["It has 5.", "The other has No.", "Good."]


@pytest.mark.parametrize("text", ["", " ", "\t\n "])
def test_nothing_has_no_sentences(text: str) -> None:
    assert split(text) == []


@given(st.text(st.sampled_from("aA1 .?!…\"'()\n\u00a0Mr"), max_size=60))
@settings(deadline=None)
def test_nothing_is_lost_and_nothing_is_empty(text: str) -> None:
    sentences = split(text)
    assert "".join(re.sub(r"\s", "", sentence) for sentence in sentences) == re.sub(r"\s", "", text)
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    assert [part for sentence in sentences for part in sentence.split()] == text.split()


@pytest.mark.parametrize(
    "text", ["." * 500_000, "A. " * 200_000, ". " * 300_000, '."' * 300_000, "." + '"' * 500_000, "a." + " " * 500_000]
)
def test_a_long_line_of_marks_takes_no_longer_than_others(text: str) -> None:
    start = time.process_time()
    assert len(split(text)) == 1
    assert time.process_time() - start < 10  # seconds; what grows with the square takes hours
