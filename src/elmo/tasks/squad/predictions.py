"""THE PREDICTION FILE that SQuAD's official script reads: one JSON object, {question id: answer text}."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from elmo.errors import DataError
from elmo.messages import counted
from elmo.tasks.examples import Example
from elmo.tasks.squad.data import Answer, read_json

log = logging.getLogger("elmo")


def read_predictions(path: Path, examples: Sequence[Example]) -> list[Answer | None]:
    """Read an answer for each question of a gold file; None where there is none, with a warning.

    As in the official script, a question without an answer counts as wrong, and answers to other questions do not
    count. A file without an answer to any of the questions is refused.
    """
    content = read_json(path)
    expected = "expected a JSON object with a text for each question id"
    if not isinstance(content, dict):
        raise DataError(f"{path}: found {type(content).__name__}; {expected}")
    for id, text in content.items():
        if not isinstance(text, str):
            raise DataError(f"{path}: found {text!r:.40} for the question {id!r}; {expected}")
    ids = [_id(example) for example in examples]
    missing = sum(id not in content for id in ids)
    other = len(content) - (len(ids) - missing)
    if missing == len(ids):
        raise DataError(f"{path}: answers none of the {len(ids):,} questions; are these the answers to another file?")
    if missing:
        log.warning("%s: no answer to %d of %d questions, which count as wrong", path, missing, len(ids))
    if other:
        log.warning("%s: ignored %s to other questions", path, counted(other, "answer"))
    return [Answer(content[id]) if id in content else None for id in ids]


def write_predictions(file: IO[str], examples: Sequence[Example], answers: Sequence[Answer | None]) -> None:
    """Write the answers to the questions of a gold file."""
    pairs = zip(examples, answers, strict=True)
    texts = {_id(example): answer.text for example, answer in pairs if answer is not None}
    file.write(json.dumps(texts, indent=0) + "\n")


def _id(example: Example) -> str:
    id: str = vars(example)["id"]
    return id
