"""A model and its optimizer: one step by hand, learning rates, the average of the weights, saving and restoring."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elmo.tasks.examples import Example
from elmo.tasks.learner import Learner
from elmo.tasks.task import TaskModel
from elmo.tasks.train_config import TrainConfig


class Line(TaskModel):
    """Two weights of its own, two of a "biLM", and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.fixed = nn.Parameter(torch.tensor([5.0]), requires_grad=False)
        self.inputs = nn.Module()  # type: ignore[assignment]
        self.inputs.bilm = nn.Module()  # type: ignore[assignment]
        self.inputs.bilm.weight = nn.Parameter(torch.tensor([3.0, 4.0]))  # type: ignore[union-attr]

    def loss(self, examples: Sequence[Example]) -> Tensor:
        return (self.own.square().sum() + self.inputs.bilm.weight.square().sum()) / 2  # type: ignore[union-attr,operator]

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        return []


def weights(learner: Learner) -> list[float]:
    return [value for p in learner.model.parameters() if p.requires_grad for value in p.tolist()]


def steps(learner: Learner, first: int, last: int) -> None:
    for number in range(first, last):
        torch.autograd.backward(learner.model.loss([]))
        learner.step(number)


def test_the_first_steps_of_adam_by_hand() -> None:
    """Adam's first step is the learning rate times the sign of the gradient; that of a biLM has its own rate."""
    learner = Learner(Line(), TrainConfig(learning_rate=0.1), bilm_learning_rate=0.01)
    learner.set_learning_rate(0.1)
    steps(learner, 0, 1)
    assert weights(learner) == pytest.approx([0.9, -1.9, 2.99, 3.99], abs=1e-6)
    learner.set_learning_rate(0.05)  # halved: the biLM's, too
    before = weights(learner)
    steps(learner, 1, 2)
    moved = [a - b for a, b in zip(before, weights(learner), strict=True)]
    assert moved[0] == pytest.approx(0.05, rel=0.02) and moved[2] == pytest.approx(0.005, rel=0.02)


@pytest.mark.parametrize(
    ("clip", "gradient"),
    [
        ({"clip_norm": 1.0}, [v / 30**0.5 for v in (1, -2, 3, 4)]),
        ({"clip_norm": None, "clip_value": 2.5}, [1, -2, 2.5, 2.5]),
        ({"clip_norm": 1.0, "clip_value": 2.5}, [v / (1 + 4 + 12.5) ** 0.5 for v in (1, -2, 2.5, 2.5)]),
    ],
)
def test_gradients_are_clipped_by_value_then_by_norm(clip: dict[str, Any], gradient: list[float]) -> None:
    """Adadelta's first step is −lr √ε / √(0.05 g² + ε) · g: it shows the gradient."""
    learner = Learner(Line(), TrainConfig(optimizer="adadelta", learning_rate=1.0, rho=0.95, **clip))
    before = weights(learner)
    steps(learner, 0, 1)
    for value, start, g in zip(weights(learner), before, gradient, strict=True):
        assert start - value == pytest.approx((1e-6) ** 0.5 / (0.05 * g * g + 1e-6) ** 0.5 * g, rel=1e-3)


def test_an_independent_part_is_clipped_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adadelta's average of squared gradients is 0.05 g² after one step."""
    monkeypatch.setattr(Line, "independent", ("own",))
    learner = Learner(Line(), TrainConfig(optimizer="adadelta", learning_rate=1.0, rho=0.95, clip_norm=1.0))
    steps(learner, 0, 1)
    tensors = learner.tensors()
    squares = [tensors[f"optimizer.{name}.square_avg"].tolist() for name in ("own", "inputs.bilm.weight")]
    assert squares[0] == pytest.approx([0.05 * 1 / 5, 0.05 * 4 / 5], rel=1e-4)
    assert squares[1] == pytest.approx([0.05 * 9 / 25, 0.05 * 16 / 25], rel=1e-4)


def test_the_average_takes_the_place_of_the_weights_inside_the_context() -> None:
    learner = Learner(Line(), TrainConfig(learning_rate=0.1, ema=0.15))
    seen = [weights(learner)]
    for number in range(2):
        steps(learner, number, number + 1)
        seen.append(weights(learner))
    first = [0.1 * a + 0.9 * b for a, b in zip(seen[0], seen[1], strict=True)]  # 1 / 10 is less than 0.15
    with learner.averaged():
        assert weights(learner) == pytest.approx([0.15 * a + 0.85 * b for a, b in zip(first, seen[2], strict=True)])
    assert weights(learner) == seen[2]
    with pytest.raises(KeyboardInterrupt), learner.averaged():
        raise KeyboardInterrupt
    assert weights(learner) == seen[2]


def test_without_an_average_the_context_changes_nothing() -> None:
    learner = Learner(Line(), TrainConfig())
    with learner.averaged():
        assert weights(learner) == [1.0, -2.0, 3.0, 4.0]


@pytest.mark.parametrize("optimizer", ["adam", "adadelta"])
def test_a_restored_learner_continues_bit_for_bit(optimizer: str) -> None:
    config = TrainConfig(optimizer=optimizer, learning_rate=0.1, ema=0.9)  # type: ignore[arg-type]
    one, other = Learner(Line(), config), Learner(Line(), config)
    steps(one, 0, 3)
    tensors = {name: value.clone() for name, value in one.tensors().items()}
    assert "model.fixed" not in tensors
    other.restore(tensors)
    for learner in (one, other):
        steps(learner, 3, 6)
    assert weights(one) == weights(other)
    assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())
    other.restore_weights(tensors)
    assert weights(other) != weights(one)


@pytest.mark.parametrize("bilm_learning_rate", [None, 0.01])
def test_a_checkpoint_survives_another_order_of_parameters(bilm_learning_rate: float | None) -> None:
    class Reversed(Line):
        def named_parameters(self, *arguments: Any, **settings: Any) -> Any:
            return reversed(list(super().named_parameters(*arguments, **settings)))

    config = TrainConfig(learning_rate=0.1, ema=0.9)
    one, other = Learner(Line(), config, bilm_learning_rate), Learner(Reversed(), config, bilm_learning_rate)
    steps(one, 0, 3)
    other.restore({name: value.clone() for name, value in one.tensors().items()})
    for learner in (one, other):
        steps(learner, 3, 6)
    assert one.tensors().keys() == other.tensors().keys()
    assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())


def test_tensors_that_do_not_fit_are_named() -> None:
    learner = Learner(Line(), TrainConfig())
    tensors = learner.tensors()
    with pytest.raises(ValueError, match=r"^size mismatch for own: "):
        learner.restore({**tensors, "model.own": torch.zeros(3)})
    with pytest.raises(KeyError, match="no tensor 'own'"):
        learner.restore({name: value for name, value in tensors.items() if name != "model.own"})
