"""PARAGRAPH ─▶ TOKENS ─▶ WINDOWS, and back: a span of tokens is a piece of the paragraph, character for character.

Attention compares every token with every other one, so a model reads at most `WINDOW` tokens at once. A longer
paragraph is read in windows that overlap by half: any answer of up to `WINDOW - STRIDE` tokens is complete in one of
them. Memory and time then grow linearly with the length of the paragraph.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

from elmo.text.tokens import Token, Tokens, tokenize

WINDOW = 1024  # tokens; the longest paragraph of SQuAD's dev file has 700
STRIDE = 512  # tokens from the start of a window to the start of the next

Span = tuple[int, int]
"""The first and the last token of a piece of a paragraph."""


@dataclass(frozen=True)
class Paragraph:
    """A text, its tokens with their character offsets, and the windows in which a model reads them."""

    text: str

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens: `text[token.start:token.end] == token.text`."""
        return tokenize(self.text)

    @cached_property
    def windows(self) -> tuple[range, ...]:
        """The tokens of each window; no window if there is no token."""
        count = len(self.tokens)
        last = max(0, -(-(count - WINDOW) // STRIDE))  # the first window that reaches the end
        return tuple(range(k * STRIDE, min(k * STRIDE + WINDOW, count)) for k in range(last + 1)) if count else ()

    @cached_property
    def texts(self) -> tuple[Tokens, ...]:
        """The words of each window."""
        return tuple(tuple(token.text for token in self.tokens[some.start : some.stop]) for some in self.windows)

    def span(self, start: int, text: str) -> Span | None:
        """Return the tokens that the characters of `text`, beginning at `start`, belong to.

        None if the paragraph has another text there, or if no window contains all of these tokens.
        """
        end = start + len(text)
        if start < 0 or self.text[start:end] != text:
            return None
        first = bisect_right(self.tokens, start, key=lambda token: token.end)
        last = bisect_left(self.tokens, end, key=lambda token: token.start) - 1
        inside = first <= last and any(first in window and last in window for window in self.windows)
        return (first, last) if inside else None

    def characters(self, span: Span) -> tuple[int, int]:
        """Return where a span of tokens begins and ends in the text."""
        return self.tokens[span[0]].start, self.tokens[span[1]].end
