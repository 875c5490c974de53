"""DATA FOLDERS, SENTENCES AND FILES OF PREDICTIONS: what the readers of several tasks share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.tasks.examples import Example
from elmo.text.tokens import words


def files_in(folder: Path, names: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Find the file of each part of a data folder, under the first of its names that exists."""
    found = {
        part: next((folder / name for name in some if (folder / name).is_file()), None) for part, some in names.items()
    }
    if not any(found.values()):
        expected = ", ".join(name for some in names.values() for name in some)
        raise DataError(f"{folder}: contains no file of the task; expected some of {expected}")
    return {part: path for part, path in found.items() if path is not None}


def answers_for(gold: Sequence[Example], predicted: Sequence[Example], path: Path) -> list[Any]:
    """Return the answers in a file of predictions, after checking that it has the texts of the gold examples."""
    for number, (wanted, found) in enumerate(zip(gold, predicted, strict=False), start=1):
        if wanted.texts != found.texts:
            raise DataError(
                f"{path}: item {number} is {_beginning(found)!r}; expected {_beginning(wanted)!r}, as in the gold file"
            )
    if len(gold) != len(predicted):
        raise DataError(f"{path}: number of items: {len(predicted)}; expected {len(gold)}, as in the gold file")
    return [example.gold for example in predicted]


def _beginning(example: Example) -> str:
    return " ".join([token for text in example.texts for token in text][:12])


def parse_sentence(item: Any) -> Example:
    """Parse raw text, a list of tokens, or an object with one of them as "text" or "tokens"."""
    given = (item.get("tokens") or item.get("text")) if isinstance(item, dict) else item
    if isinstance(given, str):
        given = words(given)
    if not isinstance(given, list | tuple) or not given or not all(isinstance(word, str) and word for word in given):
        raise DataError(f"{item!r}: expected a sentence, a list of tokens, or an object with 'text' or 'tokens'")
    return Example((tuple(given),))
