"""A MODEL THAT PREDICTS ONE LABEL PER EXAMPLE: its loss and its answers, from the scores of all labels."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from elmo.model.device import to_device
from elmo.tasks.examples import Example
from elmo.tasks.inputs import Inputs
from elmo.tasks.task import TaskModel


class Classifier(TaskModel):
    """The base class of models whose gold answer is one of K labels."""

    def __init__(self, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        self.inputs = inputs
        self.labels = labels
        self._numbers = {label: number for number, label in enumerate(labels)}

    @abstractmethod
    def scores_of(self, examples: Sequence[Example]) -> Tensor:
        """Compute the score of every label for each example, (B, K)."""

    def loss(self, examples: Sequence[Example]) -> Tensor:
        """Compute −log p of the gold labels, the mean over examples."""
        scores = self.scores_of(examples)
        labels = torch.tensor([self._numbers[example.gold] for example in examples])
        return functional.cross_entropy(scores, to_device(labels, scores.device))

    def answers(self, examples: Sequence[Example]) -> list[str]:
        """Return the label with the highest score for each example."""
        return [self.labels[number] for number in self.scores_of(examples).argmax(dim=1).tolist()]
