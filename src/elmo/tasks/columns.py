"""FILES OF COLUMNS ◀─▶ SENTENCES WITH SPANS: what the CoNLL formats of several tasks share.

A token and its tags on each line, with a tab or blanks between them, and a blank line between sentences.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from elmo.text.reader import read_lines

_BLANKS = re.compile("[ \t]+")  # no others: a token may contain a no-break space


def sentences_of(path: Path, *marks: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each sentence, and its lines.

    A line that begins with one of the marks is about a document; it ends a sentence and belongs to none.
    """
    lines: list[str] = []
    number = 0
    for number, line in read_lines(path):
        if line.strip(" \t") and not line.startswith(marks):
            lines.append(line)
        elif lines:
            yield number - len(lines), lines
            lines = []
    if lines:
        yield number + 1 - len(lines), lines


def columns_of(line: str) -> list[str]:
    """Split a line: at tabs, if it has any, or else at blanks."""
    return [column.strip(" ") for column in (line.split("\t") if "\t" in line else _BLANKS.split(line.strip(" ")))]


def bio_tags(spans: Iterable[tuple[int, int, str]], length: int) -> list[str]:
    """Return the BIO (IOB2) tags of spans (start, end, type) that do not overlap."""
    tags = ["O"] * length
    for start, end, kind in spans:
        tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return tags
