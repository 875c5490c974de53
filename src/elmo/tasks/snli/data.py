"""JSON LINES ─▶ PAIRS OF SENTENCES: does the second, the hypothesis, follow from the first, the premise?

Each line has `gold_label`, `sentence1` and `sentence2`; other fields are not read. A pair whose annotators did not
agree has the label "-" and is skipped. All text, raw or tokenized, is tokenized in the same way: see `tokens`.
"""

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.tasks.examples import Example, Splits
from elmo.tasks.reading import files_in
from elmo.text.reader import read_lines
from elmo.text.tokens import Tokens, words

log = logging.getLogger("elmo")

PARTS = {
    "train": ("snli_1.0_train.jsonl", "snli_train_subset.jsonl", "train.jsonl"),
    "dev": ("snli_1.0_dev.jsonl", "snli_dev.jsonl", "dev.jsonl"),
    "test": ("snli_1.0_test.jsonl", "snli_test.jsonl", "test.jsonl"),
}
LABELS = ("entailment", "neutral", "contradiction")
NO_LABEL = "-"
FIELDS = ("gold_label", "sentence1", "sentence2")

_PENN_QUOTE = re.compile(r"(?<!\S)(?:``|'')(?!\S)")
_SPLIT_OFF = re.compile(r"(?<=\w) +(n't|'(?:s|t|m|d|re|ve|ll))(?!\w)", re.IGNORECASE)


def read(folder: Path) -> Splits:
    """Read the parts of a folder, under the names of the official files, of the subset, or train, dev and test."""
    return {part: read_file(path) for part, path in files_in(folder, PARTS).items()}


def read_file(path: Path) -> list[Example]:
    """Read the pairs of one file that have a label."""
    examples, skipped = [], 0
    for number, line in read_lines(path):
        if not line.strip():
            continue
        example = _pair(line.rstrip(), f"{path}:{number}")
        if example is None:
            skipped += 1
        else:
            examples.append(example)
    if skipped:
        log.warning("%s: skipped %d pairs without a label, kept %d", path, skipped, len(examples))
    return examples


def _pair(text: str, where: str) -> Example | None:
    """Parse the pair of a line; None if its annotators did not agree."""
    item, place = None, 0
    try:
        item = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = getattr(error, "pos", 0)
    if not isinstance(item, dict):
        found = f"{text[place : place + 30]!r} at column {place + 1}"
        raise DataError(f"{where}: found {found}; expected a JSON object with {', '.join(FIELDS)}")
    for name in FIELDS:
        if not isinstance(item.get(name), str):
            what = f"{name} {item[name]!r}" if name in item else f"no {name}"
            raise DataError(f"{where}: found {what}; expected a string for each of {', '.join(FIELDS)}")
    label = item["gold_label"]
    if label == NO_LABEL:
        return None
    if label not in LABELS:
        raise DataError(f"{where}: found gold_label {label!r}; expected {', '.join(LABELS)}, or {NO_LABEL} for none")
    pair = tokens(item["sentence1"]), tokens(item["sentence2"])
    for name, sentence in zip(FIELDS[1:], pair, strict=True):
        if not sentence:
            raise DataError(f"{where}: found {name} {item[name]!r}; expected a sentence")
    return Example(pair, label)


def tokens(text: str) -> Tokens:
    """Tokenize a text that is raw, or already tokenized by the rules of the Penn Treebank or of Moses.

    The training files are raw; dev and test may be tokenized like the Penn Treebank. Moses would split such text again:
    "women 's" into "women ' s", "is n't" into "is n 't", and it would leave the quotes `` and ''. So suffixes are
    attached to their word again first, and quotes become plain. The same sentence then has the same tokens in all
    files: those of the corpora that biLMs are trained on.
    """
    return tuple(words(_SPLIT_OFF.sub(r"\1", _PENN_QUOTE.sub('"', text))))


def labels(examples: Sequence[Example]) -> list[str]:
    """Return the three labels, whatever the examples are."""
    return list(LABELS)


def parse(item: Any) -> Example:
    """Parse a pair: an object with "sentence1" and "sentence2" or with "premise" and "hypothesis", or a list of two.

    Each side is a text or a list of tokens. A line of text has a tab between its two sides.
    """
    sides = item
    if isinstance(item, dict):
        sides = next(
            ([item[a], item[b]] for a, b in (FIELDS[1:], ("premise", "hypothesis")) if a in item and b in item), None
        )
    elif isinstance(item, str):
        sides = item.split("\t")
    if isinstance(sides, list | tuple) and len(sides) == 2:
        pair = tuple(_side(side) for side in sides)
        if all(pair):
            return Example(pair)
    raise DataError(
        f"{item!r}: expected premise and hypothesis, with a tab between them, as a list, or as an object with "
        f"'sentence1' and 'sentence2' or 'premise' and 'hypothesis'"
    )


def _side(side: Any) -> Tokens:
    """Return the tokens of a text or of a list; none if it is neither."""
    if isinstance(side, str):
        return tokens(side)
    listed = tuple(side) if isinstance(side, list | tuple) else ()
    return listed if all(isinstance(token, str) and token for token in listed) else ()


def to_json(example: Example, label: str) -> dict[str, Any]:
    """Return the tokens of both sentences, and the label."""
    premise, hypothesis = example.texts
    return {"premise": list(premise), "hypothesis": list(hypothesis), "label": label}
