"""One layer of LSTMs against PyTorch's LSTM, finite differences and a NumPy loop; every implementation alike."""

import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from elmo.errors import ConfigError
from elmo.model.kernels.lstm_inference import lstm_inference
from elmo.model.kernels.lstm_training import lstm_training
from elmo.model.lstm import FORGET_BIAS, LSTMConfig, ProjectedLSTM, State
from models import on

PATHS = ["training", "inference"]


def torch_lstm(ours: ProjectedLSTM, input_dim: int) -> torch.nn.LSTM:
    """PyTorch's LSTM with the same weights: gates i, f, candidate, o, and the forget bias of 1 in its bias."""
    h, d = ours.config.dim, ours.config.projection_dim
    theirs = torch.nn.LSTM(input_dim, h, proj_size=d if d != h else 0).double()
    i, f, o, candidate = (torch.arange(gate * h, (gate + 1) * h) for gate in range(4))
    order = torch.cat([i, f, candidate, o])
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.weight_input[0].t()[order])
        theirs.weight_hh_l0.copy_(ours.weight_hidden[0].t()[order])
        theirs.bias_ih_l0.copy_(ours.bias[0][order])
        theirs.bias_hh_l0.zero_()
        theirs.bias_hh_l0[h : 2 * h] = 1.0
        if d != h:
            theirs.weight_hr_l0.copy_(ours.weight_projection[0].t())
    return theirs


def packed_inputs(lengths: list[int], dim: int) -> PackedSequence:
    return pack_padded_sequence(torch.randn(lengths[0], len(lengths), dim, dtype=torch.float64), lengths)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("h", "d"), [(7, 3), (4, 4)])
def test_one_direction_without_clips_is_pytorch_s_lstm(h: int, d: int, path: str) -> None:
    torch.manual_seed(0)
    ours = ProjectedLSTM(5, LSTMConfig(h, d, cell_clip=None, proj_clip=None)).double()
    with torch.no_grad():
        ours.bias.normal_()
    packed = packed_inputs([6, 4, 4, 1], 5)
    state = State(torch.randn(1, 4, d).double(), torch.randn(1, 4, h).double())
    expected, after = torch_lstm(ours, 5)(packed, (state.h, state.c))
    with on(path, ours):
        outputs, end = ours(packed.data[None], packed.batch_sizes.tolist(), state)
    torch.testing.assert_close(outputs[0], expected.data, rtol=0, atol=1e-12)
    torch.testing.assert_close(end.h, after[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(end.c, after[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_directions_side_by_side_are_those_alone(path: str) -> None:
    torch.manual_seed(1)
    config = LSTMConfig(7, 3, cell_clip=0.4, proj_clip=0.2)
    both = ProjectedLSTM(5, config, directions=2).double()
    rows = [3, 3, 2, 1]
    inputs = torch.randn(2, sum(rows), 5).double()
    state = State(torch.randn(2, 3, 3).double(), torch.randn(2, 3, 7).double())
    with on(path, both):
        outputs, end = both(inputs, rows, state)
        for k in range(2):
            alone = ProjectedLSTM(5, config).double()
            alone.load_state_dict({name: tensor[k : k + 1] for name, tensor in both.state_dict().items()})
            expected, after = alone(inputs[k : k + 1], rows, State(*(part[k : k + 1] for part in state)))
            torch.testing.assert_close(outputs[k : k + 1], expected, rtol=0, atol=1e-12)
            torch.testing.assert_close(end.h[k : k + 1], after.h, rtol=0, atol=1e-12)
            torch.testing.assert_close(end.c[k : k + 1], after.c, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("h", "d"), [(4, 2), (3, 3)])
@pytest.mark.parametrize(("cell_clip", "proj_clip"), [(None, None), (0.5, 0.4)])
def test_gradients_of_the_reference(h: int, d: int, cell_clip: float | None, proj_clip: float | None) -> None:
    torch.manual_seed(2)
    lstm = ProjectedLSTM(2, LSTMConfig(h, d, cell_clip=cell_clip, proj_clip=proj_clip), directions=2).double()
    rows = [3, 2, 2, 1]
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_()
    names = [name for name, _ in lstm.named_parameters()]
    given = [torch.randn(2, sum(rows), 2), torch.randn(2, 3, d), torch.randn(2, 3, h), *lstm.parameters()]
    given = [tensor.detach().double().requires_grad_(True) for tensor in given]

    def run(
        inputs: torch.Tensor, h: torch.Tensor, c: torch.Tensor, *parameters: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        outputs, state = functional_call(lstm, dict(zip(names, parameters, strict=True)), (inputs, rows, State(h, c)))
        return outputs, *state

    outputs, _, c = run(*given)
    assert outputs.requires_grad
    if cell_clip is not None:  # both clips bite, and neither on everything
        assert 0 < (c.abs() == cell_clip).sum() < c.numel()
        if d != h:
            assert 0 < (outputs.abs() == proj_clip).sum() < outputs.numel()
    assert torch.autograd.gradcheck(run, given)


def by_numpy(
    lstm: ProjectedLSTM, inputs: np.ndarray, rows: list[int], h: np.ndarray, c: np.ndarray
) -> list[np.ndarray]:
    """One token of one sentence in one direction at a time."""
    weights = {name: parameter.detach().numpy() for name, parameter in lstm.named_parameters()}
    h, c = h.copy(), c.copy()
    outputs = np.zeros((*inputs.shape[:2], lstm.config.projection_dim))
    for s in range(len(inputs)):
        token = 0
        for active in rows:
            for b in range(active):
                gates = inputs[s, token] @ weights["weight_input"][s] + h[s, b] @ weights["weight_hidden"][s]
                i, f, o, candidate = np.split(gates + weights["bias"][s], 4)
                sigmoid = [1 / (1 + np.exp(-gate)) for gate in (i, f + FORGET_BIAS, o)]
                c[s, b] = np.clip(sigmoid[1] * c[s, b] + sigmoid[0] * np.tanh(candidate), -0.4, 0.4)
                h[s, b] = np.clip((sigmoid[2] * np.tanh(c[s, b])) @ weights["weight_projection"][s], -0.2, 0.2)
                outputs[s, token] = h[s, b]
                token += 1
    return [outputs, h, c]


@pytest.mark.parametrize("implementation", ["reference", "lstm_inference", "lstm_training"])
def test_every_implementation_gives_what_a_loop_over_tokens_gives(implementation: str) -> None:
    torch.manual_seed(4)
    lstm = ProjectedLSTM(5, LSTMConfig(7, 3, cell_clip=0.4, proj_clip=0.2), directions=2).double()
    with torch.no_grad():
        lstm.bias.normal_()
    rows = [3, 3, 2, 1]
    inputs, h, c = (torch.randn(2, n, d).double() for n, d in ((sum(rows), 5), (4, 3), (4, 7)))
    expected = by_numpy(lstm, inputs.numpy(), rows, h.numpy(), c.numpy())
    assert (np.abs(expected[2][:, :3]) == 0.4).any()  # the clip has an effect
    with torch.no_grad():
        if implementation == "reference":
            outputs, state = lstm.forward_reference(inputs, rows, State(h, c))
            found = [outputs, *state]
        else:
            kernel = {"lstm_inference": lstm_inference, "lstm_training": lstm_training}[implementation]
            found = list(kernel(inputs, rows, h, c, lstm.layer))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-12)


def test_a_layer_holds_the_weights_themselves() -> None:
    lstm = ProjectedLSTM(5, LSTMConfig(7, 3, cell_clip=None, proj_clip=2.0))
    layer = lstm.layer
    assert layer.weight_input is lstm.weight_input
    assert layer.weight_projection is lstm.weight_projection
    assert (layer.forget_bias, layer.cell_clip, layer.proj_clip) == (1.0, None, 2.0)
    assert ProjectedLSTM(4, LSTMConfig(4, 4)).layer.weight_projection is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dim": 0}, "lstm.dim is 0; expected an integer of at least 1"),
        ({"projection_dim": -1}, "lstm.projection_dim is -1; expected an integer of at least 1"),
        ({"n_layers": 0}, "lstm.n_layers is 0; expected an integer of at least 1"),
        ({"cell_clip": 0}, "lstm.cell_clip is 0; expected a positive number, or null for no clipping"),
        ({"proj_clip": -3.0}, "lstm.proj_clip is -3.0; expected a positive number, or null for no clipping"),
        ({"proj_clip": float("nan")}, "lstm.proj_clip is nan; expected a positive number, or null for no clipping"),
    ],
)
def test_lstms_that_cannot_be(given: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        LSTMConfig(**given)
