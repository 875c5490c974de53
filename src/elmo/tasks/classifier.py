"""A MODEL THAT PREDICTS ONE LABEL PER EXAMPLE: its loss and its answers, from the scores of all labels."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from elmo.tasks.examples import Example
from elmo.tasks.inputs import Inputs
from elmo.tasks.prepared import on_device
from elmo.tasks.task import PreparedModel


@dataclass(frozen=True)
class Labelled:
    """A prepared batch with gold answers."""

    texts: Any  # for `Classifier.scores_of`
    labels: Tensor  # (B,) numbers


class Classifier(PreparedModel):
    """The base class of models whose gold answer is one of K labels."""

    def __init__(self, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        self.inputs = inputs
        self.labels = labels
        self._numbers = {label: number for number, label in enumerate(labels)}

    @abstractmethod
    def prepare_texts(self, examples: Sequence[Example], *, recorded: bool = False) -> Any:
        """Return the tensors of the texts of a batch, on the CPU; `recorded` as in `prepare`."""

    @abstractmethod
    def scores_of(self, texts: Any) -> Tensor:
        """Compute the score of every label for each example, (B, K), from prepared texts on the device."""

    def score_labels(self, examples: Sequence[Example]) -> Tensor:
        """Compute the score of every label for each example, (B, K)."""
        return self.scores_of(on_device(self.prepare_texts(examples), self.device))

    def prepare(self, examples: Sequence[Example], *, recorded: bool = False) -> Labelled:
        """Prepare the texts and the gold labels."""
        labels = torch.tensor([self._numbers[example.gold] for example in examples])
        return Labelled(self.prepare_texts(examples, recorded=recorded), labels)

    def loss_of(self, batch: Labelled) -> Tensor:
        """Compute −log p of the gold labels, the mean over examples."""
        return functional.cross_entropy(self.scores_of(batch.texts), batch.labels)

    def answers(self, examples: Sequence[Example]) -> list[str]:
        """Return the label with the highest score for each example."""
        return [self.labels[number] for number in self.score_labels(examples).argmax(dim=1).tolist()]
