"""One label per example: the loss and the answers by hand, from given scores."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from elmo.tasks.classifier import Classifier
from elmo.tasks.examples import Example

LABELS = ["low", "middle", "high"]
SCORES = {"a": [2.0, 1.0, 0.0], "b": [0.0, 0.0, 3.0], "c": [1.0, 1.5, 1.0]}


class Table(Classifier):
    """Looks up the scores of a word."""

    def __init__(self) -> None:
        super().__init__(nn.Module(), LABELS)  # type: ignore[arg-type]
        self.bias = nn.Parameter(torch.zeros(3))

    def prepare_texts(self, examples: Sequence[Example], *, recorded: bool = False) -> Tensor:
        return torch.tensor([SCORES[example.texts[0][0]] for example in examples])

    def scores_of(self, texts: Tensor) -> Tensor:
        return texts + self.bias


def examples(*gold: tuple[str, str]) -> list[Example]:
    return [Example(((word,),), label) for word, label in gold]


def test_the_loss_is_the_mean_of_minus_log_p() -> None:
    batch = examples(("a", "low"), ("b", "middle"), ("c", "high"))
    expected = [
        -math.log(math.exp(SCORES[word][place]) / sum(map(math.exp, SCORES[word])))
        for word, place in (("a", 0), ("b", 1), ("c", 2))
    ]
    assert Table().loss(batch).item() == pytest.approx(sum(expected) / 3)


def test_the_gradient_is_p_minus_the_gold_label() -> None:
    model = Table()
    torch.autograd.backward(model.loss(examples(("a", "middle"))))
    total = sum(map(math.exp, SCORES["a"]))
    expected = [math.exp(score) / total - (place == 1) for place, score in enumerate(SCORES["a"])]
    assert model.bias.grad is not None
    assert model.bias.grad.tolist() == pytest.approx(expected, abs=1e-5)


def test_the_answer_is_the_label_with_the_highest_score() -> None:
    assert Table().answers(examples(("b", "low"), ("c", "low"), ("a", "low"))) == ["high", "middle", "low"]
