"""Optimisers against their published formulas in NumPy; schedules by hand; a restored one goes on to the same bits."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmo.pretrain.config import OptimizerConfig
from elmo.pretrain.optimizer import Optimizer, learning_rate
from elmo.pretrain.step import clip

Array = NDArray[np.float64]
ROWS, DIM = 9, 3
TOUCHED = [[0, 4, 8], [4], [1, 2, 4, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8], [7], [0, 8]]  # row by step


def parameters(seed: int = 0) -> dict[str, nn.Parameter]:
    """A dense matrix, a large table and the table's bias."""
    torch.manual_seed(seed)
    shapes = {"dense": (4, DIM), "table": (ROWS, DIM), "table_bias": (ROWS,)}
    return {name: nn.Parameter(torch.randn(*shape, dtype=torch.float64)) for name, shape in shapes.items()}


TABLES = {"table", "table_bias"}


def gradients(step: int) -> dict[str, Array]:
    """Dense gradients, zero in the rows of tables that are not touched."""
    rng = np.random.default_rng([7, step])
    found = {"dense": rng.normal(size=(4, DIM)), "table": np.zeros((ROWS, DIM)), "table_bias": np.zeros(ROWS)}
    rows = TOUCHED[step]
    found["table"][rows] = rng.normal(size=(len(rows), DIM))
    found["table_bias"][rows] = rng.normal(size=len(rows))
    return found


def set_gradients(named: dict[str, nn.Parameter], step: int, sparse: bool = True) -> None:
    for name, gradient in gradients(step).items():
        dense = torch.from_numpy(gradient)
        if sparse and name in TABLES:
            rows = torch.tensor(TOUCHED[step])
            named[name].grad = torch.sparse_coo_tensor(
                rows[None], dense[rows], dense.shape, is_coalesced=True, check_invariants=True
            )
        else:
            named[name].grad = dense.clone()


def run(config: OptimizerConfig, rates: Sequence[float], sparse: bool = True) -> list[dict[str, Array]]:
    """The parameters after every step."""
    named = parameters()
    optimizer = Optimizer(config, named.items(), TABLES if sparse else set())
    after = []
    for step, lr in enumerate(rates):
        set_gradients(named, step, sparse)
        optimizer.step(lr)
        after.append({name: parameter.detach().numpy().copy() for name, parameter in named.items()})
    return after


RATES = [0.2, 0.2, 0.1, 0.3, 0.05, 0.2]


def close(found: Sequence[dict[str, Array]], wanted: Sequence[dict[str, Array]]) -> None:
    """To 1e-9: PyTorch's Adagrad adds 1e-10 to the root."""
    for step, (one, other) in enumerate(zip(found, wanted, strict=True)):
        for name in other:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-9, err_msg=f"{name} at {step}")


# Adagrad: Duchi et al., 2011; as TensorFlow has it, the accumulators begin at a constant.


def adagrad(rates: Sequence[float], start: float) -> list[dict[str, Array]]:
    weights = {name: parameter.detach().numpy().copy() for name, parameter in parameters().items()}
    squares = {name: np.full_like(weight, start) for name, weight in weights.items()}
    after = []
    for step, lr in enumerate(rates):
        for name, gradient in gradients(step).items():
            squares[name] += gradient**2
            weights[name] = weights[name] - lr * gradient / np.sqrt(squares[name])
        after.append({name: weight.copy() for name, weight in weights.items()})
    return after


@pytest.mark.parametrize("start", [1.0, 0.1])
@pytest.mark.parametrize("sparse", [True, False])
def test_adagrad_by_rows_is_dense_adagrad(sparse: bool, start: float) -> None:
    config = OptimizerConfig(name="adagrad", initial_accumulator=start)
    close(run(config, RATES, sparse), adagrad(RATES, start))


def test_the_first_step_of_adagrad_by_hand() -> None:
    """Accumulator 1, gradient 3, rate 0.2: 0.2 · 3 / √(1 + 9)."""
    weight = nn.Parameter(torch.tensor([5.0]))
    optimizer = Optimizer(OptimizerConfig(), [("weight", weight)], set())
    weight.grad = torch.tensor([3.0])
    optimizer.step(0.2)
    assert weight.item() == pytest.approx(5.0 - 0.6 / math.sqrt(10.0))


def test_a_row_that_was_not_touched_is_the_same_to_the_bit() -> None:
    for name in ("adagrad", "adam", "adamw"):
        before = parameters()["table"].detach().numpy()
        after = run(OptimizerConfig(name=name), RATES[:2])[-1]["table"]  # type: ignore[arg-type]
        assert [row for row in range(ROWS) if (after[row] != before[row]).any()] == [0, 4, 8]


# Adam: Kingma & Ba, 2015, algorithm 1; decay as in Loshchilov & Hutter, 2019.


def adam(
    rates: Sequence[float], betas: tuple[float, float], decay: float, names: set[str], epsilon: float = 1e-8
) -> list[dict[str, Array]]:
    weights = {name: p.detach().numpy().copy() for name, p in parameters().items() if name in names}
    m, v = ({name: np.zeros_like(weight) for name, weight in weights.items()} for _ in range(2))
    after = []
    for step, lr in enumerate(rates):
        for name in names:
            gradient = gradients(step)[name]
            m[name] = betas[0] * m[name] + (1 - betas[0]) * gradient
            v[name] = betas[1] * v[name] + (1 - betas[1]) * gradient**2
            m_hat = m[name] / (1 - betas[0] ** (step + 1))
            v_hat = v[name] / (1 - betas[1] ** (step + 1))
            weights[name] = weights[name] - lr * (m_hat / (np.sqrt(v_hat) + epsilon) + decay * weights[name])
        after.append({name: weight.copy() for name, weight in weights.items()})
    return after


@pytest.mark.parametrize(("name", "decay"), [("adam", 0.0), ("adamw", 0.3)])
@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.5, 0.8)])
def test_the_dense_part_is_the_textbook_s_adam(name: str, decay: float, betas: tuple[float, float]) -> None:
    config = OptimizerConfig(name=name, betas=betas, weight_decay=0.3)  # type: ignore[arg-type]
    close(run(config, RATES), adam(RATES, betas, decay, {"dense"}))
    close(run(config, RATES, sparse=False), adam(RATES, betas, decay, {"dense", *TABLES}))


def lazy_adam(rates: Sequence[float], betas: tuple[float, float], epsilon: float = 1e-8) -> list[dict[str, Array]]:
    """Row by row: the moments of a row fade when it is touched, the count of steps is the table's."""
    weights = {name: parameters()[name].detach().numpy().copy() for name in TABLES}
    m, v = ({name: np.zeros_like(weight) for name, weight in weights.items()} for _ in range(2))
    after = []
    for step, lr in enumerate(rates):
        for name, weight in weights.items():
            for row in TOUCHED[step]:
                gradient = gradients(step)[name][row]
                m[name][row] = betas[0] * m[name][row] + (1 - betas[0]) * gradient
                v[name][row] = betas[1] * v[name][row] + (1 - betas[1]) * gradient**2
                size = lr * math.sqrt(1 - betas[1] ** (step + 1)) / (1 - betas[0] ** (step + 1))
                weight[row] -= size * m[name][row] / (np.sqrt(v[name][row]) + epsilon)
        after.append({name: weight.copy() for name, weight in weights.items()})
    return after


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_tables_follow_adam_in_the_rows_that_are_touched_and_do_not_decay(name: str) -> None:
    config = OptimizerConfig(name=name, betas=(0.8, 0.95), weight_decay=0.3)  # type: ignore[arg-type]
    close(run(config, RATES), lazy_adam(RATES, (0.8, 0.95)))


def test_what_is_frozen_is_left_alone() -> None:
    named = parameters()
    named["dense"].requires_grad_(False)
    optimizer = Optimizer(OptimizerConfig(name="adamw"), named.items(), TABLES)
    assert {id(parameter) for parameter in optimizer.parameters} == {id(named[name]) for name in TABLES}
    before = named["dense"].detach().clone()
    set_gradients(named, 0)
    optimizer.step(0.1)
    assert torch.equal(named["dense"], before)


# The rate


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("constant", [0.2] * 6),
        ("linear", [0.2, 0.16, 0.12, 0.08, 0.04, 0.0]),
        ("cosine", [0.2 * (1 + math.cos(math.pi * k / 5)) / 2 for k in range(6)]),
    ],
)
def test_schedules_without_warm_up(schedule: str, wanted: list[float]) -> None:
    config = OptimizerConfig(schedule=schedule)  # type: ignore[arg-type]
    assert [learning_rate(config, step, 5) for step in range(6)] == pytest.approx(wanted, abs=1e-15)
    assert learning_rate(config, 99, 5) == pytest.approx(wanted[-1], abs=1e-15)  # a resumed run may end earlier


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("constant", [0.05, 0.1, 0.15, 0.2, 0.2, 0.2, 0.2, 0.2]),
        ("linear", [0.05 * 1, 0.1 * 0.875, 0.15 * 0.75, 0.2 * 0.625, 0.1, 0.075, 0.05, 0.025]),
    ],
)
def test_warm_up_rises_to_the_rate_in_so_many_steps(schedule: str, wanted: list[float]) -> None:
    config = OptimizerConfig(schedule=schedule, warmup_steps=4)  # type: ignore[arg-type]
    assert [learning_rate(config, step, 8) for step in range(8)] == pytest.approx(wanted)


def test_no_step_of_a_run_has_a_rate_of_zero() -> None:
    for schedule in ("constant", "linear", "cosine"):
        for warm in (0, 3, 100):
            config = OptimizerConfig(schedule=schedule, warmup_steps=warm)  # type: ignore[arg-type]
            assert all(learning_rate(config, step, 20) > 0 for step in range(20))


# Going on


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", ["adagrad", "adam", "adamw"])
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_restored_optimizer_goes_on_to_the_same_bits(name: str, sparse: bool, stop: int) -> None:
    config = OptimizerConfig(name=name)  # type: ignore[arg-type]
    tables = TABLES if sparse else set()
    whole = run(config, RATES, sparse)
    first = parameters()
    optimizer = Optimizer(config, first.items(), tables)
    for step in range(stop):
        set_gradients(first, step, sparse)
        optimizer.step(RATES[step])
    saved = {key: value.clone() for key, value in optimizer.state().items()}
    assert all(isinstance(value, Tensor) for value in saved.values())
    named = {key: nn.Parameter(parameter.detach().clone()) for key, parameter in first.items()}
    other = Optimizer(config, named.items(), tables)
    other.restore(saved)
    again = other.state()
    assert again.keys() == saved.keys()
    assert all(torch.equal(again[key].double(), saved[key].double()) for key in saved)
    for step in range(stop, len(RATES)):
        set_gradients(named, step, sparse)
        other.step(RATES[step])
    for key, parameter in named.items():
        assert parameter.detach().numpy().tobytes() == whole[-1][key].tobytes()
    assert all(torch.equal(value, saved[key]) for key, value in saved.items())


def test_a_restored_state_is_a_copy() -> None:
    config = OptimizerConfig()
    named = parameters()
    optimizer = Optimizer(config, named.items(), TABLES)
    saved = {key: value.clone() for key, value in optimizer.state().items()}
    optimizer.restore(saved)
    set_gradients(named, 0)
    optimizer.step(0.2)
    assert all((value == 1.0).all() for key, value in saved.items() if key.endswith(".sum"))


@pytest.mark.parametrize(
    ("name", "quantities", "of_tables"),
    [
        ("adagrad", {"step", "sum"}, {"sum"}),
        ("adam", {"step", "exp_avg", "exp_avg_sq"}, {"step", "exp_avg", "exp_avg_sq"}),
    ],
)
def test_a_state_is_named_by_parameter_and_quantity(name: str, quantities: set[str], of_tables: set[str]) -> None:
    named = parameters()
    optimizer = Optimizer(OptimizerConfig(name=name), named.items(), TABLES)  # type: ignore[arg-type]
    set_gradients(named, 0)
    optimizer.step(0.2)
    state = optimizer.state()
    wanted = {parameter: of_tables if parameter in TABLES else quantities for parameter in named}
    assert state.keys() == {f"{parameter}.{quantity}" for parameter in named for quantity in wanted[parameter]}
    assert all(float(value) == 1.0 for key, value in state.items() if key.endswith(".step"))


# Clipping


@pytest.mark.parametrize("limit", [None, 1.0, 5.0, 1000.0])
def test_all_gradients_are_scaled_together(limit: float | None) -> None:
    named = parameters()
    set_gradients(named, 2)
    wanted = gradients(2)
    norm = math.sqrt(sum((gradient**2).sum() for gradient in wanted.values()))
    unused = nn.Parameter(torch.ones(3, dtype=torch.float64))  # has no gradient
    assert clip([*named.values(), unused], limit).item() == pytest.approx(norm, rel=1e-12)
    factor = min(1.0, limit / norm) if limit is not None else 1.0
    for name, parameter in named.items():
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.to_dense().numpy(), wanted[name] * factor, rtol=1e-12)
    assert unused.grad is None


def test_a_gradient_of_zero_is_not_divided_by() -> None:
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.zeros(3)
    assert clip([weight], 10.0).item() == 0.0
    assert weight.grad.tolist() == [0.0, 0.0, 0.0]
