"""A biLM in plain PyTorch, as AllenNLP computes it, to compare with.

The character CNN reads every token of the padded batch, with 50 characters each. Each direction of each layer goes
through the sentences step by step, with two linear maps, gates and clips, on the rows that have not ended. The weights
and the results are the same as ours.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.model.bilm import BiLM
from elmo.model.char_cnn import CharCNN
from elmo.text.characters import sentence_ids


class PlainBiLM:
    def __init__(self, bilm: BiLM) -> None:
        self.config = bilm.config
        encoder = bilm.token_encoder
        assert isinstance(encoder, CharCNN) and self.config.char_cnn is not None
        dim = self.config.char_cnn.embedding_dim
        self.embedding = encoder.embedding.detach()
        self.filters = [
            weight.detach().view(width, dim, count).permute(2, 1, 0).contiguous()
            for (width, count), weight in zip(self.config.char_cnn.filters, encoder.filters, strict=True)
        ]
        self.biases = [bias.detach() for bias in encoder.biases]
        self.highways = [(h.weight.detach().t().contiguous(), h.bias.detach()) for h in encoder.highways]
        self.projection = (encoder.projection.detach().t().contiguous(), encoder.projection_bias.detach())
        self.cells = [
            [
                (
                    lstm.weight_input[d].detach().t().contiguous(),
                    lstm.bias[d].detach(),
                    lstm.weight_hidden[d].detach().t().contiguous(),
                    lstm.weight_projection[d].detach().t().contiguous(),
                )
                for lstm in bilm.lstms
            ]
            for d in range(2)
        ]

    @torch.inference_mode()
    def embed(self, sentences: list[list[str]]) -> list[Tensor]:
        """(L+1, tokens, 2D) per sentence."""
        ids = torch.from_numpy(sentence_ids(sentences, 50))
        lengths = [len(sentence) + 2 for sentence in sentences]
        tokens = self.tokens(ids.flatten(0, 1)).view(*ids.shape[:2], -1)  # (B, T, D)
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        layers = [torch.cat([tokens, tokens], dim=2)]
        descending = [lengths[row] for row in order]
        forward = backward = tokens[order]
        for depth in range(self.config.lstm.n_layers):
            outputs = []
            for direction, inputs in enumerate((forward, backward)):
                output = self.lstm(inputs, descending, self.cells[direction][depth], direction == 1)
                outputs.append(output + inputs if depth else output)
            forward, backward = outputs
            layer = torch.empty_like(layers[0])
            layer[order] = torch.cat(outputs, dim=2)
            layers.append(layer)
        stacked = torch.stack(layers)
        return [stacked[:, row, 1 : length - 1].clone() for row, length in enumerate(lengths)]

    def tokens(self, ids: Tensor) -> Tensor:
        characters = F.embedding(ids, self.embedding).transpose(1, 2)
        pooled = [
            torch.relu(F.conv1d(characters, weight, bias).amax(dim=2))
            for weight, bias in zip(self.filters, self.biases, strict=True)
        ]
        x = torch.cat(pooled, dim=1)
        for weight, bias in self.highways:
            carry, transform = F.linear(x, weight, bias).chunk(2, dim=1)
            gate = torch.sigmoid(carry)
            x = gate * torch.relu(transform) + (1 - gate) * x
        return F.linear(x, *self.projection)

    def lstm(self, inputs: Tensor, lengths: list[int], weights: tuple[Tensor, ...], backward: bool) -> Tensor:
        to_gates, bias, from_state, projection = weights
        config = self.config.lstm
        batch, longest, _ = inputs.shape
        h = inputs.new_zeros(batch, config.projection_dim)
        c = inputs.new_zeros(batch, config.dim)
        output = inputs.new_zeros(batch, longest, config.projection_dim)
        for t in reversed(range(longest)) if backward else range(longest):
            active = sum(length > t for length in lengths)
            gates = F.linear(inputs[:active, t], to_gates, bias) + F.linear(h[:active], from_state)
            i, f, o, candidate = gates.chunk(4, dim=1)
            cell = torch.sigmoid(f + 1.0) * c[:active] + torch.sigmoid(i) * torch.tanh(candidate)
            cell = cell.clamp(-config.cell_clip, config.cell_clip)
            hidden = F.linear(torch.sigmoid(o) * torch.tanh(cell), projection)
            hidden = hidden.clamp(-config.proj_clip, config.proj_clip)
            c, h = c.clone(), h.clone()
            c[:active], h[:active] = cell, hidden
            output[:active, t] = hidden
        return output
