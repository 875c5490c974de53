"""The building blocks of task models: biLSTM and biGRU, dropout of whole units, a softmax over what exists."""

import numpy as np
import pytest
import torch
from torch import nn

from elmo.tasks.layers.encoder import BiGRU, BiLSTM, Order, Packed, Padded, VariationalDropout, masked_softmax
from elmo.tasks.layers.packed_rnn import packed_rnn
from tasks.both_directions import both_directions

LENGTHS = [3, 5, 1, 5, 2]
ORDERS = [Packed.of(LENGTHS), Padded.of(LENGTHS)]


def test_packed_places_are_step_after_step_and_the_longest_sequence_first() -> None:
    packed = Packed.of([2, 3, 1])
    assert packed.rows == (3, 2, 1)
    assert [divmod(place, 3) for place in packed.places.tolist()] == [(1, 0), (0, 0), (2, 0), (1, 1), (0, 1), (1, 2)]


def test_padded_rows_are_mirrored_inside_each_sequence() -> None:
    padded = Padded.of([2, 3, 1], 4)
    rows = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 0], [6, 0, 0, 0]])
    assert torch.equal(padded.mask, rows > 0)
    steps = padded.tokens(rows[..., None])
    assert steps.flatten().tolist() == [1, 3, 6, 2, 4, 0, 0, 5, 0, 0, 0, 0]
    assert padded.padded(steps[padded.mirror], rows)[..., 0].tolist() == [[2, 1, 0, 0], [5, 4, 3, 0], [6, 0, 0, 0]]


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_a_sequence_is_encoded_as_if_it_were_alone(n_layers: int, order: Order) -> None:
    """By nn.LSTM, sequence by sequence, without an order; padding may contain anything."""
    torch.manual_seed(0)
    network = BiLSTM(4, 3, n_layers, dropout=0.5).eval()
    x = torch.randn(5, 5, 4)
    encoded = network(x, order)
    assert encoded.shape == (5, 5, network.output_dim)
    for row, length in enumerate(LENGTHS):
        alone = x[row, :length]
        for layer in network.layers:
            alone = both_directions(layer, alone)
        torch.testing.assert_close(encoded[row, :length], alone, rtol=0, atol=1e-5)
        assert not encoded[row, length:].any()


@pytest.mark.parametrize("kind", [BiLSTM, BiGRU])
@pytest.mark.parametrize("order", ORDERS)
def test_the_gradient_is_that_of_each_sequence_alone(kind: type[BiLSTM | BiGRU], order: Order) -> None:
    """By nn.LSTM or nn.GRU, sequence by sequence: with respect to the vectors and to all weights."""
    torch.manual_seed(0)
    network = BiLSTM(4, 3, 2) if kind is BiLSTM else BiGRU(4, 3)
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -1, 1)
    x, wanted = torch.randn(5, 5, 4, requires_grad=True), torch.randn(5, 5, 6)
    network(x, order).mul(wanted).sum().backward()
    parameters = [x, *network.parameters()]
    found = [parameter.grad for parameter in parameters]
    total = torch.zeros(())
    for row, length in enumerate(LENGTHS):
        alone = x[row, :length]
        for layer in network.layers if isinstance(network, BiLSTM) else [network.layer]:
            alone = both_directions(layer, alone)
        total = total + (alone * wanted[row, :length]).sum()
    torch.testing.assert_close(found, list(torch.autograd.grad(total, parameters)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_autocast_changes_nothing_in_packed_sequences(kind: type[nn.LSTM | nn.GRU]) -> None:
    torch.manual_seed(0)
    networks, inputs = [kind(4, 3), kind(4, 3)], torch.randn(2, 9, 4, requires_grad=True)
    rounded = inputs.detach().bfloat16()  # as a layer before it leaves them in autocast
    assert torch.equal(packed_rnn(networks, rounded, [4, 3, 2]), packed_rnn(networks, rounded.float(), [4, 3, 2]))
    gradients = []
    for enabled in (False, True):
        with torch.autocast("cpu", enabled=enabled):
            outputs = packed_rnn(networks, inputs, [4, 3, 2])
            gradients.append((outputs, *torch.autograd.grad(outputs.square().sum(), inputs)))
    assert gradients[0][0].dtype == gradients[1][0].dtype == torch.float32
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("order", ORDERS)
def test_a_gru_encodes_a_sequence_as_if_it_were_alone(order: Order) -> None:
    torch.manual_seed(0)
    network = BiGRU(4, 3)
    x = torch.randn(5, 5, 4)
    encoded = network(x, order)
    assert encoded.shape == (5, 5, network.output_dim)
    for row, length in enumerate(LENGTHS):
        alone = both_directions(network.layer, x[row, :length])
        torch.testing.assert_close(encoded[row, :length], alone, rtol=0, atol=1e-5)
        assert not encoded[row, length:].any()
    for name, parameter in network.named_parameters():
        if "bias" in name:
            assert not parameter.any()
        if "weight_hh" in name:
            for gate in parameter.detach().chunk(3):
                torch.testing.assert_close(gate @ gate.T, torch.eye(3))


def test_the_forget_gate_is_open_at_first() -> None:
    layer = BiLSTM(4, 3).layers[0]
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            assert parameter.tolist() == [0.0] * 3 + [float("bias_ih" in name)] * 3 + [0.0] * 6, name
        if "weight_hh" in name:
            for gate in parameter.detach().chunk(4):
                torch.testing.assert_close(gate @ gate.T, torch.eye(3))


def test_variational_dropout_drops_a_unit_of_all_tokens_or_of_none() -> None:
    torch.manual_seed(0)
    dropout = VariationalDropout(0.4)
    x = torch.ones(200, 7, 50)
    dropped = dropout(x)
    np.testing.assert_allclose(np.unique(dropped.numpy()), [0, 1 / 0.6], rtol=1e-6)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert 0.38 < (dropped[:, 0] == 0).float().mean() < 0.42
    assert dropout.eval()(x) is x


def test_a_masked_softmax_is_that_of_what_the_mask_leaves() -> None:
    scores = torch.tensor([[1.0, 2.0, 9.0], [0.0, -1e9, 1e9], [1.0, 2.0, 3.0]])
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    e = np.exp([1.0, 2.0])
    wanted = [[*(e / e.sum()), 0], [1, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(masked_softmax(scores, mask), wanted, atol=1e-6)
