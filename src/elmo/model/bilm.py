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
from elmo.model.fork import one_thread_after_fork
from elmo.model.layers import Layers
from elmo.model.lstm import LSTMConfig, ProjectedLSTM, State
from elmo.model.many_langs_encoder import ManyLangsConfig, ManyLangsEncoder
from elmo.model.packing import Packing
from elmo.model.softmax import Softmax, log_probabilities

PRESETS = {"small": (1024, 128, 1), "medium": (2048, 256, 1), "original": (4096, 512, 2)}  # H, D, highways
TINY_FILTERS = ((1, 16), (2, 32), (3, 64), (4, 64), (5, 80))  # of the preset "tiny"


@dataclass(frozen=True)
class BiLMConfig:
    """Architecture of a biLM. The defaults are the paper's model, 93.6 million parameters."""

    lstm: LSTMConfig = field(default_factory=LSTMConfig)
    char_cnn: CharCNNConfig | None = field(default_factory=CharCNNConfig)  # None: the model reads word ids
    n_words: int | None = None  # rows of the word table, for a model without a char CNN
    n_softmax: int | None = None  # V of the softmax, for a model that has one
    bidirectional: bool = True
    share_embedding_softmax: bool = False  # use the word table as the softmax's weight
    many_langs: ManyLangsConfig | None = None  # the encoder of ELMoForManyLangs, instead of the other two

    def __post_init__(self) -> None:
        if sum(encoder is not None for encoder in (self.char_cnn, self.n_words, self.many_langs)) != 1:
            raise ConfigError("a biLM reads characters (char_cnn), words (n_words) or both (many_langs): give one")
        for name in ("n_words", "n_softmax"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        if self.share_embedding_softmax and self.n_words is None:
            raise ConfigError("share_embedding_softmax needs a word table to share (n_words); characters have none")
        if self.share_embedding_softmax and self.n_softmax not in (None, self.n_words):
            raise ConfigError(f"a shared softmax has the words of its table: {self.n_words}, not {self.n_softmax}")

    @classmethod
    def preset(cls, name: str) -> "BiLMConfig":
        """Return a config by name: small, medium and original are published; tiny trains on a CPU in minutes."""
        if name == "tiny":
            return cls(LSTMConfig(dim=512, projection_dim=96), CharCNNConfig(filters=TINY_FILTERS, n_highway=1))
        if name not in PRESETS:
            raise ConfigError(f"no preset {name!r}; expected one of tiny, {', '.join(PRESETS)}")
        dim, projection_dim, n_highway = PRESETS[name]
        return cls(LSTMConfig(dim=dim, projection_dim=projection_dim), CharCNNConfig(n_highway=n_highway))

    @property
    def n_layers(self) -> int:
        """Number of layers that a task can mix: the token layer and the LSTM layers."""
        return self.lstm.n_layers + 1

    @property
    def last_ids(self) -> tuple[int, ...]:
        """The highest id in each column of a token's ids; a token of a word table has one id."""
        if self.many_langs is not None:
            return self.many_langs.last_ids
        if self.char_cnn is not None:
            return (self.char_cnn.n_characters,) * self.char_cnn.max_characters_per_token
        return (self.n_words or 0,)

    @property
    def directions(self) -> int:
        """S: 2 for forward and backward, 1 for forward only."""
        return 2 if self.bidirectional else 1

    @property
    def output_dim(self) -> int:
        """2D, the width of every layer: its directions side by side."""
        return self.directions * self.lstm.projection_dim


class WordTable(nn.Module):
    """Token encoder of a model without characters: one vector per word of a fixed vocabulary."""

    def __init__(self, n_words: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(n_words + 1, dim))  # row 0: no token
        if not self.embedding.is_meta:
            self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Set normal values, and zeros for "no token"."""
        self.embedding.normal_(0.0, self.embedding.shape[1] ** -0.5)
        self.embedding[0] = 0.0

    def forward(self, ids: Tensor) -> Tensor:
        """Word ids (N,) ─▶ token vectors (N, D)."""
        return self.embedding[ids]


class BiLM(nn.Module):
    """A token encoder and two stacks of LSTMs, one per direction.

    A new one has the original's initial values; on the meta device it has none, and `weights/` assigns those of a file.

    `forward`, `contextualize` and `log_probabilities` compute in the weights' dtype (LSTM cells in float32 or better),
    also under `torch.autocast`; `run_lstms` and `token_encoder`, which pretraining calls, follow autocast.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        one_thread_after_fork()
        self.config = config
        self.trained = False  # by an `Elmo`: then another, frozen `Elmo` must not freeze it
        dim = config.lstm.projection_dim
        self.token_encoder = _token_encoder(config)
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
        """First weight of the LSTMs. Its device and dtype are the model's."""
        first = self.lstms[0]
        assert isinstance(first, ProjectedLSTM)
        return first.weight_input

    @property
    def word_table(self) -> nn.Parameter:
        """The table of a model that reads words, (V+1, D)."""
        assert isinstance(self.token_encoder, WordTable)
        return self.token_encoder.embedding

    def freeze(self) -> None:
        """Turn off the gradients of all parameters, unless an `Elmo` trains this biLM."""
        if not self.trained:
            self.requires_grad_(False)

    def zero_state(self, batch: int) -> State:
        """Return the state before any text: zeros."""
        lstm, weight = self.config.lstm, self.weight
        leading = (lstm.n_layers, self.config.directions, batch)
        h = weight.new_zeros(*leading, lstm.projection_dim)
        c = torch.zeros(*leading, lstm.dim, device=weight.device, dtype=torch.float32)
        return State(h, c if weight.dtype != torch.float64 else c.double())

    def forward(self, ids: Tensor, state: State | None = None) -> tuple[Layers, State]:
        """Run character ids (B, T, C), or word ids (B, T), with boundaries; return the layers and the final state."""
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
        """Run packed token vectors (N, D); return every layer (N, 2D), packed, and the state after each sentence.

        A state of the first k LSTM layers runs these alone: k + 1 layers are returned.
        """
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
        """Run the LSTM layers that the state is for over inputs (S, N, D), packed, `rows[t]` of them at step t.

        Returns the output of every layer, (S, N, D), and the final state. Dropout is applied to each layer's input,
        which is also what its skip connection adds, as in the original.
        """
        layers: list[Tensor] = []
        states: list[State] = []
        for depth, lstm in enumerate(self.lstms[: len(state.h)]):
            inputs = nn.functional.dropout(inputs, dropout)
            outputs, after = lstm(inputs, rows, State(state.h[depth], state.c[depth]))
            if depth > 0 and self.config.lstm.use_skip_connections:
                outputs = outputs + inputs
            layers.append(outputs)
            states.append(after)
            inputs = outputs
        return layers, State(*(torch.stack(parts) for parts in zip(*states, strict=True))) if states else state

    def softmax_weight(self) -> Tensor:
        """Return the softmax's weight, (V, D): its own, or the word table's."""
        assert self.softmax is not None
        if self.softmax.weight is None:
            return self.word_table[1:]
        return self.softmax.weight

    def log_probabilities(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return log p of each target (N,), a row of the vocabulary, given the top layer (N, D) of one direction."""
        assert self.softmax is not None
        with without_autocast(hidden):
            return log_probabilities(hidden, targets, self.softmax_weight(), self.softmax.bias)

    def n_parameters(self) -> int:
        """Count the parameters, without the softmax and the row for "no token"."""
        total = sum(p.numel() for name, p in self.named_parameters() if not name.startswith("softmax."))
        tables = (p for name, p in self.token_encoder.named_parameters() if name.endswith("embedding"))
        return total - sum(table.shape[1] for table in tables)

    def _index(self, rows: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(rows).to(self.weight.device)

    def _checked(self, ids: Tensor) -> Tensor:
        """Return the ids as int64; raise a DataError if this model cannot read them."""
        last = self.config.last_ids
        of_words = self.config.n_words is not None
        what = "word ids" if of_words else "character ids" if self.config.many_langs is None else "ids"
        if not isinstance(ids, Tensor):
            raise DataError(f"ids are a {type(ids).__name__}; expected a tensor of {what}, as Embedder.ids gives it")
        width = () if of_words else (len(last),)
        if ids.dim() != 2 + len(width) or tuple(ids.shape[2:]) != width:
            expected = ", ".join(["B", "T", *map(str, width)])
            raise DataError(
                f"ids have shape {tuple(ids.shape)}; expected {what} of shape ({expected}), as Embedder.ids gives them"
            )
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise DataError(f"ids are of type {ids.dtype}; expected {what} as integers, e.g. torch.int64")
        if ids.numel():
            low, high = torch.stack(torch.aminmax(ids)).tolist()
            if low < 0 or high > max(last):
                raise DataError(f"ids are from {low} to {high}; expected {what} from 0 (no token) to {max(last)}")
            if high > min(last) and bool((ids > torch.tensor(last, device=ids.device)).any()):
                raise DataError(f"ids of characters are above {min(last)}; expected {what} as Embedder.ids gives them")
        return ids.long()


def _token_encoder(config: BiLMConfig) -> CharCNN | WordTable | ManyLangsEncoder:
    dim = config.lstm.projection_dim
    if config.many_langs is not None:
        return ManyLangsEncoder(config.many_langs, dim)
    return CharCNN(config.char_cnn, dim) if config.char_cnn is not None else WordTable(config.n_words or 0, dim)
