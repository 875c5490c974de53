"""VECTORS ─▶ VECTORS IN CONTEXT: a deep stack of LSTMs with highways, which read forwards and backwards in turn.

x (B, T, I) ─▶ its N tokens, step by step, the longest sequence first ─▶ (B, T, H)

The network of He et al. (2017), section 2: layer 1 reads from left to right, layer 2 reads the outputs of layer 1 from
right to left, and so on. A layer computes for each token x, with the output h and the cell c of the token read before,

    i, f, o, r = σ(x W + h U + b)     j = tanh(x W + h U + b)     k = x W + b       (one column block of W, U, b each)
    c = f·c + i·j                     h = z · (r·o·tanh(c) + (1 − r)·k)

r is the highway's gate: where it is 0, the token passes through unchanged but for a linear map. z is the recurrent
dropout: units dropped for the whole sequence, from what the next step and the next layer read.
"""

import torch
from torch import Tensor, nn

from elmo.model.kernels import triton_computes
from elmo.tasks.layers.encoder import Packed
from elmo.tasks.layers.highway_lstm_graph import RecordedLayers
from elmo.tasks.layers.highway_lstm_kernel import Reading, highway_lstm


class HighwayLSTM(nn.Module):
    """LSTM layers of H units with highways, in alternating directions, and one recurrent dropout mask per layer."""

    def __init__(self, input_dim: int, hidden: int, n_layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_dim = hidden
        self.dropout = dropout
        self.reference = False  # compute with `forward_reference` of the layers instead of a kernel
        self.recorded = True  # in training on a GPU, replay CUDA graphs instead of launching every step
        dims = [input_dim] + (n_layers - 1) * [hidden]
        self.layers = nn.ModuleList(
            HighwayLSTMLayer(dim, hidden, backwards=number % 2 == 1) for number, dim in enumerate(dims)
        )
        self._recordings = RecordedLayers()

    def forward(self, x: Tensor, packed: Packed) -> Tensor:
        """Encode every token in the context of its sequence; zeros where there is no token."""
        reading = Reading.of(packed.rows, x.device)
        tokens = self._layers_of(packed.tokens(x), reading, self._dropout_masks(reading.rows[0]))  # (N, H)
        return packed.padded(tokens, x)

    def _layers_of(self, tokens: Tensor, reading: Reading, masks: Tensor) -> Tensor:
        """Run all layers over packed tokens: (N, I) ─▶ (N, H)."""
        record = self.recorded and not self.reference and self.training and torch.is_grad_enabled()
        if record and triton_computes(tokens):
            outputs = self._recordings(tokens, reading, masks, list(self.parameters()))
            if outputs is not None:
                return outputs
        for layer, mask in zip(self.layers, masks, strict=True):
            assert isinstance(layer, HighwayLSTMLayer)
            run = layer.forward_reference if self.reference else layer
            tokens = run(tokens, reading, mask)
        return tokens

    def _dropout_masks(self, batch: int) -> Tensor:
        """Draw the units to keep, (L, B, H), of each layer and sequence, longest first; ones outside of training."""
        ones = next(self.parameters()).new_ones(len(self.layers), batch, self.output_dim)
        return nn.functional.dropout(ones, self.dropout, self.training)


class HighwayLSTMLayer(nn.Module):
    """One layer. The blocks of its matrices are in the order i, f, o, r, j, k; the last has no recurrent part."""

    def __init__(self, input_dim: int, hidden: int, *, backwards: bool = False) -> None:
        super().__init__()
        self.backwards = backwards
        self.weight_input = nn.Parameter(torch.empty(input_dim, 6 * hidden))
        self.weight_hidden = nn.Parameter(torch.empty(hidden, 5 * hidden))
        self.bias = nn.Parameter(torch.zeros(6 * hidden))
        for weight, blocks in ((self.weight_input, 6), (self.weight_hidden, 5)):
            for block in weight.data.chunk(blocks, dim=1):
                block.copy_(nn.init.orthogonal_(torch.empty_like(block)))
        self.bias.data[hidden : 2 * hidden] = 1.0  # of the forget gate: remember at first

    def forward(self, x: Tensor, reading: Reading, mask: Tensor) -> Tensor:
        """Compute the outputs of packed tokens, with a dropout mask (B, H): (N, I) ─▶ (N, H)."""
        return highway_lstm(
            x, self.weight_input, self.weight_hidden, self.bias, mask, reading=reading, backwards=self.backwards
        )

    def forward_reference(self, x: Tensor, reading: Reading, mask: Tensor) -> Tensor:
        """Compute the same as `forward`, readably. The kernels give the same numbers faster."""
        rows = reading.rows
        size = self.weight_hidden.shape[0]
        h = c = x.new_zeros(rows[0], size)
        steps = (x @ self.weight_input + self.bias).split_with_sizes(rows)  # T tensors of (rows[t], 6H)
        outputs: dict[int, Tensor] = {}
        for t in reversed(range(len(rows))) if self.backwards else range(len(rows)):
            active = rows[t]  # the others have ended or, backwards, have not begun: their state stays
            gates, k = steps[t].split_with_sizes([5 * size, size], dim=1)
            gates = gates + h[:active] @ self.weight_hidden
            i, f, o, r = torch.sigmoid(gates[:, : 4 * size]).chunk(4, dim=1)
            cell = f * c[:active] + i * torch.tanh(gates[:, 4 * size :])
            output = mask[:active] * (r * o * torch.tanh(cell) + (1 - r) * k)
            outputs[t] = output
            h, c = (torch.cat([new, old[active:]]) for new, old in ((output, h), (cell, c)))
        return torch.cat([outputs[t] for t in range(len(rows))])
