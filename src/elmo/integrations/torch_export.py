"""A MODEL ─▶ TWO FILES OF torch.export, to run it with PyTorch alone, without this library.

    token_encoder.pt2    ids (words, C) of distinct words                       ─▶ vectors (words, D)
    lstms.pt2            tokens (B, T, D), boundaries included; lengths (B,)     ─▶ layers (L+1, B, T, 2D)

The same two graphs as in `onnx.py`, with the same inputs and outputs; all axes but the widths may have any size.
A loop over a number of tokens that is not known needs PyTorch's `scan`, which is not yet part of its public interface:
a file is for the PyTorch that wrote it, and later versions may refuse it.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from elmo.errors import ElmoError
from elmo.files import new_folder, refuse_existing
from elmo.model.bilm import BiLM
from elmo.model.char_cnn import ACTIVATIONS, CharCNN, Highway
from elmo.model.lstm import FORGET_BIAS, ProjectedLSTM, clip
from elmo.model.many_langs_encoder import ManyLangsEncoder

TOKEN_ENCODER, LSTMS = "token_encoder.pt2", "lstms.pt2"


def export_torch(bilm: BiLM, folder: Path) -> tuple[Path, Path]:
    """Write both files into a new folder; return where they are."""
    refuse_existing(folder)
    words, batch, time = Dim("words"), Dim("batch"), Dim("time")
    config = bilm.config
    ids = torch.ones(2, dtype=torch.long) if config.n_words is not None else torch.ones(2, len(config.last_ids)).long()
    tokens, lengths = torch.zeros(3, 4, config.lstm.projection_dim), torch.tensor([4, 1, 2])
    programs = {
        TOKEN_ENCODER: _program(_TokenEncoder(bilm), {"ids": ids}, {"ids": {0: words}}),
        LSTMS: _program(
            _LSTMs(bilm),
            {"tokens": tokens, "lengths": lengths},
            {"tokens": {0: batch, 1: time}, "lengths": {0: batch}},
        ),
    }
    with new_folder(folder) as temporary:
        for name, program in programs.items():
            torch.export.save(program, temporary / name)
    return folder / TOKEN_ENCODER, folder / LSTMS


@torch.no_grad()
def _program(module: nn.Module, inputs: dict[str, Tensor], sizes: dict[str, Any]) -> Any:
    return torch.export.export(module.eval(), (), inputs, dynamic_shapes=sizes, strict=False)


class _TokenEncoder(nn.Module):
    """The token encoder without a choice that depends on the words: every word has all its characters."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.encoder = bilm.token_encoder

    def forward(self, ids: Tensor) -> Tensor:
        """Ids ─▶ vectors (words, D)."""
        encoder = self.encoder
        if isinstance(encoder, CharCNN):
            return _char_cnn(encoder, ids)
        if not isinstance(encoder, ManyLangsEncoder):
            vectors: Tensor = encoder(ids)
            return vectors
        parts = []
        if encoder.word_embedding is not None:
            parts.append(nn.functional.embedding(ids[:, 0], encoder.word_embedding))
            ids = ids[:, 1:]
        if encoder.char_cnn is not None:
            parts.append(_char_cnn(encoder.char_cnn, ids))
        return torch.cat(parts, dim=1) @ encoder.projection + encoder.projection_bias


def _char_cnn(cnn: CharCNN, ids: Tensor) -> Tensor:
    """Ids (N, C) ─▶ vectors."""
    characters = nn.functional.embedding(ids, cnn.embedding).mT  # (N, E, C)
    pooled = []
    for (width, count), weight, bias in zip(cnn.config.filters, cnn.filters, cnn.biases, strict=True):
        kernel = weight.view(width, cnn.config.embedding_dim, count).permute(2, 1, 0)
        pooled.append(nn.functional.conv1d(characters, kernel, bias).amax(dim=2))
    x = ACTIVATIONS[cnn.config.activation](torch.cat(pooled, dim=1))
    for highway in cnn.highways:
        assert isinstance(highway, Highway)
        carry, transform = (x @ highway.weight + highway.bias).chunk(2, dim=1)
        x = torch.lerp(x, torch.relu(transform), torch.sigmoid(carry))
    if cnn.projection is not None and cnn.projection_bias is not None:
        x = x @ cnn.projection + cnn.projection_bias
    return x


class _LSTMs(nn.Module):
    """The LSTMs over padded sentences, every sentence from zeros."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.lstms = bilm.lstms
        self.config = bilm.config

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Tokens (B, T, D) and lengths (B,) ─▶ layers (L+1, B, T, 2D), zero where there is no token."""
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        mask = (steps[:, None] < lengths)[:, :, None]  # (T, B, 1)
        first = tokens.transpose(0, 1) * mask
        layers = [[first] * self.config.directions]
        for depth, lstm in enumerate(self.lstms):
            assert isinstance(lstm, ProjectedLSTM)
            outputs = [_scan(lstm, direction, inputs, mask) for direction, inputs in enumerate(layers[-1])]
            if depth > 0 and self.config.lstm.use_skip_connections:
                outputs = [output + inputs for output, inputs in zip(outputs, layers[-1], strict=True)]
            layers.append(outputs)
        return torch.stack([torch.cat(both, dim=2) for both in layers]).transpose(1, 2)


def _scan(lstm: ProjectedLSTM, direction: int, inputs: Tensor, mask: Tensor) -> Tensor:
    """Run one LSTM of one direction: inputs (T, B, D) ─▶ outputs (T, B, D)."""
    try:
        from torch._higher_order_ops.scan import scan
    except ImportError as error:
        raise ElmoError(f"torch {torch.__version__} has no scan; --format torch-export needs a later one") from error
    config = lstm.config
    forget = torch.zeros(4 * config.dim, device=inputs.device)
    forget[config.dim : 2 * config.dim] = FORGET_BIAS
    gates = inputs @ lstm.weight_input[direction] + (lstm.bias[direction] + forget)
    hidden = lstm.weight_hidden[direction]
    projection = lstm.weight_projection[direction] if lstm.weight_projection is not None else None

    def step(state: tuple[Tensor, Tensor], now: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        (h, c), (gates_now, present) = state, now
        i, f, o, candidate = (gates_now + h @ hidden).chunk(4, dim=1)
        new_c = clip(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(candidate), config.cell_clip)
        new_h = torch.sigmoid(o) * torch.tanh(new_c)
        if projection is not None:
            new_h = clip(new_h @ projection, config.proj_clip)
        return (torch.where(present, new_h, h), torch.where(present, new_c, c)), new_h * present

    start = tuple(inputs.new_zeros(inputs.shape[1], width) for width in (config.projection_dim, config.dim))
    outputs: Tensor = scan(step, start, (gates, mask), dim=0, reverse=direction == 1)[1]
    return outputs
