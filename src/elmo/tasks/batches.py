"""EXAMPLES ─▶ BATCHES ─▶ ANSWERS: in training and in prediction."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from elmo.tasks.inputs import Texts
from elmo.tasks.task import Example, Splits, TaskModel

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fraction(examples: Sequence[Example], share: float, seed: int) -> Sequence[Example]:
    """A random share of the training part, drawn with the seed."""
    if share == 1:
        return examples
    count = max(1, round(share * len(examples)))
    rows = np.random.default_rng([seed, len(examples)]).choice(len(examples), count, replace=False)
    return [examples[row] for row in sorted(rows)]


def fingerprint(splits: Splits) -> str:
    """What tells the data from other data: every text and every gold answer, in order."""
    digest = hashlib.sha256()
    for part, examples in splits.items():
        digest.update(f"{part} {len(examples)}\x1d".encode())
        for example in examples:
            gold = repr(example.gold)
            if " at 0x" in gold:  # an object without a repr of its own: its address is not its content
                gold = _ADDRESS.sub("", gold)
            texts = "\x1e".join("\x1f".join(text) for text in example.texts)
            digest.update(f"{texts}\x1d{gold}\x1d".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def words_in(examples: Sequence[Example], lowercase: bool) -> Counter[str]:
    """Count the words."""
    words = (word for example in examples for text in example.texts for word in text)
    return Counter(word.lower() for word in words) if lowercase else Counter(words)


def batches(examples: Sequence[Example], size: int, rng: np.random.Generator) -> list[list[int]]:
    """The batches of an epoch, in random order: rows of examples of about equal length."""
    lengths = np.array([sum(map(len, example.texts)) for example in examples], dtype=float)
    order = np.argsort(lengths * rng.uniform(0.9, 1.1, len(lengths)), kind="stable")
    groups = [order[first : first + size].tolist() for first in range(0, len(order), size)]
    return [groups[k] for k in rng.permutation(len(groups))]


def texts_of(model: TaskModel, examples: Sequence[Example], device: torch.device) -> list[Texts]:
    """A batch's first sequences, its second, …, as the model reads them."""
    columns = zip(*(example.texts for example in examples), strict=True)
    return [model.inputs.texts(column).to(device) for column in columns]


@torch.no_grad()
def answers(model: TaskModel, examples: Sequence[Example], batch_size: int, device: torch.device) -> list[Any]:
    """An answer for each example, in order; batches are of about equal length."""
    was_training = model.training
    model.eval()
    order = sorted(range(len(examples)), key=lambda row: -sum(map(len, examples[row].texts)))
    found: dict[int, Any] = {}
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        given = model.answers(texts_of(model, [examples[row] for row in rows], device))
        found.update(zip(rows, given, strict=True))
    model.train(was_training)
    return [found[row] for row in range(len(examples))]
