"""VECTORS ─▶ VECTORS IN CONTEXT: the recurrent network of a task, packed, so that padding is never read.

x (B, T, I) ─▶ its N tokens, step by step, the longest sequence first ─▶ (B, T, 2H)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from elmo.model.device import to_device
from elmo.model.packing import Packing


@dataclass(frozen=True)
class Packed:
    """The places of the tokens of a padded batch, in the order in which a recurrent network reads them."""

    places: Tensor  # (N,) among the B · T
    active: Tensor  # (T,) the number of sequences with a token at each step; on the CPU, as PyTorch requires

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "Packed":
        """Pack sequences of these lengths, none of them 0."""
        packing = Packing.of(lengths)
        places = packing.sentence * len(packing.rows) + packing.step
        return cls(torch.from_numpy(places), torch.tensor(packing.rows))

    def to(self, device: torch.device) -> "Packed":
        """Return the same for a batch on a device."""
        return Packed(to_device(self.places, device), self.active)

    def tokens(self, x: Tensor) -> Tensor:
        """Return the tokens of x (B, T, ·) in this order, (N, ·)."""
        return x.flatten(0, 1).index_select(0, self.places)

    def padded(self, tokens: Tensor, like: Tensor) -> Tensor:
        """Put tokens (N, ·) back to their places in a batch `like` (B, T, ·): (B, T, ·), zeros elsewhere."""
        rows = tokens.new_zeros(like.shape[0] * like.shape[1], tokens.shape[1])
        return rows.index_copy_(0, self.places, tokens).view(*like.shape[:2], -1)


class BiLSTM(nn.Module):
    """Bidirectional LSTM layers of H units in each direction, with dropout between them.

    nn.LSTM has dropout of its own, but cuDNN keeps a state for it that no seed resets.
    """

    def __init__(self, input_dim: int, hidden: int, n_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        dims = [input_dim] + (n_layers - 1) * [self.output_dim]
        self.layers = nn.ModuleList(nn.LSTM(dim, hidden, bidirectional=True) for dim in dims)
        self.dropout = nn.Dropout(dropout)
        _initialize(self.layers, gates=4)
        for name, parameter in self.layers.named_parameters():
            if "bias_ih" in name:
                parameter.data[hidden : 2 * hidden] = 1.0  # of the forget gate: remember at first

    def forward(self, x: Tensor, packed: Packed) -> Tensor:
        """Encode every token in the context of its sequence; zeros where there is no token."""
        tokens = packed.tokens(x)  # (N, I)
        for number, layer in enumerate(self.layers):
            read: PackedSequence = layer(PackedSequence(self.dropout(tokens) if number else tokens, packed.active))[0]
            tokens = read.data  # (N, 2H)
        return packed.padded(tokens, x)


class BiGRU(nn.Module):
    """A bidirectional GRU layer of H units in each direction."""

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        self.layer = nn.GRU(input_dim, hidden, bidirectional=True)
        _initialize(self.layer, gates=3)

    def forward(self, x: Tensor, packed: Packed) -> Tensor:
        """Encode every token in the context of its sequence; zeros where there is no token."""
        read: PackedSequence = self.layer(PackedSequence(packed.tokens(x), packed.active))[0]
        return packed.padded(read.data, x)


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
