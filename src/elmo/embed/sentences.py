"""SENTENCES OF THE USER ─▶ LISTS OF TOKENS, checked one at a time: the stream may be endless.

A string is raw text and is tokenized; any other iterable is tokens: a list, a NumPy array, a pandas Series.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from elmo.errors import ConfigError, DataError
from elmo.text.tokens import words

MAX_SENTENCE_TOKENS = 100_000  # default limit for one sentence

Sentence = str | Sequence[str]

_EXPECTED = "expected a string or a list of tokens"


def tokenize_sentences(
    sentences: Iterable[Sentence], max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS
) -> Iterator[list[str]]:
    """Yield the tokens of each sentence. A wrong argument is refused at once, a bad sentence when it is read."""
    if isinstance(sentences, str):
        raise DataError("expected a list of sentences, found one string; write [text]")
    if max_sentence_tokens is not None and max_sentence_tokens < 1:
        raise ConfigError(f"max_sentence_tokens is {max_sentence_tokens}; expected 1 or more, or None for no limit")
    name = type(sentences).__name__
    if hasattr(sentences, "columns") or hasattr(sentences, "column_names"):
        # Iterating over a table would give the names of its columns, or rows of all of them.
        raise DataError(f"expected a list of sentences, found a {name}; choose one of its columns, e.g. table['text']")
    try:
        if isinstance(sentences, bytes | bytearray | Mapping | Set):
            raise TypeError
        each = enumerate(sentences)
    except TypeError:
        raise DataError(f"expected a list of sentences, found one object of type {name}") from None
    return (_tokens(index, sentence, max_sentence_tokens) for index, sentence in each)


def _tokens(index: int, sentence: Sentence, most: int | None) -> list[str]:
    """Return the tokens of one sentence; `index` is for messages."""
    tokens = words(sentence) if isinstance(sentence, str) else _listed(index, sentence)
    if most is not None and len(tokens) > most:
        raise DataError(
            f"sentence {index} has {len(tokens):,} tokens; expected at most {most:,}. Split it into sentences, or "
            f"raise the limit with max_sentence_tokens="
        )
    return tokens


def _listed(index: int, sentence: Any) -> list[str]:
    """Return the tokens of a sentence that is not a string."""
    if hasattr(sentence, "as_py"):  # a pyarrow scalar
        sentence = sentence.as_py()
        if isinstance(sentence, str):
            return words(sentence)
    if isinstance(sentence, bytes | bytearray | Mapping | Set):
        raise _wrong(f"sentence {index}", sentence, _EXPECTED)
    try:
        tokens = list(sentence)
    except TypeError:
        raise _wrong(f"sentence {index}", sentence, _EXPECTED) from None
    if set(map(type, tokens)) <= {str}:
        return tokens
    return [_token(index, place, token) for place, token in enumerate(tokens)]


def _token(index: int, place: int, token: Any) -> str:
    """Convert a token of another type than `str`, such as a NumPy or pyarrow string."""
    if hasattr(token, "as_py"):
        token = token.as_py()
    if not isinstance(token, str):
        raise _wrong(f"token {place} of sentence {index}", token, "expected a string")
    return str(token)


def _wrong(where: str, found: Any, expected: str) -> DataError:
    shown = found if found is None else f"{_short(repr(found))} ({type(found).__name__})"
    missing = found is None or type(found).__name__ in ("NAType", "NaTType") or (found != found) is True
    advice = ". Drop missing values first, e.g. with dropna()" if missing else ""
    if isinstance(found, bytes | bytearray):
        advice = ". Decode it first, e.g. with .decode('utf-8')"
    return DataError(f"{where} is {shown}; {expected}{advice}")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
