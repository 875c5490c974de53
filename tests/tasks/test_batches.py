"""Batches of an epoch, and answers in the order of the examples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from elmo.tasks.batches import answers, batches
from elmo.tasks.examples import Example
from elmo.tasks.task import TaskModel


def test_an_epoch_reads_every_example_once_in_batches_of_about_one_length() -> None:
    rng = np.random.default_rng(0)
    examples = [Example((("w",) * int(rng.integers(1, 60)),)) for _ in range(1001)]
    groups = batches(examples, 10, np.random.default_rng(1))
    assert sorted(row for group in groups for row in group) == list(range(1001))
    assert [len(group) for group in groups].count(10) == 100
    spans = [max(lengths) / min(lengths) for lengths in ([len(examples[r].texts[0]) for r in g] for g in groups)]
    assert np.median(spans) < 1.4
    assert groups != batches(examples, 10, np.random.default_rng(2))


class Lengths(TaskModel):
    """Answers with the number of tokens, and remembers its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[int]] = []

    def loss(self, examples: Sequence[Example]) -> Tensor:
        raise NotImplementedError

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        assert not self.training
        self.batches.append([sum(map(len, example.texts)) for example in examples])
        return self.batches[-1]


def test_answers_are_in_the_order_of_the_examples_whose_number_of_texts_may_differ() -> None:
    rng = np.random.default_rng(3)
    texts = [tuple(("w",) * int(rng.integers(1, 9)) for _ in range(int(rng.integers(1, 4)))) for _ in range(23)]
    lengths = [sum(map(len, some)) for some in texts]
    model = Lengths().train()
    assert answers(model, [Example(some) for some in texts], 5) == lengths
    assert model.training
    assert [len(batch) for batch in model.batches] == [5, 5, 5, 5, 3]
    assert [length for batch in model.batches for length in batch] == sorted(lengths, reverse=True)
