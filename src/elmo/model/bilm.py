"""IDS ─▶ LAYERS: the bidirectional language model (paper, sections 3.1 and 3.4).

ids (B, T, C) ─▶ token encoder, once per distinct word ─▶ L LSTM layers in both directions ─▶ Layers (L+1, B, T, 2D)
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.char_cnn import CharCNN, CharCNNConfig
from elmo.model.layers import Layers
from elmo.model.lstm import LSTMConfig, ProjectedLSTM, State
from elmo.model.numbers import whole
from elmo.model.packing import Packing

PRESETS = {"small": (1024, 128, 1), "medium": (2048, 256, 1), "original": (4096, 512, 2)}  # H, D, highways


@dataclass(frozen=True)
class BiLMConfig:
    """What a biLM is made of. The defaults are the paper's model, 93.6 million parameters."""

    lstm: LSTMConfig = field(default_factory=LSTMConfig)
    char_cnn: CharCNNConfig | None = field(default_factory=CharCNNConfig)  # none: words enter by their id
    n_words: int | None = None  # V of the word table, where there is no char CNN
    n_softmax: int | None = None  # V of the softmax, where there is one

    def __post_init__(self) -> None:
        if (self.char_cnn is None) == (self.n_words is None):
            raise ConfigError("a biLM reads either characters (char_cnn) or words (n_words): give exactly one")
        for name in ("n_words", "n_softmax"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))

    @classmethod
    def preset(cls, name: str) -> "BiLMConfig":
        """The published sizes: small, medium, original."""
        if name not in PRESETS:
            raise ConfigError(f"no preset {name!r}; expected one of {', '.join(PRESETS)}")
        dim, projection_dim, n_highway = PRESETS[name]
        return cls(LSTMConfig(dim=dim, projection_dim=projection_dim), CharCNNConfig(n_highway=n_highway))

    @property
    def n_layers(self) -> int:
        """How many layers a task may mix: the tokens' and the LSTMs'."""
        return self.lstm.n_layers + 1

    @property
    def output_dim(self) -> int:
        """2D: both directions of every layer."""
        return 2 * self.lstm.projection_dim


class WordTable(nn.Module):
    """The token encoder of a model without characters: one vector per word of a fixed vocabulary."""

    def __init__(self, n_words: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(n_words + 1, dim))  # row 0: no token
        if not self.embedding.is_meta:
            self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Normal values, and zeros for no token."""
        self.embedding.normal_(0.0, self.embedding.shape[1] ** -0.5)
        self.embedding[0] = 0.0

    def forward(self, ids: Tensor) -> Tensor:
        """Word ids (N,) ─▶ token vectors (N, D)."""
        return self.embedding[ids]


class Softmax(nn.Module):
    """The language model's last layer, one for both directions: (N, D) ─▶ scores of V words."""

    def __init__(self, n_words: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_words, dim))
        self.bias = nn.Parameter(torch.empty(n_words))
        if not self.weight.is_meta:
            self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """The original's initial values."""
        self.weight.normal_(0.0, self.weight.shape[1] ** -0.5)
        self.bias.zero_()

    def forward(self, hidden: Tensor) -> Tensor:
        """(N, D) ─▶ log-probabilities (N, V)."""
        return torch.log_softmax(torch.addmm(self.bias, hidden, self.weight.t()), dim=1)


class BiLM(nn.Module):
    """A token encoder and two stacks of LSTMs, one per direction.

    New, it has the original's initial values; built on the meta device, none: `weights/` gives it a file's.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.lstm.projection_dim
        self.token_encoder = (
            CharCNN(config.char_cnn, dim) if config.char_cnn is not None else WordTable(config.n_words or 0, dim)
        )
        self.lstms = nn.ModuleList(ProjectedLSTM(dim, config.lstm, directions=2) for _ in range(config.lstm.n_layers))
        self.softmax = Softmax(config.n_softmax, dim) if config.n_softmax is not None else None

    def zero_state(self, batch: int) -> State:
        """The state before any text."""
        lstm, weight = self.config.lstm, next(self.lstms.parameters())
        h = weight.new_zeros(lstm.n_layers, 2, batch, lstm.projection_dim)
        c = torch.zeros(lstm.n_layers, 2, batch, lstm.dim, device=weight.device, dtype=torch.float32)
        return State(h, c if weight.dtype != torch.float64 else c.double())

    def forward(self, ids: Tensor, state: State | None = None) -> tuple[Layers, State]:
        """Character ids (B, T, C), or word ids (B, T), boundaries included ─▶ layers, and the state after them."""
        mask = ids > 0 if ids.dim() == 2 else (ids > 0).any(dim=2)  # (B, T)
        packing = Packing.of(mask.sum(dim=1).tolist())
        sentence, step = self._index(packing.sentence), self._index(packing.step)
        words, index = torch.unique(ids[sentence, step], dim=0, return_inverse=True)
        layers, state = self.contextualize(self.token_encoder(words)[index], packing, state)
        activations = layers[0].new_zeros(len(layers), *mask.shape, layers[0].shape[1])
        activations[:, sentence, step] = torch.stack(layers)
        return Layers(activations, mask), state

    def contextualize(
        self, tokens: Tensor, packing: Packing, state: State | None = None
    ) -> tuple[list[Tensor], State]:
        """Packed token vectors (N, D) ─▶ every layer (N, 2D), packed, and the state after each sentence."""
        order, mirror = self._index(packing.order), self._index(packing.mirror)
        h, c = state if state is not None else self.zero_state(len(packing.order))
        h, c = h[:, :, order], c[:, :, order]
        inputs = torch.stack([tokens, tokens[mirror]])  # (S, N, D): the backward LSTM reads from the other end
        layers = [torch.cat([tokens, tokens], dim=1)]
        states: list[State] = []
        for depth, lstm in enumerate(self.lstms):
            outputs, after = lstm(inputs, packing.rows, State(h[depth], c[depth]))
            if depth > 0 and self.config.lstm.use_skip_connections:
                outputs = outputs + inputs
            layers.append(torch.cat([outputs[0], outputs[1][mirror]], dim=1))
            states.append(after)
            inputs = outputs
        back = torch.argsort(order)
        return layers, State(*(torch.stack(parts)[:, :, back] for parts in zip(*states, strict=True)))

    def n_parameters(self) -> int:
        """How many numbers were learned: the row that means "no token" and the softmax are not counted."""
        rows = self.token_encoder.embedding
        total = sum(p.numel() for name, p in self.named_parameters() if not name.startswith("softmax."))
        return total - rows.shape[1]

    def _index(self, rows: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(rows).to(next(self.lstms.parameters()).device)
