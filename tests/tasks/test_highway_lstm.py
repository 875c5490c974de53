"""The highway LSTM: the reference in NumPy, the kernels against the reference, Triton's by its interpreter on a CPU."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs Triton: pip install triton")

from elmo.tasks.layers import highway_lstm_gpu, highway_lstm_graph, highway_lstm_kernel
from elmo.tasks.layers.encoder import Packed
from elmo.tasks.layers.highway_lstm import HighwayLSTM, HighwayLSTMLayer
from elmo.tasks.layers.highway_lstm_graph import RecordedLayers
from elmo.tasks.layers.highway_lstm_kernel import Reading, Step

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTHS = [3, 5, 1, 5, 2]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def by_hand(layer: HighwayLSTMLayer, x: Any, mask: Any) -> Any:
    """One sequence, token by token, from the equations of the paper."""
    size = layer.weight_hidden.shape[0]
    w, u, b = (p.detach().double().numpy() for p in (layer.weight_input, layer.weight_hidden, layer.bias))
    h, c, outputs = np.zeros(size), np.zeros(size), []
    for token in x[::-1] if layer.backwards else x:
        linear = [token @ w[:, k * size : (k + 1) * size] + b[k * size : (k + 1) * size] for k in range(6)]
        full = [linear[k] + h @ u[:, k * size : (k + 1) * size] for k in range(5)]
        i, f, o, r = (sigmoid(gate) for gate in full[:4])
        c = f * c + i * np.tanh(full[4])
        h = mask * (r * (o * np.tanh(c)) + (1 - r) * linear[5])
        outputs.append(h)
    return np.array(outputs[::-1] if layer.backwards else outputs)


def layer_of(backwards: bool, size: int = 5, input_dim: int = 4) -> HighwayLSTMLayer:
    torch.manual_seed(0)
    layer = HighwayLSTMLayer(input_dim, size, backwards=backwards)
    with torch.no_grad():
        layer.bias += 0.5 * torch.randn_like(layer.bias)
    return layer.double()


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_sequence_is_read_as_if_it_were_alone(backwards: bool, reference: bool) -> None:
    """Against NumPy, for every sequence of a batch, also with a dropout mask; padding may contain anything."""
    layer = layer_of(backwards)
    packed = Packed.of(LENGTHS)
    x = torch.randn(5, 5, 4, dtype=torch.float64)
    rows, longest_first = list(packed.rows), sorted(range(5), key=lambda n: -LENGTHS[n])
    mask = torch.rand(5, 5, dtype=torch.float64) * 2
    tokens = x.flatten(0, 1)[packed.places]
    found = (layer.forward_reference if reference else layer)(tokens, Reading.of(rows, x.device), mask)
    padded = torch.full((25, 5), torch.nan, dtype=torch.float64).index_copy(0, packed.places, found.detach())
    for row, length in enumerate(LENGTHS):
        expected = by_hand(layer, x[row, :length].numpy(), mask[longest_first.index(row)].numpy())
        np.testing.assert_allclose(padded.view(5, 5, 5)[row, :length], expected, atol=1e-12)


def test_layers_alternate_and_padding_is_not_read() -> None:
    torch.manual_seed(0)
    network = HighwayLSTM(4, 3, n_layers=3, dropout=0.5).double().eval()
    assert [layer.backwards for layer in network.layers] == [False, True, False]
    x = torch.randn(5, 5, 4, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    encoded = network(x.masked_fill(~mask[..., None], torch.nan), Packed.of(LENGTHS))
    for row, length in enumerate(LENGTHS):
        alone = x[row, :length].numpy()
        for layer in network.layers:
            alone = by_hand(layer, alone, np.ones(3))
        np.testing.assert_allclose(encoded[row, :length].detach(), alone, atol=1e-12)
        assert not encoded[row, length:].any()


def test_the_weights_begin_orthogonal_with_an_open_forget_gate() -> None:
    layer = HighwayLSTMLayer(7, 3)
    for weight, blocks in ((layer.weight_input, 6), (layer.weight_hidden, 5)):
        for block in weight.detach().chunk(blocks, dim=1):
            torch.testing.assert_close(block.T @ block, torch.eye(3))
    assert layer.bias.tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 12


def test_dropout_drops_a_unit_for_a_whole_sequence_and_in_training_only() -> None:
    torch.manual_seed(0)
    network = HighwayLSTM(4, 50, n_layers=1, dropout=0.4)
    x = torch.randn(20, 6, 4)
    outputs = network(x, Packed.of([6] * 20))
    dropped = outputs == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert 0.35 < dropped[:, 0].float().mean() < 0.45
    kept = network.eval()(x, Packed.of([6] * 20))
    assert (kept != 0).all()
    first = outputs[:, 0][~dropped[:, 0]] / kept[:, 0][~dropped[:, 0]]  # later tokens read what was dropped before
    torch.testing.assert_close(first, torch.full_like(first, 1 / 0.6))


def test_the_steps_of_both_directions() -> None:
    reading = Reading.of([3, 2, 2], torch.device("cpu"))
    assert reading.forwards.each == [Step(0, 3, 0, 0), Step(3, 2, 0, 2), Step(5, 2, 3, 2)]
    assert reading.backwards.each == [Step(5, 2, 0, 0), Step(3, 2, 5, 2), Step(0, 3, 3, 2)]
    for steps in (reading.forwards, reading.backwards):
        assert steps.table.tolist() == [*map(list, steps.each), [0, 0, 0, 0]]
    assert reading.earlier.tolist() == [0, 1, 3, 4]


# The kernels: values and gradients against autograd of the reference


@dataclass(frozen=True)
class Case:
    rows: tuple[int, ...]
    size: int
    backwards: bool


ROWS = {"falling": (5, 4, 4, 2, 1), "equal": (3, 3, 3), "one token each": (4,), "two blocks of rows": (18, 17, 3)}
CASES = {
    f"{name}, {'backwards' if backwards else 'forwards'}, {size} units": Case(rows, size, backwards)
    for name, rows in ROWS.items()
    for backwards in (False, True)
    for size in (5, 37)
} | {"products in two parts": Case((3, 2), 70, backwards=False)}


def computed(case: Case, dtype: torch.dtype, reference: bool = False) -> dict[str, Tensor]:
    """The outputs, and the gradients of everything that they are computed from."""
    layer = layer_of(case.backwards, case.size).to(DEVICE, dtype)
    torch.manual_seed(1)
    x = torch.randn(sum(case.rows), 4, dtype=torch.float64).to(DEVICE, dtype).requires_grad_()
    mask = (torch.rand(case.rows[0], case.size) < 0.6).to(DEVICE, dtype) / 0.6
    outputs = (layer.forward_reference if reference else layer)(x, Reading.of(case.rows, x.device), mask)
    weight = torch.randn(outputs.shape, dtype=torch.float64).to(DEVICE, dtype)
    found = torch.autograd.grad((outputs * weight).sum(), [x, *layer.parameters()])
    names = ["x", *dict(layer.named_parameters())]
    return {"outputs": outputs, **{f"d {name}": value for name, value in zip(names, found, strict=True)}}


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    for name, wanted in expected.items():
        difference = (found[name].double() - wanted).norm()
        assert difference <= tolerance * wanted.norm(), f"{name}: off by {difference / wanted.norm():.1e} of its norm"


def use_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = highway_lstm_gpu.forward_step, highway_lstm_gpu.backward_step
    monkeypatch.setattr(highway_lstm_kernel, "_kernels", lambda _: steps)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    assert_close(computed(CASES[name], torch.float64), computed(CASES[name], torch.float64, reference=True), 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_of_the_triton_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_triton(monkeypatch)
    assert_close(computed(CASES[name], torch.float32), computed(CASES[name], torch.float64, reference=True), 1e-5)


@pytest.mark.parametrize("backwards", [False, True])
def test_gradients_by_finite_differences(backwards: bool) -> None:
    layer = layer_of(backwards, size=3)
    x = torch.randn(6, 4, dtype=torch.float64)
    reading = Reading.of([3, 2, 1], x.device)
    mask = torch.tensor([[0.0, 2.0, 1.0], [2.0, 2.0, 0.5], [2.0, 0.0, 2.0]], dtype=torch.float64)
    weight = torch.randn(6, 3, dtype=torch.float64)

    def value(*given: Tensor) -> Tensor:
        outputs = highway_lstm_kernel.highway_lstm(*given, mask, reading=reading, backwards=backwards)
        return (outputs * weight).sum()

    leaves = [leaf.detach().requires_grad_() for leaf in (x, layer.weight_input, layer.weight_hidden, layer.bias)]
    found = torch.autograd.grad(value(*leaves), leaves)
    for number, gradient in enumerate(found):
        direction = torch.randn_like(gradient)
        ahead, behind = (
            [leaf + sign * 1e-5 * direction if k == number else leaf for k, leaf in enumerate(leaves)]
            for sign in (1, -1)
        )
        slope = (value(*ahead) - value(*behind)).item() / 2e-5
        assert (gradient * direction).sum().item() == pytest.approx(slope, rel=1e-7)


def test_the_cases_fill_the_blocks_of_the_triton_kernels_in_every_way() -> None:
    sizes = {case.size for case in CASES.values()}
    assert min(sizes) < highway_lstm_gpu.UNITS < max(sizes)
    assert min(sizes) < highway_lstm_gpu.DEPTH < max(sizes)
    assert 5 * min(sizes) < highway_lstm_gpu.BACKWARD_DEPTH < 5 * max(sizes)
    assert min(rows[0] for rows in ROWS.values()) < highway_lstm_gpu.ROWS < max(rows[0] for rows in ROWS.values())


def test_the_module_runs_the_kernel_and_on_request_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = HighwayLSTM(4, 6, n_layers=2, dropout=0.3)
    x, packed = torch.randn(5, 5, 4), Packed.of(LENGTHS)
    torch.manual_seed(1)
    fast = network(x, packed)
    network.reference = True
    monkeypatch.setattr(highway_lstm_kernel._HighwayLSTM, "apply", None)  # not called
    torch.manual_seed(1)
    torch.testing.assert_close(network(x, packed), fast, rtol=0, atol=1e-5)


def test_a_second_backward_pass_is_refused() -> None:
    """The gates' gradients were written over the gates: nothing is left to compute another from."""
    network = HighwayLSTM(4, 3, n_layers=1)
    loss = network(torch.randn(2, 3, 4), Packed.of([3, 2])).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_autocast_changes_nothing() -> None:
    torch.manual_seed(0)
    network = HighwayLSTM(4, 6, n_layers=2)
    x = torch.randn(5, 5, 4).bfloat16()
    exact = network(x.float(), Packed.of(LENGTHS))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(network(x, Packed.of(LENGTHS)), exact)


# Recorded layers: on a CPU the same passes over the same memory, not recorded


def stack(n_layers: int, device: str = DEVICE) -> HighwayLSTM:
    torch.manual_seed(0)
    return HighwayLSTM(3, 6, n_layers, dropout=0.4).to(device)


def with_gradients(network: HighwayLSTM, lengths: list[int], recorded: RecordedLayers | None) -> dict[str, Tensor]:
    """The outputs of packed tokens, and the gradients; by recorded layers, or layer by layer."""
    torch.manual_seed(sum(lengths))
    reading = Reading.of(Packed.of(lengths).rows, torch.device(DEVICE))
    x = torch.randn(sum(lengths), 3).to(DEVICE).requires_grad_()
    masks = network._dropout_masks(len(lengths))
    if recorded is not None:
        outputs = recorded(x, reading, masks, list(network.parameters()))
        assert outputs is not None
    else:
        outputs = x
        for layer, mask in zip(network.layers, masks, strict=True):
            outputs = layer(outputs, reading, mask)
    weight = torch.randn(outputs.shape).to(DEVICE)
    found = torch.autograd.grad((outputs * weight).sum(), [x, *network.parameters()])
    names = ["x", *dict(network.named_parameters())]
    return {"outputs": outputs, **dict(zip(names, found, strict=True))}


@pytest.mark.parametrize("n_layers", [1, 3])
def test_recorded_layers_compute_what_the_layers_do(n_layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of different lengths one after the other: nothing of a longer one before is left in a shorter one."""
    use_triton(monkeypatch)
    monkeypatch.setattr(highway_lstm_graph, "MAX_STEPS", 6)
    monkeypatch.setattr(highway_lstm_graph, "ROUND_TO", 3)
    network, recorded = stack(n_layers), RecordedLayers()
    for lengths in ([6, 5], [4, 1], [3, 2], [1, 1]):
        assert_close(with_gradients(network, lengths, recorded), with_gradients(network, lengths, None), 1e-5)
    assert sorted(recorded._recordings) == [3, 6]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.5)  # in place, as an optimizer does
    larger = [2, 2, 1]
    assert_close(with_gradients(network, larger, recorded), with_gradients(network, larger, None), 1e-5)
    for lengths in ([7, 1, 1], [3, 3]):  # too many steps, fewer sequences
        reading = Reading.of(Packed.of(lengths).rows, torch.device(DEVICE))
        masks = network._dropout_masks(len(lengths))
        assert recorded(torch.randn(sum(lengths), 3).to(DEVICE), reading, masks, list(network.parameters())) is None
    moved = stack(n_layers)  # the same weights elsewhere in memory
    assert_close(with_gradients(moved, larger, recorded), with_gradients(moved, larger, None), 1e-5)


def test_a_recorded_batch_must_be_finished_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    use_triton(monkeypatch)
    monkeypatch.setattr(highway_lstm_graph, "MAX_STEPS", 8)
    network, recorded = stack(1), RecordedLayers()
    reading = Reading.of([2, 1], torch.device(DEVICE))

    def outputs() -> Tensor:
        found = recorded(torch.ones(3, 3).to(DEVICE), reading, network._dropout_masks(2), list(network.parameters()))
        assert found is not None
        return found

    first, second = outputs(), outputs()
    second.sum().backward(retain_graph=True)
    for done in (first, second):
        with pytest.raises(RuntimeError, match="must come before its next forward pass"):
            done.sum().backward()


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_training_by_graphs_is_training_step_by_step() -> None:
    """The network records itself on a GPU; batches come back in another order, the last one is smaller."""
    network = stack(4)
    packed = [Packed.of(lengths).to(torch.device(DEVICE)) for lengths in ([9, 7, 5], [30, 28, 1], [3, 3, 3], [4, 2])]
    results = []
    for recorded in (True, False):
        network.recorded, network._recordings = recorded, RecordedLayers()
        found = []
        for number in (0, 1, 2, 0, 1, 3, 2):
            torch.manual_seed(number)
            size, longest = int(packed[number].active[0]), len(packed[number].active)
            x = torch.randn(size, longest, 3, device=DEVICE, requires_grad=True)
            outputs = network(x, packed[number])
            weight = torch.randn(outputs.shape, device=DEVICE)
            found.append(torch.autograd.grad((outputs * weight).sum(), [x, *network.parameters()]))
        results.append(found)
        assert len(network._recordings._recordings) == (3 if recorded else 0)
    for one, other in zip(*results, strict=True):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
