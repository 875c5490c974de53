"""CoNLL-U ─▶ SENTENCES WITH TAGS: Universal Dependencies; the fifth column is the Penn tag of a token."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.tasks.examples import Example, Splits
from elmo.text.reader import read_lines


def read(folder: Path) -> Splits:
    found = {part: sorted(folder.glob(f"*-{part}.conllu")) for part in ("train", "dev", "test")}
    if not any(found.values()):
        raise DataError(f"{folder}: contains no …-train.conllu, …-dev.conllu or …-test.conllu")
    return {part: [example for path in paths for example in read_file(path)] for part, paths in found.items() if paths}


def read_file(path: Path) -> list[Example]:
    examples: list[Example] = []
    tokens: list[str] = []
    tags: list[str] = []
    for number, line in [*read_lines(path), (0, "")]:
        columns = line.split("\t")
        if not line and tokens:
            examples.append(Example((tuple(tokens),), tuple(tags)))
            tokens, tags = [], []
        elif line and not line.startswith("#"):
            if len(columns) != 10:
                raise DataError(f"{path}:{number}: {len(columns)} columns; expected the ten of CoNLL-U")
            if columns[0].isdecimal():  # skip 1-2, a token of two words, and 1.1, a word that is not in the text
                tokens.append(columns[1])
                tags.append(columns[4])
    return examples


def labels(examples: Sequence[Example]) -> list[str]:
    return sorted({tag for example in examples for tag in example.gold})


def to_json(example: Example, tags: Sequence[str]) -> dict[str, Any]:
    return {"tokens": list(example.texts[0]), "tags": list(tags)}
