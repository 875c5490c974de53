"""The state of an optimizer by parameter name: restored in another order, by several optimizers; what is refused."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmo.training.optimizer_state import restore_state, state_tensors

NAMES = ("encoder.weight", "bias", "scores.weight")
GRADIENTS = np.random.default_rng(3).normal(size=(6, 3, 4))  # step, parameter, values


def parameters() -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(torch.full((4,), float(k + 1))) for k, name in enumerate(NAMES)}


def by_parameter(named: dict[str, nn.Parameter]) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in named.items()}


def run(optimizer: torch.optim.Optimizer, named: dict[str, nn.Parameter], steps: range) -> None:
    for step in steps:
        for number, name in enumerate(NAMES):
            named[name].grad = torch.tensor(GRADIENTS[step, number], dtype=torch.float32)
        optimizer.step()


def adam(step_size: float, steps: int, number: int) -> list[float]:
    """Kingma & Ba, 2015, algorithm 1, in float64."""
    weight, m, v = np.full(4, number + 1.0), np.zeros(4), np.zeros(4)
    for step in range(steps):
        gradient = GRADIENTS[step, number]
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        weight -= step_size * (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
    found: list[float] = weight.tolist()
    return found


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_parameters_in_another_order_get_their_own_state(order: Sequence[int]) -> None:
    first = parameters()
    optimizer = torch.optim.Adam(first.values(), 0.1)
    run(optimizer, first, range(3))
    saved = {name: value.clone() for name, value in state_tensors(optimizer, by_parameter(first)).items()}
    then = {NAMES[k]: nn.Parameter(first[NAMES[k]].detach().clone()) for k in order}
    groups = [{"params": [then[NAMES[order[0]]]]}, {"params": [then[NAMES[k]] for k in order[1:]]}]
    resumed = torch.optim.Adam(groups, 0.1)
    restore_state(resumed, by_parameter(then), saved)
    run(resumed, then, range(3, 6))
    for number, name in enumerate(NAMES):
        assert then[name].tolist() == pytest.approx(adam(0.1, 6, number), abs=1e-5)
    run(optimizer, first, range(3, 6))
    assert all(torch.equal(then[name], first[name]) for name in NAMES)


@pytest.mark.parametrize(
    ("make", "quantities"),
    [
        (lambda p: torch.optim.Adam(p, 0.1), {"step", "exp_avg", "exp_avg_sq"}),
        (lambda p: torch.optim.Adadelta(p, 0.1), {"step", "square_avg", "acc_delta"}),
        (lambda p: torch.optim.Adagrad(p, 0.1), {"step", "sum"}),
    ],
)
def test_names_are_parameter_and_quantity(make: Callable[[Any], torch.optim.Optimizer], quantities: set[str]) -> None:
    named = parameters()
    optimizer = make(named.values())
    run(optimizer, named, range(2))
    saved = state_tensors(optimizer, by_parameter(named))
    assert saved.keys() == {f"{name}.{quantity}" for name in NAMES for quantity in quantities}
    assert {float(value) for name, value in saved.items() if name.endswith(".step")} == {2.0}


def test_each_of_two_optimizers_takes_its_own() -> None:
    named = parameters()
    names = by_parameter(named)
    one = torch.optim.Adam([named["bias"]], 0.1)
    other = torch.optim.Adam([named["encoder.weight"], named["scores.weight"]], 0.1)
    for optimizer in (one, other):
        run(optimizer, named, range(1))
    saved = {**state_tensors(one, names), **state_tensors(other, names)}
    for optimizer, own in ((one, ["bias"]), (other, ["encoder.weight", "scores.weight"])):
        optimizer.state.clear()
        restore_state(optimizer, names, saved)
        assert [names[parameter] for parameter in optimizer.state] == own


def test_a_count_of_steps_stays_an_integer() -> None:
    """SparseAdam counts its steps in an integer."""
    table = nn.Parameter(torch.zeros(5, 2))
    optimizer = torch.optim.SparseAdam([table], 0.1)
    for _ in range(3):
        table.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 2), (5, 2), check_invariants=True)
        optimizer.step()
    saved = state_tensors(optimizer, {table: "table"})
    optimizer.state.clear()
    restore_state(optimizer, {table: "table"}, saved)
    assert optimizer.state[table]["step"] == 3
    assert type(optimizer.state[table]["step"]) is int


def test_a_state_of_an_unknown_parameter_is_refused() -> None:
    named = parameters()
    optimizer = torch.optim.Adam(named.values(), 0.1)
    with pytest.raises(KeyError, match=r"optimizer state of 'decoder\.weight', which is not trained"):
        restore_state(optimizer, by_parameter(named), {"decoder.weight.exp_avg": torch.zeros(4)})
