"""CoNLL COLUMNS ─▶ SENTENCES WITH ENTITIES: a token and its tags on each line, a blank line between sentences.

The last column is the tag of the entity, in IOB1 (the original CoNLL-2003), IOB2, BIOES or BIOUL. In the code an entity
is a span.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from elmo.errors import ConfigError, DataError
from elmo.tasks.columns import bio_tags, columns_of, sentences_of
from elmo.tasks.examples import Example, Splits
from elmo.tasks.reading import answers_for, files_in

PARTS = {
    "train": ("train.txt", "eng.train", "train.conll", "wnut17train.conll"),
    "dev": ("dev.txt", "valid.txt", "eng.testa", "dev.conll", "emerging.dev.conll"),
    "test": ("test.txt", "eng.testb", "test.conll", "emerging.test.annotated"),
}
_TAG = re.compile("O|[BIELSU]-.+")


class Span(NamedTuple):
    """An entity: the tokens from `start` up to and without `end`."""

    start: int
    end: int
    type: str


def read(folder: Path) -> Splits:
    """Read the parts of a folder, under the names of CoNLL-2003, of WNUT-17, or train, dev and test."""
    return {part: read_file(path) for part, path in files_in(folder, PARTS).items()}


def read_file(path: Path) -> list[Example]:
    """Read the sentences of one file."""
    examples = []
    for first, lines in sentences_of(path, "-DOCSTART-"):
        tokens, tags = [], []
        for number, line in enumerate(lines, first):
            columns = columns_of(line)
            if len(columns) < 2 or not columns[0]:
                raise DataError(f"{path}:{number}: {line!r}; expected a token and, in the last column, its tag")
            tokens.append(columns[0])
            tags.append(columns[-1].strip())
            if not _TAG.fullmatch(tags[-1]):
                raise DataError(f"{path}:{number}: tag {tags[-1]!r}; expected O, or B-, I-, … and a type")
        examples.append(Example((tuple(tokens),), tuple(spans_of(tags))))
    return examples


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the entities of a sequence of tags, by the rules of conlleval, also where the tags are inconsistent.

    An entity begins at B, S or U; at any other tag if its type is not that of the tag before, or if that is O, E, L, S
    or U. It ends where the next one begins, or at O.
    """
    spans: list[Span] = []
    start, kind, before = 0, None, "O"
    for place, tag in enumerate([*tags, "O"]):
        mark, _, type_ = tag.partition("-")
        begins = tag != "O" and (mark in "BSU" or type_ != kind or before in "OELSU")
        if kind is not None and (tag == "O" or begins):
            spans.append(Span(start, place, kind))
            kind = None
        if begins:
            start, kind = place, type_
        before = mark
    return spans


def tags_of(spans: Sequence[Span], length: int) -> list[str]:
    """Return BIOUL tags: begin, inside and last token of an entity, outside of any, an entity of one token (unit)."""
    tags = ["O"] * length
    for start, end, kind in spans:
        if end - start == 1:
            tags[start] = f"U-{kind}"
        else:
            tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 2), f"L-{kind}"]
    return tags


def read_predictions(path: Path, gold: Sequence[Example]) -> list[Sequence[Span]]:
    """Read the entities of a file with the same tokens, and the predicted tag in the last column."""
    return answers_for(gold, read_file(path), path)


def write_predictions(file: IO[str], examples: Sequence[Example], answers: Sequence[Sequence[Span]]) -> None:
    """Write the columns that conlleval reads: token, gold tag, predicted tag, in IOB2.

    Spaces are between the columns, or tabs if there are spaces in a token or a type.
    """
    sentences = []
    for example, spans in zip(examples, answers, strict=True):
        (tokens,) = example.texts
        tags = (bio_tags(some, len(tokens)) for some in (example.gold, spans))
        sentences.append(list(zip(tokens, *tags, strict=True)))
    between = "\t" if any(" " in column for rows in sentences for row in rows for column in row) else " "
    for rows in sentences:
        file.writelines(f"{between.join(row)}\n" for row in rows)
        file.write("\n")


def labels(examples: Sequence[Example]) -> list[str]:
    """Return O, and four tags for every type of entity."""
    types = sorted({span.type for example in examples for span in example.gold})
    return ["O", *(f"{mark}-{kind}" for kind in types for mark in "BIUL")]


def refuse_unknown_tags(labels: Sequence[str]) -> None:
    """Refuse labels that are not BIOUL tags, such as those of a damaged file."""
    for label in labels:
        if label != "O" and (label[:1] not in ("B", "I", "U", "L") or label[1:2] != "-"):
            raise ConfigError(f"labels: {label[:40]!r}; expected O, or B-, I-, U- or L- and a type")


def legal(before: str | None, after: str | None) -> bool:
    """Return whether a BIOUL tag may follow another: an entity that begins must end, with tags of its own type."""
    inside = before is not None and before[0] in "BI"
    if after is None or after[0] not in "IL":
        return not inside
    return inside and before is not None and before[2:] == after[2:]


def to_json(example: Example, spans: Sequence[Span]) -> dict[str, Any]:
    """Return the tokens, their IOB2 tags, and the entities."""
    (tokens,) = example.texts
    tags = bio_tags(spans, len(tokens))
    entities = [{"type": kind, "start": a, "end": b, "text": " ".join(tokens[a:b])} for a, b, kind in spans]
    return {"tokens": list(tokens), "tags": tags, "entities": entities}
