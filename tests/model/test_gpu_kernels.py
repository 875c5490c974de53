"""Triton's kernels against the reference path in float64: by Triton's interpreter on a CPU, as they are on a GPU."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton", reason="needs Triton: pip install triton")

from corpora import write_corpus
from elmo.model import char_cnn as char_cnn_module
from elmo.model import lstm as lstm_module
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import PADDING_ID, CharCNN, CharCNNConfig, Highway
from elmo.model.kernels import char_cnn_gpu, highway_gpu, lstm_gpu, softmax_gpu, triton_computes
from elmo.model.lstm import LSTMConfig, ProjectedLSTM, State
from elmo.pretrain import graph
from elmo.pretrain import loss as loss_module
from elmo.pretrain.batch import Batches
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.step import accumulate
from elmo.pretrain.streams import Streams
from elmo.text.characters import word_ids

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [pytest.mark.gpu] if DEVICE == "cuda" else []
on_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")

Read = Callable[[Tensor, Sequence[int], State], tuple[Tensor, State]]
ALL = ("outputs", "h", "c")
FLOAT32, BFLOAT16 = 1e-5, 2e-2  # of a tensor's norm


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape, name
        difference = (found[name].double() - wanted).norm()
        assert difference <= tolerance * wanted.norm(), f"{name}: off by {difference / wanted.norm():.1e} of its norm"


def weighted(values: Mapping[str, Tensor]) -> Tensor:
    """A number whose gradient is another one for every value, the same on every path."""
    total = torch.zeros((), dtype=torch.float64, device=DEVICE)
    for seed, value in enumerate(values.values()):
        weight = torch.randn(value.shape, generator=torch.Generator().manual_seed(seed)).bfloat16()  # exact in all
        total = total + (value.double() * weight.double().to(DEVICE)).sum()
    return total


def gradients(values: Mapping[str, Tensor], leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = torch.autograd.grad(weighted(values), list(leaves.values()), allow_unused=True)
    pairs = zip(leaves.items(), found, strict=True)
    return {f"d {name}": torch.zeros_like(leaf) if d is None else d for (name, leaf), d in pairs}


def share_at(values: Tensor, limit: float) -> float:
    return float((values.abs() == limit).double().mean())


# The LSTM


@dataclass(frozen=True)
class Case:
    """One layer, and what it reads."""

    rows: list[int]
    batch: int
    dim: int = 7
    projection_dim: int = 5
    directions: int = 2
    cell_clip: float | None = 0.4
    proj_clip: float | None = 0.3


CASES = {
    "equal rows": Case([3] * 4, 3),
    "falling rows": Case([5, 4, 4, 2, 1], 7),  # two sentences have no tokens, and keep their state
    "equal rows, a larger batch": Case([2, 2, 2], 4),
    "no projection": Case([4, 4, 2], 5, dim=5),
    "one direction": Case([4, 4, 2], 4, directions=1),
    "no clips": Case([4, 2, 2], 4, cell_clip=None, proj_clip=None),
    "only the cell clipped": Case([4, 2, 2], 4, proj_clip=None),
    "only the projection clipped": Case([4, 2, 2], 4, cell_clip=None),
    "one token": Case([1], 1, dim=16, projection_dim=8),
    "nothing to read": Case([], 3),
    "two blocks": Case([43, 39, 1], 44, dim=27, projection_dim=25),
}


def layer(case: Case) -> tuple[ProjectedLSTM, Tensor, State]:
    """Weights large enough for the clips, and a state carried in."""
    torch.manual_seed(0)
    config = LSTMConfig(case.dim, case.projection_dim, cell_clip=case.cell_clip, proj_clip=case.proj_clip)
    lstm = ProjectedLSTM(case.projection_dim + 1, config, case.directions)
    with torch.no_grad():
        lstm.bias.normal_(0.0, 0.5)
        for weight in lstm.parameters():
            weight.mul_(1.5)
    inputs = torch.randn(case.directions, sum(case.rows), case.projection_dim + 1)
    h = 0.3 * torch.randn(case.directions, case.batch, case.projection_dim)
    c = 0.5 * torch.randn(case.directions, case.batch, case.dim)
    return lstm.to(DEVICE), inputs.to(DEVICE), State(h.to(DEVICE), c.to(DEVICE))


def by_kernel(lstm: ProjectedLSTM) -> Read:
    def read(inputs: Tensor, rows: Sequence[int], state: State) -> tuple[Tensor, State]:
        outputs, h, c = lstm_gpu.lstm_gpu(inputs, rows, *state, lstm.layer)
        return outputs, State(h, c)

    return read


def results(read: Read, inputs: Tensor, rows: Sequence[int], state: State) -> dict[str, Tensor]:
    outputs, after = read(inputs, rows, state)
    return {"outputs": outputs, "h": after.h, "c": after.c}


def with_gradients(
    read: Read,
    lstm: ProjectedLSTM,
    inputs: Tensor,
    rows: Sequence[int],
    state: State,
    through: Sequence[str] = ALL,
) -> dict[str, Tensor]:
    """What is computed, and the gradients of all that it is computed from."""
    inputs, h, c = (tensor.detach().requires_grad_() for tensor in (inputs, *state))
    values = results(read, inputs, rows, State(h, c))
    leaves = {"inputs": inputs, "h": h, "c": c, **dict(lstm.named_parameters())}
    return values | gradients({name: values[name] for name in through}, leaves)


def expected_of(
    lstm: ProjectedLSTM, inputs: Tensor, rows: Sequence[int], state: State, through: Sequence[str] = ALL
) -> dict[str, Tensor]:
    """By the reference path, in float64."""
    exact = deepcopy(lstm).double()
    state = State(state.h.double(), state.c.double())
    return with_gradients(exact.forward_reference, exact, inputs.double(), rows, state, through)


@pytest.mark.parametrize("name", CASES)
def test_lstm_values_and_gradients(name: str) -> None:
    case = CASES[name]
    lstm, inputs, state = layer(case)
    expected = expected_of(lstm, inputs, case.rows, state)
    found = with_gradients(by_kernel(lstm), lstm, inputs, case.rows, state)
    assert_close(found, expected, FLOAT32)
    started = case.rows[0] if case.rows else 0
    assert torch.equal(found["h"][:, started:], state.h[:, started:])
    assert torch.equal(found["c"][:, started:], state.c[:, started:])
    if started:  # the clips bite, and not on everything
        if case.cell_clip is not None:
            assert 0.1 < share_at(expected["c"][:, :started], case.cell_clip) < 0.9
        if case.proj_clip is not None and case.dim != case.projection_dim:
            assert 0.1 < share_at(expected["outputs"], case.proj_clip) < 0.9


@pytest.mark.parametrize("name", CASES)
def test_lstm_without_a_gradient(name: str) -> None:
    case = CASES[name]
    lstm, inputs, state = layer(case)
    before = [part.clone() for part in (inputs, *state)]
    with torch.no_grad():
        found = results(by_kernel(lstm), inputs, case.rows, state)
        exact = deepcopy(lstm).double()
        doubled = State(state.h.double(), state.c.double())
        expected = results(exact.forward_reference, inputs.double(), case.rows, doubled)
    assert_close(found, expected, FLOAT32)
    for given, kept in zip((inputs, *state), before, strict=True):
        assert torch.equal(given, kept)
    found = results(by_kernel(lstm.requires_grad_(False)), inputs, case.rows, state)
    assert not any(value.requires_grad for value in found.values())
    assert_close(found, expected, FLOAT32)


def test_the_cases_fill_blocks_in_every_way() -> None:
    many, few = CASES["two blocks"], CASES["falling rows"]
    assert many.rows[0] * many.dim > many.rows[0] * many.projection_dim > lstm_gpu.BLOCK
    assert many.rows[1] * many.projection_dim < lstm_gpu.BLOCK < many.rows[1] * many.dim
    assert few.dim & (few.dim - 1) and lstm_gpu.BLOCK % few.dim


@pytest.mark.parametrize("through", [["outputs"], ["h"], ["c"], ["h", "c"]], ids=" and ".join)
def test_lstm_gradients_through_some_results_only(through: list[str]) -> None:
    case = CASES["falling rows"]
    lstm, inputs, state = layer(case)
    found = with_gradients(by_kernel(lstm), lstm, inputs, case.rows, state, through)
    assert_close(found, expected_of(lstm, inputs, case.rows, state, through), FLOAT32)


def test_lstm_of_tensors_that_are_parts_of_others() -> None:
    """Neither what is given nor the gradient that comes back lies in one piece: a sum's is one number for all."""
    case = CASES["falling rows"]
    lstm, inputs, state = layer(case)
    scattered = [torch.stack([part, part], dim=3)[..., 0].requires_grad_() for part in (inputs, *state)]
    assert not any(part.is_contiguous() for part in scattered)
    outputs, after = by_kernel(lstm)(scattered[0], case.rows, State(*scattered[1:]))
    found = torch.autograd.grad(outputs.sum() + after.c.sum(), [*scattered, *lstm.parameters()])
    exact = deepcopy(lstm).double()
    whole = [part.double().requires_grad_() for part in (inputs, *state)]
    outputs, after = exact.forward_reference(whole[0], case.rows, State(*whole[1:]))
    expected = torch.autograd.grad(outputs.sum() + after.c.sum(), [*whole, *exact.parameters()])
    assert_close(*(dict(zip("xhc0123", some, strict=True)) for some in (found, expected)), FLOAT32)


@pytest.mark.parametrize("needs_gradient", [True, False])
def test_lstm_keeps_what_is_not_a_number(needs_gradient: bool) -> None:
    """A token and all that follow it in its sentence: no clip hides them."""
    case = CASES["falling rows"]
    lstm, inputs, state = layer(case)
    inputs[0, 5 + 1] = torch.nan  # the second sentence's second token
    with torch.set_grad_enabled(needs_gradient):
        found = results(by_kernel(lstm), inputs, case.rows, state)
        expected = results(lstm.forward_reference, inputs, case.rows, state)
    for name, value in found.items():
        assert torch.equal(value.isnan(), expected[name].isnan()), name
    assert found["outputs"].isnan().any(dim=2).nonzero().tolist() == [[0, 6], [0, 10], [0, 14]]


def decisive() -> tuple[ProjectedLSTM, Tensor, list[int], State]:
    """A third of cells and outputs run hard into their clips, the others stay far below: rounding decides nothing."""
    torch.manual_seed(3)
    rows, dim, size = [6, 6, 5, 3], 24, 48
    # bfloat16 has neither 0.4 nor 0.7.
    lstm = ProjectedLSTM(dim, LSTMConfig(size, dim, cell_clip=0.4, proj_clip=0.7), directions=2)
    held = torch.rand(2, size) < 1 / 3
    sign = torch.where(torch.rand(2, size) < 0.5, -1.0, 1.0)
    held_outputs = torch.rand(2, dim) < 1 / 3
    with torch.no_grad():
        lstm.weight_input.mul_(0.2)
        lstm.weight_hidden.mul_(0.2)
        i, f, o, candidate = lstm.bias.view(2, 4, size).normal_(0.0, 0.1).unbind(dim=1)
        for gate, value in ((i, 3.0), (f, 1.0), (o, 1.0), (candidate, 3.0 * sign)):
            gate += held * value
        lstm.weight_projection.mul_(0.4)
        lstm.weight_projection += 0.5 * (held * sign)[:, :, None] * held_outputs[:, None]
    inputs = torch.randn(2, sum(rows), dim)
    h, c = 0.2 * torch.randn(2, 7, dim), 0.1 * torch.randn(2, 7, size)
    return lstm.to(DEVICE), inputs.to(DEVICE), rows, State(h.to(DEVICE), c.to(DEVICE))


def before_the_clips(lstm: ProjectedLSTM, inputs: Tensor, rows: Sequence[int], state: State) -> tuple[Tensor, Tensor]:
    """Every cell and every output, step by step, as they are before they are clipped."""
    assert lstm.weight_projection is not None and lstm.config.cell_clip and lstm.config.proj_clip
    h, c = state
    cells, outputs = [], []
    for x in torch.split(inputs, list(rows), dim=1):
        n = x.shape[1]
        gates = x @ lstm.weight_input + h[:, :n] @ lstm.weight_hidden + lstm.bias[:, None]
        i, f, o, candidate = gates.chunk(4, dim=2)
        cells.append(torch.sigmoid(f + 1) * c[:, :n] + torch.sigmoid(i) * torch.tanh(candidate))
        c = cells[-1].clamp(-lstm.config.cell_clip, lstm.config.cell_clip)
        outputs.append((torch.sigmoid(o) * torch.tanh(c)) @ lstm.weight_projection)
        h = outputs[-1].clamp(-lstm.config.proj_clip, lstm.config.proj_clip)
    return torch.cat(cells, dim=1), torch.cat(outputs, dim=1)


def test_lstm_in_bfloat16() -> None:
    """Products round to eight bits; that a value is clipped or not must not hang on it."""
    lstm, inputs, rows, state = decisive()
    with torch.no_grad():
        for values, limit in zip(before_the_clips(lstm, inputs, rows, state), (0.4, 0.7), strict=True):
            assert ((values.abs() / limit - 1).abs() > 0.02).all()
            assert 0.2 < (values.abs() > limit).double().mean() < 0.8
    expected = expected_of(lstm, inputs, rows, state)
    with torch.autocast(DEVICE, torch.bfloat16):
        found = with_gradients(by_kernel(lstm), lstm, inputs, rows, state)
        with torch.no_grad():
            again = results(by_kernel(lstm), inputs, rows, state)
    assert [found[name].dtype for name in ALL] == [torch.bfloat16, torch.float32, torch.float32]
    assert all(value.dtype == torch.float32 for name, value in found.items() if name.startswith("d "))
    assert_close(found, expected, BFLOAT16)
    assert_close(again, {name: expected[name] for name in again}, BFLOAT16)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("limit", [0.3, 0.5, 0.7])  # 0.3 and 0.7 lie between two bfloat16 numbers
def test_nothing_flows_through_clipped_outputs(limit: float, precision: torch.dtype) -> None:
    case = Case([3, 3, 2], 3, proj_clip=limit)
    lstm, inputs, state = layer(case)
    with torch.no_grad():
        lstm.weight_projection.fill_(50.0)
        lstm.bias.fill_(5.0)
        lstm.weight_input.mul_(0.01)
        lstm.weight_hidden.mul_(0.01)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == torch.bfloat16):
        found = with_gradients(by_kernel(lstm), lstm, inputs, case.rows, state, ["outputs", "h"])
    assert found["outputs"].dtype == precision
    assert share_at(found["outputs"], float(torch.tensor(limit, dtype=precision))) == 1.0
    assert all(not value.any() for name, value in found.items() if name.startswith("d "))


# The char CNN

FILTERS = ((1, 3), (2, 5), (3, 7), (4, 19))  # 34: more than a tile of 32
TEXT = ["", "a", "of", "thé", "<S>", "</S>", "日本", "gradient", "syllable"]
MANY = [*TEXT, *("abcdefghijkl"[k % 5 : k % 5 + k % 11] + chr(97 + k % 26) for k in range(130))]  # over two tiles of 64
WORDS = {
    "words": (9, TEXT),  # some just fit, some are cut
    "one word": (9, ["of"]),
    "one word that is cut": (9, ["unbelievable"]),
    "words as long as the widest filter": (4, TEXT),
    "many words": (11, MANY),
    "a very long word": (300, ["word", "".join(chr(97 + k * k % 26) for k in range(280)) + "XYZ" * 6]),
}


def encoder(activation: str, characters: int, embedding_dim: int = 5) -> CharCNN:
    torch.manual_seed(0)
    cnn = CharCNN(CharCNNConfig(activation, embedding_dim, FILTERS, 0, characters), sum(n for _, n in FILTERS))
    with torch.no_grad():
        for weight, bias in zip(cnn.filters, cnn.biases, strict=True):
            weight.normal_(0.0, 0.2)
            bias.normal_(-0.4, 0.4)
    return cnn.to(DEVICE)


def convolved(cnn: CharCNN, ids: Tensor) -> Tensor:
    relu = cnn.config.activation == "relu"
    return char_cnn_gpu.convolve_gpu(ids, PADDING_ID, cnn.embedding, [*cnn.filters], [*cnn.biases], relu)


def exactly_convolved(cnn: CharCNN, ids: Tensor) -> dict[str, Tensor]:
    """Values and gradients by the reference path, in float64."""
    exact = deepcopy(cnn).double()
    exact.reference = True
    values = {"values": exact.convolve(ids)}
    return values | gradients(values, dict(exact.named_parameters()))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("name", WORDS)
def test_convolutions_values_and_gradients(name: str, activation: str) -> None:
    characters, words = WORDS[name]
    cnn, ids = encoder(activation, characters), torch.from_numpy(word_ids(words, characters)).to(DEVICE)
    expected = exactly_convolved(cnn, ids)
    values = {"values": convolved(cnn, ids)}
    assert_close(values | gradients(values, dict(cnn.named_parameters())), expected, FLOAT32)
    if activation == "relu":
        assert 0.1 < (expected["values"] == 0).double().mean() < 0.9
    with torch.no_grad():
        assert torch.equal(convolved(cnn, ids), values["values"])


@pytest.mark.parametrize("embedding_dim", [1, 4, 16])
def test_convolutions_of_other_embeddings(embedding_dim: int) -> None:
    cnn, ids = encoder("relu", 9, embedding_dim), torch.from_numpy(word_ids(TEXT, 9)).to(DEVICE)
    values = {"values": convolved(cnn, ids)}
    assert_close(values | gradients(values, dict(cnn.named_parameters())), exactly_convolved(cnn, ids), FLOAT32)


def test_convolutions_of_another_alphabet() -> None:
    """A padding character that is not bilm-tf's, and more characters than bytes: as in ELMoForManyLangs."""
    torch.manual_seed(0)
    cnn = CharCNN(CharCNNConfig("relu", 5, FILTERS, 0, 9, 700), sum(n for _, n in FILTERS), padding_id=3).to(DEVICE)
    rows = [[600, *range(k, k + 40 * k, 40), 699] for k in range(8)]
    ids = torch.tensor([[*row, *[3] * (9 - len(row))][:9] for row in rows], device=DEVICE)
    relu = char_cnn_gpu.convolve_gpu(ids, 3, cnn.embedding, [*cnn.filters], [*cnn.biases], True)
    assert_close({"values": relu}, {"values": exactly_convolved(cnn, ids)["values"]}, FLOAT32)


@pytest.mark.parametrize(("embedding_dim", "by_kernel"), [(16, True), (64, True), (65, False)])
def test_large_windows_are_not_for_the_kernel(
    embedding_dim: int, by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cnn, ids = encoder("relu", 9, embedding_dim), torch.from_numpy(word_ids(TEXT, 9)).to(DEVICE)
    used = []
    kernel = char_cnn_gpu.convolve_gpu
    monkeypatch.setattr("elmo.model.char_cnn.triton_computes", lambda tensor: True)
    monkeypatch.setattr(char_cnn_gpu, "convolve_gpu", lambda *given: used.append(1) or kernel(*given))
    with torch.no_grad():
        found = cnn.convolve(ids)
    assert bool(used) == by_kernel
    assert_close({"values": found}, {"values": exactly_convolved(cnn, ids)["values"]}, FLOAT32)


def test_convolutions_of_more_words_than_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What many programs share, by few: each adds up several tiles, and several add to one copy."""
    monkeypatch.setattr(char_cnn_gpu, "SPLITS", 2)
    monkeypatch.setattr(char_cnn_gpu, "COPIES", 3)
    cnn, ids = encoder("relu", 11), torch.from_numpy(word_ids(MANY, 11)).to(DEVICE)
    values = {"values": convolved(cnn, ids)}
    assert_close(values | gradients(values, dict(cnn.named_parameters())), exactly_convolved(cnn, ids), FLOAT32)


def test_padding_wins_only_where_there_is_padding() -> None:
    """A filter that is highest on padding: words that leave less of it than its width must not see it."""
    cnn = CharCNN(CharCNNConfig("relu", 1, ((1, 1), (3, 1)), 0, 10), 2).to(DEVICE)
    with torch.no_grad():
        cnn.embedding.zero_()
        cnn.embedding[PADDING_ID] = 1.0
        for weight in cnn.filters:
            weight.fill_(1.0)
        words = ["", *("a" * n for n in (5, 6, 7, 8, 9, 20))]
        found = convolved(cnn, torch.from_numpy(word_ids(words, 10)).to(DEVICE))
    left = [max(8 - len(word), 0) for word in words]  # positions of padding
    assert found.tolist() == [[min(n, 1), min(n, 3)] for n in left]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_convolutions_keep_what_is_not_a_number(activation: str) -> None:
    """A character that is not a number spoils the words it stands in, whatever stands beside it, and no other."""
    cnn = encoder(activation, 9)
    with torch.no_grad():
        cnn.embedding[word_ids(["a"], 9)[0, 1]] = torch.nan
    ids = torch.from_numpy(word_ids(["cat", "dog", "a", "seldom"], 9)).to(DEVICE)
    values = convolved(cnn, ids)
    assert values.isnan().all(dim=1).tolist() == [True, False, True, False]
    assert not values[[1, 3]].isnan().any()


@pytest.mark.parametrize("kernel", ["lstm", "highway"])
def test_a_second_way_back_is_refused(kernel: str) -> None:
    """The gates' gradients were written over the gates: nothing is left to compute another from."""
    if kernel == "lstm":
        lstm, inputs, state = layer(CASES["equal rows"])
        value, leaf = by_kernel(lstm)(inputs, CASES["equal rows"].rows, state)[0], lstm.weight_input
    else:
        module, x = highway(3, 7)
        value, leaf = highway_gpu.highway_gpu(x, module.weight, module.bias), module.weight
    torch.autograd.grad(value.sum(), leaf, retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(value.sum(), leaf)


@on_a_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("name", ["words", "one word", "many words"])
def test_convolutions_in_bfloat16(name: str, activation: str) -> None:
    """Of rounded weights, whose products are exact: the same windows win. The interpreter has no such products."""
    characters, words = WORDS[name]
    cnn, ids = encoder(activation, characters), torch.from_numpy(word_ids(words, characters)).to(DEVICE)
    with torch.no_grad():
        for parameter in cnn.parameters():
            parameter.copy_(parameter.bfloat16())
    with torch.autocast(DEVICE, torch.bfloat16):
        values = {"values": convolved(cnn, ids)}
    assert values["values"].dtype == torch.bfloat16
    found = gradients(values, dict(cnn.named_parameters()))
    assert all(value.dtype == torch.float32 for value in found.values())
    assert_close(values | found, exactly_convolved(cnn, ids), BFLOAT16)
    with torch.no_grad():
        assert torch.equal(convolved(cnn.bfloat16(), ids), values["values"])  # as an embedder holds it


# The highways


def highway(n: int, dim: int) -> tuple[Highway, Tensor]:
    """Gates half open, and transforms so far from zero that rounding closes no ReLU and opens none."""
    torch.manual_seed(0)
    layer, x = Highway(dim), torch.empty(n, dim).uniform_(-1.0, 1.0)
    with torch.no_grad():
        layer.weight.mul_(0.3)
        transform = layer.bias.normal_()[dim:]
        transform.copy_(torch.where(transform < 0, -1.0, 1.0))
        assert ((x @ layer.weight[:, dim:] + transform).abs() > 0.02).all()
    return layer.to(DEVICE), x.to(DEVICE)


def highway_values(
    run: Callable[[Tensor, Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, bias: Tensor
) -> dict[str, Tensor]:
    leaves = {"x": x, "weight": weight, "bias": bias}
    leaves = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
    values = {"values": run(*leaves.values())}
    return values | gradients(values, leaves)


def highway_by_hand(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    carry, transform = (x @ weight + bias).chunk(2, dim=1)
    return torch.sigmoid(carry) * torch.relu(transform) + torch.sigmoid(-carry) * x


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (3, 7), (31, 34), (64, 16), (0, 5)])  # one block at most, and two
@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)])
def test_highway_values_and_gradients(n: int, dim: int, precision: torch.dtype, tolerance: float) -> None:
    layer, x = highway(n, dim)
    expected = highway_values(highway_by_hand, x.double(), layer.weight.double(), layer.bias.double())
    with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == torch.bfloat16):
        found = highway_values(highway_gpu.highway_gpu, x, layer.weight, layer.bias)
    assert found["values"].dtype == precision
    assert all(value.dtype == torch.float32 for name, value in found.items() if name.startswith("d "))
    assert_close(found, expected, tolerance)


def test_highway_of_a_tensor_that_is_part_of_another() -> None:
    layer, x = highway(5, 7)
    scattered = torch.stack([x, x], dim=2)[..., 0].requires_grad_()
    found = torch.autograd.grad(highway_gpu.highway_gpu(scattered, layer.weight, layer.bias).sum(), scattered)[0]
    x.requires_grad_()
    expected = torch.autograd.grad(highway_by_hand(x.double(), layer.weight.double(), layer.bias.double()).sum(), x)[0]
    assert not scattered.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_highway_keeps_what_is_not_a_number() -> None:
    layer, x = highway(4, 7)
    x[2, 3] = torch.nan
    found = highway_gpu.highway_gpu(x, layer.weight, layer.bias)
    assert found.isnan().all(dim=1).tolist() == found.isnan().any(dim=1).tolist() == [False, False, True, False]


# The softmax


def rows_of_scores(n_words: int, spread: float, rising: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores (6, K), bias (K,), a column of each row and a score besides."""
    torch.manual_seed(n_words)
    scores, bias, true = spread * torch.randn(6, n_words), torch.randn(n_words), spread * torch.randn(6)
    if rising:  # the largest comes last, after several blocks
        scores = scores.sort(dim=1).values
    column = torch.tensor([0, n_words - 1, n_words // 2, *torch.randint(n_words, (3,)).tolist()])
    return scores.to(DEVICE), bias.to(DEVICE), column.to(DEVICE), true.to(DEVICE)


SIZES = pytest.mark.parametrize("n_words", [1, 2, 77, softmax_gpu.BLOCK, 2 * softmax_gpu.BLOCK + 3])


@SIZES
@pytest.mark.parametrize("spread", [1.0, 60.0])
@pytest.mark.parametrize("rising", [False, True])
def test_cross_entropy_of_a_column(n_words: int, spread: float, rising: bool) -> None:
    scores, bias, column, _ = rows_of_scores(n_words, spread, rising)
    exact = scores.double().requires_grad_()
    functional.cross_entropy(exact + bias, column, reduction="sum").backward()
    total = softmax_gpu.cross_entropy_gpu(scores, bias, column, None)
    torch.testing.assert_close(total.double(), torch.logsumexp(exact.detach() + bias, dim=1), rtol=1e-6, atol=1e-6)
    rounding = 1e-7 * float(total.abs().max())  # of scores in the hundreds
    torch.testing.assert_close(scores.double(), exact.grad, rtol=1e-4, atol=max(rounding, 1e-6))


def with_a_score_besides(scores: Tensor, bias: Tensor, column: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ exp of each row and its gradient, row by row: the score besides, and every column but one."""
    totals, gradient = [], torch.zeros_like(scores, dtype=torch.float64)
    for row, out in enumerate(column.tolist()):
        kept = torch.tensor([k for k in range(scores.shape[1]) if k != out], dtype=torch.long, device=scores.device)
        some = torch.cat([true[row : row + 1].double(), scores[row, kept].double() + bias[kept]])
        totals.append(torch.logsumexp(some, dim=0))
        gradient[row, kept] = torch.softmax(some, dim=0)[1:]
    return torch.stack(totals), gradient


@SIZES
@pytest.mark.parametrize("spread", [1.0, 60.0])
@pytest.mark.parametrize("hits", ["none", "some", "all"])
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # NumPy's, of a column that is left out
def test_cross_entropy_of_a_score_besides(n_words: int, spread: float, hits: str) -> None:
    """Columns that are the target itself are left out; of one column nothing may be left."""
    scores, bias, column, true = rows_of_scores(n_words, spread, rising=False)
    column[{"none": slice(None), "some": slice(1, None, 2), "all": slice(0)}[hits]] = -1
    total, gradient = with_a_score_besides(scores, bias, column, true)
    found = softmax_gpu.cross_entropy_gpu(scores, bias, column, true)
    torch.testing.assert_close(found.double(), total, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scores.double(), gradient, rtol=1e-4, atol=1e-6)
    assert (scores[column >= 0, column[column >= 0]] == 0).all()


@pytest.mark.parametrize("besides", [True, False])
def test_cross_entropy_of_bfloat16(besides: bool) -> None:
    """Sums are in float32; the gradient is rounded, to eight bits at worst downwards."""
    scores, bias, column, true = rows_of_scores(3000, 2.0, rising=False)
    low = scores.bfloat16()
    scores = low.double().requires_grad_()
    if besides:
        total, gradient = with_a_score_besides(scores.detach(), bias, column, true)
    else:
        total = torch.logsumexp(scores + bias, dim=1)
        (gradient,) = torch.autograd.grad((total - (scores + bias).gather(1, column[:, None])[:, 0]).sum(), scores)
    found = softmax_gpu.cross_entropy_gpu(low, bias, column, true if besides else None)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), total.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(low.double(), gradient, rtol=2**-7, atol=1e-6)


def test_cross_entropy_of_no_rows_and_of_no_numbers() -> None:
    scores, bias, column, true = rows_of_scores(9, 1.0, rising=False)
    assert softmax_gpu.cross_entropy_gpu(scores[:0], bias, column[:0], true[:0]).shape == (0,)
    scores[2, 5] = torch.nan
    for besides in (None, true):
        total = softmax_gpu.cross_entropy_gpu(scores.clone(), bias, column, besides)
        assert total.isnan().tolist() == [row == 2 for row in range(6)]


# Which path computes


CNN = CharCNNConfig(embedding_dim=3, filters=((1, 4), (3, 6)), n_highway=1, max_characters_per_token=9)
LSTMS = LSTMConfig(dim=12, projection_dim=6, cell_clip=0.3, proj_clip=0.2)
MODELS = {
    "characters": BiLMConfig(LSTMS, CNN, n_softmax=13),
    "characters, one direction": BiLMConfig(LSTMS, CNN, n_softmax=13, bidirectional=False),
    "word table": BiLMConfig(LSTMS, None, n_words=13, n_softmax=13),
}


def model(name: str) -> BiLM:
    """Weights large enough for the clips."""
    torch.manual_seed(0)
    bilm: Any = BiLM(MODELS[name])
    with torch.no_grad():
        for weight in bilm.token_encoder.filters if bilm.config.char_cnn is not None else []:
            weight.mul_(8.0)
        for lstm in bilm.lstms:
            lstm.weight_input.mul_(2.0)
            lstm.weight_projection.mul_(2.0)
    model: BiLM = bilm
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_triton_computes_nothing_of_a_cpu(dtype: torch.dtype) -> None:
    assert not triton_computes(torch.zeros(2, dtype=dtype))


@on_a_gpu
@pytest.mark.gpu
def test_triton_computes_a_gpu_s_short_numbers() -> None:
    dtypes = torch.float64, torch.float32, torch.bfloat16, torch.float16
    known = torch.cuda.get_device_capability() >= (8, 0)
    found = [triton_computes(torch.zeros(2, dtype=dtype, device="cuda")) for dtype in dtypes]
    assert found == [False, known, known, False]


@pytest.mark.parametrize("name", MODELS)
def test_reference_reaches_every_part(name: str) -> None:
    bilm: Any = model(name)
    encoder = bilm.token_encoder
    parts = [*bilm.lstms] if name == "word table" else [*bilm.lstms, encoder, *encoder.highways]
    assert bilm.reference is False
    for reference in (True, False):
        bilm.reference = reference
        assert bilm.reference is reference
        assert {part.reference for part in parts} == {reference}


@pytest.mark.parametrize("needs_gradient", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_reference_or_not_a_cpu_gives_the_same(name: str, needs_gradient: bool) -> None:
    bilm = model(name)
    words = torch.from_numpy(np.stack([word_ids(TEXT[:6], 9)] * 3))
    ids = torch.randint(1, 14, (3, 6)) if name == "word table" else words
    ids[0, 4:] = 0
    found = []
    for reference in (False, True):
        bilm.reference = reference
        with torch.set_grad_enabled(needs_gradient):
            layers, state = bilm(ids)
        values = {"layers": layers.activations, "h": state.h, "c": state.c}
        if needs_gradient:
            loss = layers.activations.square().sum() + state.c.square().sum()
            leaves = {k: p for k, p in bilm.named_parameters() if not k.startswith("softmax.")}
            values |= dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        found.append(values)
    for which, value in found[1].items():
        torch.testing.assert_close(found[0][which], value, rtol=1e-5, atol=1e-6, msg=which)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As on a GPU: Triton takes whatever it is asked for, and the kernels that were asked are written down."""
    names: list[str] = []

    def written_down(module: Any, name: str) -> None:
        kernel = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: names.append(name) or kernel(*given))

    for module in (lstm_module, char_cnn_module, loss_module):
        monkeypatch.setattr(module, "triton_computes", lambda tensor: True)
    written_down(lstm_gpu, "lstm_gpu")
    written_down(char_cnn_gpu, "convolve_gpu")
    written_down(highway_gpu, "highway_gpu")
    written_down(softmax_gpu, "cross_entropy_gpu")
    return names


@pytest.mark.parametrize("negatives", [6, None], ids=["sampled", "full"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_by_the_kernels_is_a_reference_one(
    name: str, negatives: int | None, asked: list[str], tmp_path: Path
) -> None:
    """Two windows, from characters to the loss and back, the second from where the first one ended."""
    rng = np.random.default_rng(0)
    words = ["a", "of", "thé", "cat", "日本", "bird", "house", "window", "gradient", "syllable"]
    text = [[words[k] for k in rng.integers(0, 10, size=rng.integers(0, 9))] for _ in range(40)]
    corpus = Corpus.open(write_corpus(tmp_path / "corpus", [text], [], 13))
    found = []
    for reference in (False, True):
        bilm = model(name).to(DEVICE)
        bilm.reference = reference
        streams = Streams(corpus, 4, 5, directions=bilm.config.directions)
        characters = None if name == "word table" else 9
        batches = Batches(corpus, streams, corpus.vocabulary, max_characters=characters, negatives=negatives)
        state = bilm.zero_state(4)
        for step in range(2):
            parts = [part.to(torch.device(DEVICE)) for part in batches.of_step(step)]
            mean, state = accumulate(bilm, parts, state, dropout=0.0, scale=20.0, world=World())
        values = {which: parameter.grad.to_dense() for which, parameter in bilm.named_parameters()}
        found.append({**values, "losses": mean, "state.h": state.h, "state.c": state.c})
        kernels = {"lstm_gpu": 4, "cross_entropy_gpu": 2 * bilm.config.directions}
        if name != "word table":
            kernels |= {"convolve_gpu": 2, "highway_gpu": 2}
        assert {kernel: asked.count(kernel) for kernel in asked} == ({} if reference else kernels)
        asked.clear()
        for part, limit in zip(state, (0.2, 0.3), strict=True):  # the clips bite, and not on everything
            assert 0.02 < (part.abs() > limit - 1e-6).double().mean() < 0.9
    assert_close(found[0], {which: value.double() for which, value in found[1].items()}, FLOAT32)


def test_only_what_kernels_compute_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    bilm = model("characters")
    assert not graph.can_be_recorded(bilm)  # a CPU's
    monkeypatch.setattr(graph, "triton_computes", lambda tensor: True)
    assert graph.can_be_recorded(bilm)
    bilm.reference = True
    assert not graph.can_be_recorded(bilm)
