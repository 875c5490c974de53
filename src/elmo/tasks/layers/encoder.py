"""VECTORS ─▶ VECTORS IN CONTEXT: the recurrent network of a task. Padding has no effect on the vectors of tokens.

x (B, T, I) ─▶ its rows in an order: `Packed` on a CPU, `Padded` on a GPU ─▶ (B, T, 2H)

A layer has two networks. The second reads every sequence from its last token to its first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.model.device import to_device
from elmo.model.packing import Packing
from elmo.tasks.layers.packed_rnn import Network, packed_rnn


@dataclass(frozen=True)
class Packed:
    """The places of the tokens of a padded batch, in the order in which a recurrent network reads them."""

    places: Tensor  # (N,) among the B · T
    mirror: Tensor  # (N,) the row of the token as far from the end of its sequence as this one is from its start
    rows: tuple[int, ...]  # (T,) the number of sequences with a token at each step

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "Packed":
        """Pack sequences of these lengths, none of them 0."""
        packing = Packing.of(lengths)
        places = packing.sentence * len(packing.rows) + packing.step
        return cls(torch.from_numpy(places), torch.from_numpy(packing.mirror), tuple(packing.rows))

    def to(self, device: torch.device) -> "Packed":
        """Return the same for a batch on a device."""
        return Packed(to_device(self.places, device), to_device(self.mirror, device), self.rows)

    def tokens(self, x: Tensor) -> Tensor:
        """Return the tokens of x (B, T, ·) in this order, (N, ·)."""
        return x.flatten(0, 1).index_select(0, self.places)

    def padded(self, tokens: Tensor, like: Tensor) -> Tensor:
        """Put tokens (N, ·) back to their places in a batch `like` (B, T, ·): (B, T, ·), zeros elsewhere."""
        rows = tokens.new_zeros(like.shape[0] * like.shape[1], tokens.shape[1])
        return rows.index_copy_(0, self.places, tokens).view(*like.shape[:2], -1)

    def run(self, forwards: Network, backwards: Network, tokens: Tensor) -> Tensor:
        """Run a network of each direction over tokens (N, ·): (N, 2H)."""
        both = torch.stack([tokens, tokens.index_select(0, self.mirror)])
        ahead, back = packed_rnn([forwards, backwards], both, self.rows)
        return torch.cat([ahead, back.index_select(0, self.mirror)], dim=1)


@dataclass(frozen=True)
class Padded:
    """The rows of a padded batch, step by step: T · B rows, with padding behind the tokens of each sequence.

    All steps have the same number of rows, and nothing has to be known on the CPU. So these steps can be recorded.
    """

    mask: Tensor  # (B, T)
    mirror: Tensor  # (T · B,) like `Packed.mirror`; a row of padding has its own number

    @classmethod
    def of(cls, lengths: Sequence[int], n_steps: int | None = None) -> "Padded":
        """Arrange sequences of these lengths, padded to `n_steps`, by default to the longest."""
        given, step = torch.tensor(lengths), torch.arange(n_steps or max(lengths))[:, None]
        is_token = step < given  # (T, B)
        mirror = torch.where(is_token, given - 1 - step, step) * len(given) + torch.arange(len(given))
        return cls(is_token.T.contiguous(), mirror.flatten())

    def tokens(self, x: Tensor) -> Tensor:
        """Return the rows of x (B, T, ·) in this order, (T · B, ·)."""
        return x.transpose(0, 1).flatten(0, 1)

    def padded(self, tokens: Tensor, like: Tensor) -> Tensor:
        """Put rows (T · B, ·) back to their places in a batch `like` (B, T, ·): (B, T, ·), zeros elsewhere."""
        return tokens.view(like.shape[1], like.shape[0], -1).transpose(0, 1) * self.mask[..., None]

    def run(self, forwards: Network, backwards: Network, tokens: Tensor) -> Tensor:
        """Run a network of each direction over rows (T · B, ·): (T · B, 2H)."""
        ahead = self._run(forwards, tokens)
        back = self._run(backwards, tokens.index_select(0, self.mirror)).index_select(0, self.mirror)
        return torch.cat([ahead, back], dim=1)

    def _run(self, network: Network, tokens: Tensor) -> Tensor:
        steps: Tensor = network(tokens.view(self.mask.shape[1], self.mask.shape[0], -1))[0]
        return steps.flatten(0, 1)


Order = Packed | Padded


class _Layer(nn.Module):
    """Two networks of H units, one for each direction: rows (N, ·) in an order ─▶ (N, 2H)."""

    def __init__(self, network: type[Network], input_dim: int, hidden: int) -> None:
        super().__init__()
        self.forwards = network(input_dim, hidden)
        self.backwards = network(input_dim, hidden)

    def forward(self, tokens: Tensor, order: Order) -> Tensor:
        """Run both."""
        return order.run(self.forwards, self.backwards, tokens)


class BiLSTM(nn.Module):
    """Bidirectional LSTM layers of H units in each direction, with dropout between them.

    nn.LSTM has dropout of its own, but cuDNN keeps a state for it that no seed resets.
    """

    def __init__(self, input_dim: int, hidden: int, n_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        dims = [input_dim] + (n_layers - 1) * [self.output_dim]
        self.layers = nn.ModuleList(_Layer(nn.LSTM, dim, hidden) for dim in dims)
        self.dropout = nn.Dropout(dropout)
        _initialize(self.layers, gates=4)
        for name, parameter in self.layers.named_parameters():
            if "bias_ih" in name:
                parameter.data[hidden : 2 * hidden] = 1.0  # of the forget gate: remember at first

    def forward(self, x: Tensor, order: Order) -> Tensor:
        """Encode every token in the context of its sequence; zeros where there is no token."""
        tokens = order.tokens(x)  # (N, I)
        for number, layer in enumerate(self.layers):
            tokens = layer(self.dropout(tokens) if number else tokens, order)  # (N, 2H)
        return order.padded(tokens, x)


class BiGRU(nn.Module):
    """A bidirectional GRU layer of H units in each direction."""

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        self.layer = _Layer(nn.GRU, input_dim, hidden)
        _initialize(self.layer, gates=3)

    def forward(self, x: Tensor, order: Order) -> Tensor:
        """Encode every token in the context of its sequence; zeros where there is no token."""
        return order.padded(self.layer(order.tokens(x), order), x)


def _initialize(network: nn.Module, gates: int) -> None:
    """Draw orthogonal recurrent weights for each gate, and set biases to 0."""
    for name, parameter in network.named_parameters():
        if "weight_hh" in name:
            for gate in parameter.data.chunk(gates):
                nn.init.orthogonal_(gate)
        elif "weight_ih" in name:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)


class VariationalDropout(nn.Dropout):
    """Dropout that drops the same units of all tokens of a sequence: x (B, T, ·)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply dropout, in training only."""
        if not self.training or not self.p:
            return input
        ones = torch.ones_like(input[:, :1])
        return input * nn.functional.dropout(ones, self.p)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute a softmax over the last dimension where the mask is true; zeros elsewhere, also if it is never true."""
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(torch.where(mask, scores, lowest), dim=-1) * mask
