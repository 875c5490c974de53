"""RAW TEXT ─▶ TOKENS by the rules of Moses, as in the corpora that the published models were trained on.

Nothing is escaped, lower-cased or normalized, so every token is a piece of the text and has character offsets.

Moses' rules look at most one character beyond a stretch of non-space characters. So sacremoses is called once for each
distinct stretch (and the kind of character after it), its result is cached, and an ASCII word needs no call: several
times as fast as a call for each sentence, and the offsets follow. One difference: of two apostrophes around a space, as
in "5' '10", Moses leaves the second on its word, because its rules cannot use that space twice; here both are split.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sacremoses import MosesTokenizer

Tokens = tuple[str, ...]
"""The tokens of a text, as a key of a dictionary."""

_STRETCH = re.compile(r"[^\s\x00-\x1f]+")
_LONGEST = 256  # characters of a stretch whose tokens are cached: the cache counts stretches, whatever their size


class Token(NamedTuple):
    """A piece of the text: `text[start:end]`."""

    text: str
    start: int
    end: int


def words(text: str) -> list[str]:
    """Tokenize a raw text; return strings."""
    return [piece for _, pieces in _stretches(text) for piece in pieces]


def tokenize(text: str) -> list[Token]:
    """Tokenize a raw text; return tokens with their character offsets."""
    tokens: list[Token] = []
    for start, pieces in _stretches(text):
        for piece in pieces:
            tokens.append(Token(piece, start, start + len(piece)))
            start += len(piece)
    return tokens


def _stretches(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the start of each stretch of non-space characters, and its tokens."""
    stretches = [(match.start(), match.group()) for match in _STRETCH.finditer(text)]
    last = len(stretches) - 1
    for row, (start, stretch) in enumerate(stretches):
        if stretch.isascii() and stretch.isalnum():
            yield start, (stretch,)
        else:
            split = _split if len(stretch) <= _LONGEST else _split.__wrapped__
            yield start, split(stretch, row == 0, "" if row == last else _kind(stretches[row + 1][1][0]))


def _kind(character: str) -> str:
    """Return an example of the character's kind: lower case, digit, or neither. A full stop before it depends on it."""
    return "a" if character.islower() else "1" if character in "0123456789" else "A"


@lru_cache(maxsize=1)
def _moses() -> "MosesTokenizer":
    from sacremoses import MosesTokenizer  # its import takes as long as reading a model: tokens need none of it

    return MosesTokenizer(lang="en")


@lru_cache(maxsize=65536)
def _split(stretch: str, first: bool, following: str) -> tuple[str, ...]:
    """Tokenize a stretch, `first` in the text or not, before one that begins like `following` ("" at the end)."""
    context = ("" if first else "a ") + stretch + (f" {following}" if following else "")
    tokens = _moses().tokenize(context, escape=False)
    pieces = tuple(tokens[0 if first else 1 : -1 if following else None])
    # Moses uses "DOTMULTI" as a placeholder for dots; a stretch with that word in it is not split.
    return pieces if "".join(pieces) == stretch else (stretch,)
