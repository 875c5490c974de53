"""Tokens against sacremoses, asked for the whole text at once, and the promises of their offsets."""

import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from elmo.text import tokens
from elmo.text.tokens import Token, tokenize, words

SENTENCES = [
    "The cat sat on the mat.",
    "Mr. Smith met Dr. Jones at 5 p.m. in St. Louis.",
    "She isn't here, they're late, and I've no idea who'd know.",
    "It's the dogs' dinner; it's James's, not the cats'.",
    'He said, "I don\'t know," and left.',
    "“Curly quotes,” she wrote, ‘are everywhere’ — even here.",
    "Wait... what? No!!! Really?!",
    "Well… that was odd.",
    "Prices rose 3.5% to $1,234.56 on Jan. 5, 2018.",
    "See https://example.com/a/b?c=d&e=f#g or www.example.org.",
    "Write to someone@example.com, please.",
    "The U.S. economy, i.e. GDP, grew in the 1990s.",
    "In the '90s, rock 'n' roll wasn't dead.",
    "A so-called state-of-the-art, 10-year-old machine.",
    "It cost €5 (about £4.30), i.e. nothing.",
    "No. 5 is alive. No. It is not.",
    "He lives at 221B Baker St.",
    "The vote was 51-49; turnout: 60%.",
    "and/or either/or 24/7 km/h",
    "Item 1: apples, oranges, etc. and pears.",
    "E.g. this one, cf. Peters et al. (2018), pp. 3-5.",
    "x = y + 2 * (z - 1) / [3, 4] < {5} & 6 | 7",
    "The café's naïve façade, Zürich, Škoda and São Paulo.",
    "東京は日本の首都です。",
    "Привет, мир! Это тест.",
    "Emoji 🙂 in a sentence 👍🏽.",
    "A #hashtag, an @mention and a $TICKER.",
    "10,000 people, 1,5 metres, 3 ,4 and 5, 6",
    "At 9:30 a.m. on 12/31/1999 it ended.",
    "Ph.D. students vs. professors, Inc. and Co. Ltd.",
    "end of sentence with number 5.",
    "end of sentence with quote.'",
    "'Quoted from the start' and to the end.'",
    "``LaTeX quotes'' and -- dashes --- of all kinds",
    "Don't can't won't shan't o'clock y'all 'tis",
    "C++ and C# and .NET and node.js v18.2.1",
    "   leading,  double   and trailing white space.  ",
    "tabs\tand\nnew lines.\r\nAnd more.",
    "Gen. Lee and Sen. Warren met Gov. Brown on Mon. morning.",
    "1. First point. 2. Second point. 10. Tenth point.",
    "Version 2. 3 is not 2.3. It is 2 .3.",
    "It weighs 5 lbs. and 3 oz. more",
    "J. R. R. Tolkien, J.R.R. Tolkien and A. b",
    "<S> and </S> and <UNK> &amp; &lt;",
    "Ellipsis ....and more..... dots. . .",
    "...",
    "'",
    ".",
]
BETWEEN = re.compile(r"[\s\x00-\x1f]*")


@pytest.mark.parametrize("text", SENTENCES)
def test_words_are_those_of_moses(text: str) -> None:
    assert words(text) == MosesTokenizer("en").tokenize(text, escape=False)


def test_quotes_on_both_sides_of_a_space_are_both_split_off_where_moses_leaves_one() -> None:
    text = "The beam is 5' '10 long."
    assert MosesTokenizer("en").tokenize(text, escape=False) == ["The", "beam", "is", "5", "'", "'10", "long", "."]
    assert words(text) == ["The", "beam", "is", "5", "'", "'", "10", "long", "."]


@given(st.lists(st.sampled_from([*"abs.,'\"-(%12A ", "é", "Mr.", "e.g.", "...", "ß", " ", " "]), max_size=9))
@settings(deadline=None, max_examples=400)
def test_any_mixture_of_words_and_marks_is_split_as_moses_splits_it(pieces: list[str]) -> None:
    text = "".join(pieces)
    if re.search(r"[^a-zA-Zéß]' +'[^a-zA-Zéß]", f" {text} "):
        return  # the case of the test above
    assert words(text) == MosesTokenizer("en").tokenize(text, escape=False)


def test_tokens_of_a_sentence() -> None:
    assert tokenize("Mr. Fox can't,\tno.") == [
        Token("Mr.", 0, 3),
        Token("Fox", 4, 7),
        Token("can", 8, 11),
        Token("'t", 11, 13),
        Token(",", 13, 14),
        Token("no", 15, 17),
        Token(".", 17, 18),
    ]


@given(
    st.one_of(
        st.text(), st.text(st.characters()), st.text(st.sampled_from("aB1.,'\"&<|[]@-\t\n \x00\x85\u2028é…DOTMUL"))
    )
)
@example("a\ud800b. \udfff")
@example("\x00\x01a\x1fb\u3000c")
@example("...DOTMULTI DOTDOTMULTI. @-@ &apos; &#124;")
@settings(deadline=None, max_examples=400)
def test_tokens_are_all_of_the_text_but_white_space_and_control_characters(text: str) -> None:
    end = 0
    for token in tokenize(text):
        assert token.text == text[token.start : token.end] != ""
        assert token.start >= end
        assert BETWEEN.fullmatch(text[end : token.start])
        assert not BETWEEN.search(token.text).group()  # a token never begins with what separates
        end = token.end
    assert BETWEEN.fullmatch(text[end:])
    assert words(text) == [token.text for token in tokenize(text)]


@pytest.mark.parametrize("text", SENTENCES)
def test_tokens_of_real_sentences_stand_where_they_say(text: str) -> None:
    assert [text[token.start : token.end] for token in tokenize(text)] == words(text)


def test_the_mark_that_moses_uses_inside_is_left_whole() -> None:
    assert words("DOTMULTI") == ["DOTMULTI"]
    assert words("a DOTMULTI. b") == ["a", "DOTMULTI.", "b"]
    assert words("xDOTDOTMULTIy,") == ["xDOTDOTMULTIy,"]


def test_nothing_is_escaped() -> None:
    assert " ".join(words("a & b | <c> [d] \"e\" 'f' g")) == "a & b | < c > [ d ] \" e \" ' f ' g"


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\x00\x1f", "\u2003\u3000"])
def test_a_text_of_nothing_has_no_tokens(text: str) -> None:
    assert tokenize(text) == []
    assert words(text) == []


def test_long_stretches_are_split_as_others_but_not_cached() -> None:
    stretch = "(" + "a" * 300 + ")"
    before = tokens._split.cache_info().currsize
    assert tokens.words(f"x {stretch} .") == ["x", "(", "a" * 300, ")", "."]
    assert tokens._split.cache_info().currsize <= before + 1  # the full stop


def test_a_list_of_tokens_needs_no_tokenizer() -> None:
    """Importing sacremoses takes as long as reading a model: `elmo.load` does without it."""
    code = "import sys, elmo.embed.embedder; print('sacremoses.tokenize' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed == "False\n"
