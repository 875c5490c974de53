"""IDS ─▶ LAYERS: the bidirectional language model (paper, sections 3.1 and 3.4).

ids (B, T, C) ─▶ token encoder, once per distinct word ─▶ L LSTM layers in both directions ─▶ Layers (L+1, B, T, 2D)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmo.errors import ConfigError, DataError
from elmo.model.char_cnn import CharCNN, CharCNNConfig, Highway
from elmo.model.checks import check_integer
from elmo.model.device import without_autocast
from elmo.model.layers import Layers
from elmo.model.lstm import LSTMConfig, ProjectedLSTM, State
from elmo.model.packing import Packing
from elmo.model.softmax import Softmax, log_probabilities

PRESETS = {"small": (1024, 128, 1), "medium": (2048, 256, 1), "original": (4096, 512, 2)}  # H, D, highways
TINY_FILTERS = ((1, 16), (2, 32), (3, 64), (4, 64), (5, 80))  # of the preset that a CPU trains in minutes


@dataclass(frozen=True)
class BiLMConfig:
    """What a biLM is made of. The defaults are the paper's model, 93.6 million parameters."""

    lstm: LSTMConfig = field(default_factory=LSTMConfig)
    char_cnn: CharCNNConfig | None = field(default_factory=CharCNNConfig)  # none: words enter by their id
    n_words: int | None = None  # V of the word table, where there is no char CNN
    n_softmax: int | None = None  # V of the softmax, where there is one
    bidirectional: bool = True
    share_embedding_softmax: bool = False  # the word table is the softmax's weight, too

    def __post_init__(self) -> None:
        if (self.char_cnn is None) == (self.n_words is None):
            raise ConfigError("a biLM reads either characters (char_cnn) or words (n_words): give exactly one")
        for name in ("n_words", "n_softmax"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        if self.share_embedding_softmax and self.n_words is None:
            raise ConfigError("share_embedding_softmax needs a word table to share (n_words); characters have none")
        if self.share_embedding_softmax and self.n_softmax not in (None, self.n_words):
            raise ConfigError(f"a shared softmax has the words of its table: {self.n_words}, not {self.n_softmax}")

    @classmethod
    def preset(cls, name: str) -> "BiLMConfig":
        """The published sizes, small, medium and original; and tiny, to try things out on a CPU."""
        if name == "tiny":
            return cls(LSTMConfig(dim=512, projection_dim=96), CharCNNConfig(filters=TINY_FILTERS, n_highway=1))
        if name not in PRESETS:
            raise ConfigError(f"no preset {name!r}; expected one of tiny, {', '.join(PRESETS)}")
        dim, projection_dim, n_highway = PRESETS[name]
        return cls(LSTMConfig(dim=dim, projection_dim=projection_dim), CharCNNConfig(n_highway=n_highway))

    @property
    def n_layers(self) -> int:
        """How many layers a task may mix: the tokens' and the LSTMs'."""
        return self.lstm.n_layers + 1

    @property
    def directions(self) -> int:
        """S: forward and backward, or forward alone."""
        return 2 if self.bidirectional else 1

    @property
    def output_dim(self) -> int:
        """2D: both directions of every layer."""
        return self.directions * self.lstm.projection_dim


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


class BiLM(nn.Module):
    """A token encoder and two stacks of LSTMs, one per direction.

    New, it has the original's initial values; built on the meta device, none: `weights/` gives it a file's.

    `forward`, `contextualize` and `log_probabilities` compute in the weights' dtype (LSTM cells in float32 or better),
    also under `torch.autocast`; `run_lstms` and `token_encoder`, which pretraining calls, follow autocast.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.trained = False  # whether an `Elmo` trains it: another one beside it, frozen, must not freeze it
        dim = config.lstm.projection_dim
        self.token_encoder = (
            CharCNN(config.char_cnn, dim) if config.char_cnn is not None else WordTable(config.n_words or 0, dim)
        )
        self.lstms = nn.ModuleList(
            ProjectedLSTM(dim, config.lstm, config.directions) for _ in range(config.lstm.n_layers)
        )
        self.softmax = (
            Softmax(config.n_softmax, dim, config.share_embedding_softmax) if config.n_softmax is not None else None
        )

    @property
    def reference(self) -> bool:
        """Whether the readable reference implementation computes, instead of the kernels."""
        return bool(self.lstms[0].reference)

    @reference.setter
    def reference(self, reference: bool) -> None:
        for module in self.modules():
            if isinstance(module, CharCNN | Highway | ProjectedLSTM):
                module.reference = reference

    @property
    def weight(self) -> Tensor:
        """The first weight of the LSTMs: its device and dtype are the model's."""
        first = self.lstms[0]
        assert isinstance(first, ProjectedLSTM)
        return first.weight_input

    def freeze(self) -> None:
        """Switch the gradients of all parameters off, unless an `Elmo` trains this biLM."""
        if not self.trained:
            self.requires_grad_(False)

    def zero_state(self, batch: int) -> State:
        """The state before any text."""
        lstm, weight = self.config.lstm, self.weight
        leading = (lstm.n_layers, self.config.directions, batch)
        h = weight.new_zeros(*leading, lstm.projection_dim)
        c = torch.zeros(*leading, lstm.dim, device=weight.device, dtype=torch.float32)
        return State(h, c if weight.dtype != torch.float64 else c.double())

    def forward(self, ids: Tensor, state: State | None = None) -> tuple[Layers, State]:
        """Character ids (B, T, C), or word ids (B, T), boundaries included ─▶ layers, and the state after them."""
        ids = self._checked(ids)
        mask = ids > 0 if ids.dim() == 2 else (ids > 0).any(dim=2)  # (B, T)
        packing = Packing.of(mask.sum(dim=1).tolist())
        sentence, step = self._index(packing.sentence), self._index(packing.step)
        words, index = torch.unique(ids[sentence, step], dim=0, return_inverse=True)
        with without_autocast(self.weight):
            layers, state = self.contextualize(self.token_encoder(words)[index], packing, state)
        activations = layers[0].new_zeros(len(layers), *mask.shape, layers[0].shape[1])
        activations[:, sentence, step] = torch.stack(layers)
        return Layers(activations, mask), state

    def contextualize(self, tokens: Tensor, packing: Packing, state: State | None = None) -> tuple[list[Tensor], State]:
        """Packed token vectors (N, D) ─▶ every layer (N, 2D), packed, and the state after each sentence."""
        order, mirror = self._index(packing.order), self._index(packing.mirror)
        tokens = tokens.to(self.weight.dtype)
        h, c = state if state is not None else self.zero_state(len(packing.order))
        # Backward reads from the other end.
        inputs = torch.stack([tokens, tokens[mirror]]) if self.config.bidirectional else tokens[None]
        with without_autocast(tokens):
            outputs, after = self.run_lstms(inputs, packing.rows, State(h[:, :, order], c[:, :, order]))
        del inputs  # of a very long sentence, every copy counts
        layers = [torch.cat([tokens] * self.config.directions, dim=1)]
        while outputs:
            forward, *backward = outputs.pop(0)
            layers.append(torch.cat([forward, *(layer[mirror] for layer in backward)], dim=1))
        back = torch.argsort(order)
        return layers, State(after.h[:, :, back], after.c[:, :, back])

    def run_lstms(
        self, inputs: Tensor, rows: Sequence[int], state: State, dropout: float = 0.0
    ) -> tuple[list[Tensor], State]:
        """What each direction reads, (S, N, D) packed, `rows[t]` at step t ─▶ every LSTM layer's output, and the state.

        Dropout is on each LSTM's input, its skip connection included, as the original was trained.
        """
        layers: list[Tensor] = []
        states: list[State] = []
        for depth, lstm in enumerate(self.lstms):
            inputs = nn.functional.dropout(inputs, dropout)
            outputs, after = lstm(inputs, rows, State(state.h[depth], state.c[depth]))
            if depth > 0 and self.config.lstm.use_skip_connections:
                outputs = outputs + inputs
            layers.append(outputs)
            states.append(after)
            inputs = outputs
        return layers, State(*(torch.stack(parts) for parts in zip(*states, strict=True)))

    def softmax_weight(self) -> Tensor:
        """The softmax's weight, (V, D): its own, or the word table's."""
        assert self.softmax is not None
        if self.softmax.weight is None:
            return self.token_encoder.embedding[1:]
        return self.softmax.weight

    def log_probabilities(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """log p of each target (N,), a row of the vocabulary, after the top layer's output (N, D) of one direction."""
        assert self.softmax is not None
        with without_autocast(hidden):
            return log_probabilities(hidden, targets, self.softmax_weight(), self.softmax.bias)

    def n_parameters(self) -> int:
        """How many numbers were learned: the row that means "no token" and the softmax are not counted."""
        rows = self.token_encoder.embedding
        total = sum(p.numel() for name, p in self.named_parameters() if not name.startswith("softmax."))
        return total - rows.shape[1]

    def _index(self, rows: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(rows).to(self.weight.device)

    def _checked(self, ids: Tensor) -> Tensor:
        """The ids in int64, if this model can read them; else a DataError."""
        cnn = self.config.char_cnn
        what = "word ids" if cnn is None else "character ids"
        if not isinstance(ids, Tensor):
            raise DataError(f"ids are a {type(ids).__name__}; expected a tensor of {what}, as Embedder.ids gives it")
        width = () if cnn is None else (cnn.max_characters_per_token,)
        if ids.dim() != 2 + len(width) or tuple(ids.shape[2:]) != width:
            expected = ", ".join(["B", "T", *map(str, width)])
            raise DataError(
                f"ids have shape {tuple(ids.shape)}; expected {what} of shape ({expected}), as Embedder.ids gives them"
            )
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise DataError(f"ids are of type {ids.dtype}; expected {what} as integers, e.g. torch.int64")
        last = len(self.token_encoder.embedding) - 1
        if ids.numel():
            low, high = torch.stack(torch.aminmax(ids)).tolist()
            if low < 0 or high > last:
                raise DataError(f"ids are from {low} to {high}; expected {what} from 0 (no token) to {last}")
        return ids.long()
