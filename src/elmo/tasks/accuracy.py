"""TASKS WITH ONE LABEL PER EXAMPLE: accuracy, the share of correct answers, and files with one label per line."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from elmo.errors import DataError
from elmo.tasks.examples import Example
from elmo.tasks.task import PredictionFormat
from elmo.text.reader import read_lines


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Compute the accuracy, in the form that `Task.score` returns."""
    correct = sum(wanted == given for wanted, given in zip(gold, predicted, strict=True))
    return {"accuracy": 100 * correct / len(gold) if gold else 0.0}


def label_lines(read_gold: Callable[[Path], Sequence[Example]], labels: Sequence[str]) -> PredictionFormat:
    """Return the format of a task whose file of predictions has one label per line."""
    return PredictionFormat(read_gold, partial(read_labels, labels=labels), write_labels)


def read_labels(path: Path, gold: Sequence[Example], labels: Sequence[str]) -> list[str]:
    """Read a file of predictions: line N is the label of gold example N."""
    found = [(number, line.strip()) for number, line in read_lines(path)]
    for number, label in found:
        if label not in labels:
            raise DataError(f"{path}:{number}: found {label!r}; expected one label per line: {', '.join(labels)}")
    if len(found) != len(gold):
        raise DataError(f"{path}: number of labels: {len(found)}; expected {len(gold)}, one for each gold example")
    return [label for _, label in found]


def write_labels(file: IO[str], examples: Sequence[Example], answers: Sequence[str]) -> None:
    """Write a file of predictions: line N is the label of example N."""
    file.writelines(f"{label}\n" for label in answers)
