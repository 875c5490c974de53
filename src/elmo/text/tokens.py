"""RAW TEXT ─▶ TOKENS, Moses-style: the tokenisation of the corpora the published models were trained on.

Nothing is escaped, lower-cased or normalised, so every token is a piece of the text and knows where it stood.

Moses' rules look at most one character beyond a stretch of non-space. So sacremoses is asked once per stretch (and
what follows it), the answer is remembered, and a plain ASCII word needs no answer at all: several times as fast as
asking it sentence by sentence, and the offsets come for free. One difference: of two apostrophes around a space, as in
"5' '10", Moses leaves the second on its word, because its rules cannot use that space twice; here both are split off.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from sacremoses import MosesTokenizer

Tokens = tuple[str, ...]
"""The tokens of a text, as a key of a dictionary."""

_STRETCH = re.compile(r"[^\s\x00-\x1f]+")


class Token(NamedTuple):
    """A piece of the text: `text[start:end]`."""

    text: str
    start: int
    end: int


def words(text: str) -> list[str]:
    """The tokens of a raw text, as strings."""
    return [piece for _, pieces in _stretches(text) for piece in pieces]


def tokenize(text: str) -> list[Token]:
    """The tokens of a raw text, with the character offsets they have in it."""
    tokens: list[Token] = []
    for start, pieces in _stretches(text):
        for piece in pieces:
            tokens.append(Token(piece, start, start + len(piece)))
            start += len(piece)
    return tokens


def _stretches(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Where each stretch of non-space begins, and its tokens."""
    stretches = [(match.start(), match.group()) for match in _STRETCH.finditer(text)]
    last = len(stretches) - 1
    for row, (start, stretch) in enumerate(stretches):
        if stretch.isascii() and stretch.isalnum():
            yield start, (stretch,)
        else:
            yield start, _split(stretch, row == 0, "" if row == last else _kind(stretches[row + 1][1][0]))


def _kind(character: str) -> str:
    """What a full stop before this character depends on: lower case, a digit, or neither; as an example of it."""
    return "a" if character.islower() else "1" if character in "0123456789" else "A"


@lru_cache(maxsize=1)
def _moses() -> MosesTokenizer:
    return MosesTokenizer(lang="en")


@lru_cache(maxsize=65536)
def _split(stretch: str, first: bool, following: str) -> tuple[str, ...]:
    """The tokens of a stretch that begins the text or not, before one that begins like `following` ("" at the end)."""
    context = ("" if first else "a ") + stretch + (f" {following}" if following else "")
    tokens = _moses().tokenize(context, escape=False)
    pieces = tuple(tokens[0 if first else 1 : -1 if following else None])
    # Moses writes "DOTMULTI" for dots while it works; a text with that word in it is not split.
    return pieces if "".join(pieces) == stretch else (stretch,)
