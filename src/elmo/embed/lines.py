"""LINES OF A TEXT FILE ─▶ LISTS OF TOKENS: one sentence per line."""

from collections.abc import Iterator

from elmo.errors import DataError
from elmo.text.reader import Lines, place
from elmo.text.tokens import words


def tokens_of_lines(
    lines: Lines, tokenized: bool, max_sentence_tokens: int | None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the tokens of each line: split at white space if `tokenized`, else tokenized as raw text."""
    for number, line in lines:
        tokens = line.split() if tokenized else words(line)
        if max_sentence_tokens is not None and len(tokens) > max_sentence_tokens:
            raise DataError(
                f"{place(lines.name, number)} has {len(tokens):,} tokens; expected at most {max_sentence_tokens:,}. "
                "Write one sentence per line, or raise --max-sentence-tokens"
            )
        yield number, tokens
