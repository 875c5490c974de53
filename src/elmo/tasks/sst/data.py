"""SENTIMENT TREES ─▶ PHRASES WITH A LABEL: the Stanford Sentiment Treebank's trees, one a line.

    (3 (2 It) (4 (2 's) (3 fun)))    a label from 0, very negative, to 4, very positive, on every phrase

Training uses every phrase (the paper: all sub-trees), dev and test use whole sentences only. A phrase that occurs again
with the same label is used once: of the 318,582 phrases in the treebank's train.txt, 159,274 are left. A fraction of
the training part is a fraction of its trees.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.tasks.examples import Example, GroupedExamples, Splits
from elmo.tasks.reading import files_in
from elmo.text.reader import read_lines

PARTS = {part: (f"{part}.txt",) for part in ("train", "dev", "test")}
NAMES = {"0": "very negative", "1": "negative", "2": "neutral", "3": "positive", "4": "very positive"}

MAX_DEPTH = 1000  # of a tree; every token is in a phrase of each level, so memory grows with the depth

_PIECE = re.compile(r"[()]|[^() \t\r]+")  # a no-break space is part of a token: the treebank has three of them
_OPEN, _CLOSE, _LABEL, _WORD, _END = "'('", "')'", "a label from 0 to 4", "a word", "the end of the line"
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]"}


def read(folder: Path) -> Splits:
    """Read train.txt, dev.txt and test.txt of a folder: the phrases of the first, the sentences of the others."""
    return {part: read_file(path, phrases=part == "train") for part, path in files_in(folder, PARTS).items()}


def read_file(path: Path, phrases: bool) -> list[Example]:
    """Read the distinct phrases of all trees, or the sentence of each tree."""
    if phrases:
        return GroupedExamples(_trees(path))
    return [tree[-1] for tree in _trees(path)]


def _trees(path: Path) -> Iterator[list[Example]]:
    for number, line in read_lines(path):
        if line.strip():
            yield phrases_of(line, f"{path}:{number}")


def phrases_of(tree: str, where: str) -> list[Example]:
    """Parse a tree into its phrases, each after its parts; the last one is the sentence. Errors begin with `where`."""
    tokens: list[str] = []
    opened: list[tuple[str, int]] = []  # label and first token of the phrases that are still open
    phrases: list[Example] = []
    expected: tuple[str, ...] = (_OPEN,)
    for piece in [*_PIECE.findall(tree), _END]:
        if piece in ("(", ")"):
            kind = f"'{piece}'"
        elif piece is _END:
            kind = _END
        else:
            kind = _LABEL if _LABEL in expected else _WORD
        if kind not in expected or (kind is _LABEL and piece not in NAMES):
            found = _END if piece is _END else repr(piece[:40])
            raise DataError(f"{where}: found {found}; expected {' or '.join(expected)}")
        if kind == _OPEN:
            if len(opened) == MAX_DEPTH:
                raise DataError(f"{where}: a phrase inside of {MAX_DEPTH} others; expected the tree of a sentence")
            expected = (_LABEL,)
        elif kind is _LABEL:
            opened.append((piece, len(tokens)))
            expected = (_OPEN, _WORD)
        elif kind is _WORD:
            tokens.append(_unescaped(piece))
            expected = (_CLOSE,)
        elif kind == _CLOSE:
            label, first = opened.pop()
            phrases.append(Example((tuple(tokens[first:]),), label))
            expected = (_OPEN, _CLOSE) if opened else (_END,)
    return phrases


def _unescaped(word: str) -> str:
    """Undo the escapes of the Penn Treebank."""
    return _BRACKETS.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def labels(examples: Sequence[Example]) -> list[str]:
    """Return all five labels, whatever the examples are."""
    return list(NAMES)


def to_json(example: Example, label: str) -> dict[str, Any]:
    """Return the tokens, the label, and its meaning."""
    (tokens,) = example.texts
    return {"tokens": list(tokens), "label": label, "sentiment": NAMES[label]}
