"""THE TEXT OF A TASK'S TRAINING PART: what a biLM is fine-tuned on (paper, appendix A.1).

Text that is given as tokens is used as it is; other text is tokenized.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.tasks.ner import data as ner
from elmo.tasks.reading import files_in
from elmo.tasks.snli import data as snli
from elmo.tasks.sst import data as sst
from elmo.text.reader import read_lines


@dataclass(frozen=True)
class TextKind:
    """How the text of a dataset is read, and how `prepare` takes it."""

    read: Callable[[Path], Iterator[str]]  # a folder of data ─▶ lines
    sentences: str = "lines"  # or "split": a line has several sentences
    tokenizer: str = "moses"  # or "whitespace"


def _snli(folder: Path) -> Iterator[str]:
    for _, line in read_lines(_train(folder, snli.PARTS["train"])):
        pair = json.loads(line)
        yield from (pair["sentence1"], pair["sentence2"])


def _entities(folder: Path) -> Iterator[str]:
    return (" ".join(example.texts[0]) for example in ner.read_file(_train(folder, ner.PARTS["train"])))


def _sst(folder: Path) -> Iterator[str]:
    return (" ".join(example.texts[0]) for example in sst.read_file(_train(folder, sst.PARTS["train"]), phrases=False))


def _paragraphs(folder: Path) -> Iterator[dict[str, Any]]:
    paths = sorted(folder.glob("train*.json"))
    if len(paths) != 1:
        raise DataError(f"{folder}: number of files train*.json: {len(paths)}; expected 1, in the format of SQuAD")
    for article in json.loads(paths[0].read_text(encoding="utf-8"))["data"]:
        yield from article["paragraphs"]


def _contexts(folder: Path) -> Iterator[str]:
    return (" ".join(paragraph["context"].split()) for paragraph in _paragraphs(folder))


def _questions(folder: Path) -> Iterator[str]:
    return (" ".join(one["question"].split()) for paragraph in _paragraphs(folder) for one in paragraph["qas"])


def _train(folder: Path, names: tuple[str, ...]) -> Path:
    return files_in(folder, {"train": names})["train"]


KINDS = {
    "snli": TextKind(_snli),
    "entities": TextKind(_entities, tokenizer="whitespace"),
    "contexts": TextKind(_contexts, sentences="split"),
    "questions": TextKind(_questions),
    "sst": TextKind(_sst, tokenizer="whitespace"),
}
