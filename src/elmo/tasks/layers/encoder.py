"""VECTORS ─▶ VECTORS IN CONTEXT: the task's own recurrent network, packed, so that padding is never read.

x (B, T, I), lengths (B,) ─▶ (B, T, 2H)
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """Bidirectional LSTM layers of H units in each direction, with dropout between them."""

    def __init__(self, input_dim: int, hidden: int, n_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        between = dropout if n_layers > 1 else 0.0
        self.lstm = nn.LSTM(input_dim, hidden, n_layers, batch_first=True, bidirectional=True, dropout=between)
        for name, parameter in self.lstm.named_parameters():
            if "weight_hh" in name:
                for gate in parameter.data.chunk(4):
                    nn.init.orthogonal_(gate)
            elif "weight_ih" in name:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
        for name, parameter in self.lstm.named_parameters():
            if "bias_ih" in name:
                parameter.data[hidden : 2 * hidden] = 1.0  # the forget gate's: remember at first

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Every token in the context of its sequence; zeros where there is no token. No sequence may be empty.

        The lengths are on the CPU: asking a GPU for them would make every step wait.
        """
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        read: PackedSequence = self.lstm(packed)[0]
        return pad_packed_sequence(read, batch_first=True, total_length=x.shape[1])[0]


class VariationalDropout(nn.Dropout):
    """Dropout that drops the same units of all tokens of a sequence: x (B, T, ·)."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop, in training."""
        if not self.training or not self.p:
            return input
        ones = torch.ones_like(input[:, :1])
        return input * nn.functional.dropout(ones, self.p)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension where the mask is true, zeros elsewhere: also where nothing is true."""
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1) * mask
