"""EXAMPLES ─▶ BATCHES of about equal length, in training and in use."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from elmo.tasks.examples import Example
from elmo.tasks.task import TaskModel


def batches(examples: Sequence[Example], size: int, rng: np.random.Generator) -> list[list[int]]:
    """Divide an epoch into batches: rows of examples of about equal length, in random order."""
    lengths = np.array([_length(example) for example in examples], dtype=float)
    order = np.argsort(lengths * rng.uniform(0.9, 1.1, len(lengths)), kind="stable")
    groups = [order[first : first + size].tolist() for first in range(0, len(order), size)]
    return [groups[k] for k in rng.permutation(len(groups))]


@torch.no_grad()
def answers(model: TaskModel, examples: Sequence[Example], batch_size: int) -> list[Any]:
    """Predict an answer for each example, in order; the batches are of about equal length."""
    was_training = model.training
    model.eval()
    order = sorted(range(len(examples)), key=lambda row: -_length(examples[row]))
    predicted: dict[int, Any] = {}
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        predicted.update(zip(rows, model.answers([examples[row] for row in rows]), strict=True))
    model.train(was_training)
    return [predicted[row] for row in range(len(examples))]


def _length(example: Example) -> int:
    return sum(map(len, example.texts))
