"""TOKENS ─▶ WHAT A TASK MODEL READS: `[x; ELMo]`, and `[h; ELMo]` after its own network (paper, section 3.3).

    prepare(texts)   token sequences ─▶ `Texts`: numbers, on the CPU
    Inputs(texts)    these, or token sequences ─▶ `InputVectors`: word vectors, the task's character CNN and ELMo, side
                     by side
    at_output        h (B, T, H), layers ─▶ [h; ELMo] (B, T, H + 2D), with a second mix

Where ELMo enters, how its layers are mixed, and what else represents a word, are values of the config. Task models do
not depend on them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmo.config import Bounds, CheckedConfig, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Probability
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.char_cnn import MOST_CHARACTERS
from elmo.model.checks import MOST_LAYERS
from elmo.model.layers import Layers
from elmo.model.scalar_mix import ScalarMix, total_penalty
from elmo.packaged import DEFAULT
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.layers.encoder import Order, Packed, Padded
from elmo.tasks.prepared import on_device, rounded_up
from elmo.text.characters import PADDING_ID, sentence_ids, word_ids
from elmo.text.tokens import Tokens

NO_WORD, UNKNOWN_WORD = 0, 1  # the first rows of the word table
# A config can come from anywhere. A tensor of three of these sizes is one that PyTorch can describe.
LARGEST = 1 << 16
Size = Annotated[int, Bounds(ge=1, le=LARGEST)]  # of a layer
LayerCount = Annotated[int, Bounds(ge=1, le=MOST_LAYERS)]
BILM = "inputs.bilm."  # in a task model, the names of the parameters of a trained biLM begin with it

Lengths = tuple[int, ...]
Inside = npt.NDArray[np.bool_]  # (B, T) where there is a token


@dataclass(frozen=True)
class ElmoConfig(CheckedConfig):
    """Where and how a task uses a biLM."""

    model: str = DEFAULT  # a name or path, as for `elmo.load`
    placement: Literal["none", "input", "output", "both"] = "input"
    mix: str = "learned"  # or last, average, layer:j
    mix_l2: NonNegativeFloat = 0.001  # λ of the penalty on the weights of the mix
    dropout: Probability = 0.5
    layer_norm: Literal["token", "bilm-tf"] | None = None
    state: Literal["fresh", "warm", "carried"] = "fresh"  # before a text: zeros, a stored one, or the last text's
    trainable: bool = False
    learning_rate: PositiveFloat | None = None  # of the biLM, if it is trained; None: that of the task

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trainable and self.state != "fresh":
            raise ConfigError(
                f"inputs.elmo.state is {self.state!r}; a biLM that is trained with the task reads every text alone: "
                f"expected fresh, or inputs.elmo.trainable=false"
            )

    @property
    def at_input(self) -> bool:
        """Whether the network of the task reads ELMo."""
        return self.placement in ("input", "both")

    @property
    def at_output(self) -> bool:
        """Whether ELMo is added to the output of the network."""
        return self.placement in ("output", "both")


@dataclass(frozen=True)
class CharactersConfig(CheckedConfig):
    """The character CNN of a task: filters of one or several widths, and their maximum over the word."""

    dim: Size = 16
    filters: Size = 128  # of each width
    width: Size = 3
    n_widths: LayerCount = 1  # filters of width, width + 1, …
    max_characters: Annotated[int, Bounds(ge=3, le=MOST_CHARACTERS)] = 50  # per word, including its begin and end

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_characters < self.width + self.n_widths - 1:
            raise ConfigError(
                f"inputs.characters.max_characters is {self.max_characters}; expected at least the width of "
                f"the widest filters, which is {self.width + self.n_widths - 1}"
            )

    @property
    def output_dim(self) -> int:
        """The size of a word's vector."""
        return self.filters * self.n_widths


@dataclass(frozen=True)
class InputsConfig(CheckedConfig):
    """How a task represents a token."""

    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    vectors: str | None = None  # a file of word vectors, as GloVe writes them
    vectors_trainable: bool = True
    lowercase: bool = True  # words are looked up in lower case
    max_words: NonNegativeInt = 100_000  # vectors to read from the file; those of words in the data are always read
    own_words: PositiveInt | None = 3  # how often a word without a vector must occur in training to get one
    characters: CharactersConfig | None = None
    dropout: Probability = 0.0  # on words and characters

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elmo.placement in ("none", "output") and self.vectors is None and self.characters is None:
            raise ConfigError(
                f"inputs.elmo.placement is {self.elmo.placement!r}, and a word has neither inputs.vectors nor "
                f"inputs.characters: the task's network would read nothing"
            )


@dataclass(frozen=True)
class Characters:
    """The words of a batch by their characters."""

    ids: Tensor  # (U, C) of the distinct words
    places: Tensor  # (B, T) among these


@dataclass(frozen=True)
class Texts:
    """A batch of token sequences as numbers, prepared by `Inputs.prepare`."""

    order: Order  # of the rows in a recurrent network
    mask: Tensor  # (B, T)
    rows: Tensor | None  # (B, T) of the word table
    characters: Characters | None  # for the task's character CNN
    layers: Tensor | None  # for `FrozenLayers.of_read`
    ids: Tensor | None  # (B, T + 2, C) for a biLM that is trained with the task
    lengths: Lengths  # (B,) on the CPU


@dataclass(frozen=True)
class InputVectors:
    """A batch of token sequences as the network of a task reads it."""

    vectors: Tensor  # (B, T, dim), zeros where there is no token
    mask: Tensor  # (B, T)
    order: Order  # the tokens in the order in which a recurrent network reads them
    lengths: Lengths  # (B,)
    layers: Layers | None  # what `Inputs.at_output` mixes; None without ELMo

    @cached_property
    def packed(self) -> Packed:
        """The tokens in the order of `HighwayLSTM`, on every device."""
        return self.order if isinstance(self.order, Packed) else Packed.of(self.lengths).to(self.mask.device)


class Inputs(nn.Module):
    """Everything that the network of a task reads, and the ELMo vectors added to its output.

    `words` are the words of the table's rows, without its first two; `frozen` gives the layers of a frozen biLM, `bilm`
    is one that is trained with the task.
    """

    def __init__(
        self,
        config: InputsConfig,
        words: Sequence[str] = (),
        matrix: Tensor | None = None,  # (len(words), dim)
        frozen: FrozenLayers | None = None,
        bilm: BiLM | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.frozen = frozen
        self.bilm = bilm
        self._rows = {word: row for row, word in enumerate(words, start=UNKNOWN_WORD + 1)}
        dims = []
        self.table: nn.Embedding | None = None
        if matrix is not None:
            first = torch.zeros(UNKNOWN_WORD + 1, matrix.shape[1])
            rows = torch.cat([first, matrix])
            self.table = nn.Embedding(len(rows), rows.shape[1], padding_idx=NO_WORD, _weight=rows)
            self.table.requires_grad_(config.vectors_trainable)
            dims.append(matrix.shape[1])
        self.characters: CharacterEncoder | None = None
        if config.characters is not None:
            self.characters = CharacterEncoder(config.characters)
            dims.append(config.characters.output_dim)
        self.mix_input: ScalarMix | None = None
        self.mix_output: ScalarMix | None = None
        self.output_dim = 0
        self.elmo_dim = 0  # of a mix of the layers; 0 without ELMo
        elmo = config.elmo
        if elmo.placement != "none":
            of = frozen.embedder.config if frozen is not None else bilm.config if bilm is not None else None
            if of is None:
                raise ConfigError(f"inputs.elmo.placement is {elmo.placement!r}, but there is no biLM")
            if bilm is not None and of.char_cnn is None:
                raise ConfigError(
                    "inputs.elmo.trainable is true, but this biLM does not read characters as bilm-tf does; set it to "
                    "false"
                )
            self._n_layers, self.elmo_dim = of.n_layers, of.output_dim
            if elmo.at_input:
                self.mix_input = self.new_mix()
                dims.append(of.output_dim)
            if elmo.at_output:
                self.mix_output = self.new_mix()
                self.output_dim = of.output_dim
        self.dim = sum(dims)
        self.dropout = nn.Dropout(config.dropout)

    def prepare(self, texts: Sequence[Tokens], *, recorded: bool = False) -> Texts:
        """Look up everything about a batch of token sequences, none of them empty, on the CPU.

        For steps that are `recorded`, lengths are rounded up, so that few batches have different shapes.
        """
        lengths = tuple(len(text) for text in texts)
        longest = rounded_up(max(lengths)) if recorded else max(lengths)
        inside = np.arange(longest) < np.array(lengths)[:, None]
        elmo, table, characters = self.config.elmo.placement != "none", self.table, self.characters
        return Texts(
            order=self.order(lengths, longest, recorded=recorded),
            mask=torch.from_numpy(inside),
            rows=padded(inside, self._table_rows(texts)) if table is not None else None,
            characters=characters.prepare(texts, inside, recorded) if characters is not None else None,
            layers=self._frozen_layers.read(texts, inside) if elmo and self.bilm is None else None,
            ids=self._bilm_ids(texts) if elmo and self.bilm is not None else None,
            lengths=lengths,
        )

    def order(self, lengths: Lengths, n_steps: int, *, recorded: bool = False) -> Order:
        """Return the order in which a recurrent network reads sequences of these lengths, padded to `n_steps`."""
        on_cpu = self._device.type == "cpu" and not recorded
        return Packed.of(lengths) if on_cpu else Padded.of(lengths, n_steps)

    def forward(self, texts: Sequence[Tokens] | Texts) -> InputVectors:
        """Compute the vectors of a batch of token sequences, none of them empty; if prepared, on the device."""
        batch = texts if isinstance(texts, Texts) else on_device(self.prepare(texts), self._device)
        layers = self._layers(batch)
        parts = []
        if self.table is not None:
            parts.append(self.dropout(self.table(batch.rows)))
        if self.characters is not None:
            vectors = self.characters(batch.characters)
            parts.append(self.dropout(vectors) * batch.mask[..., None])  # the other parts are zero there
        if self.mix_input is not None:
            parts.append(self.mix_input(layers))
        return InputVectors(torch.cat(parts, dim=-1), batch.mask, batch.order, batch.lengths, layers)

    def at_output(self, hidden: Tensor, layers: Layers | None) -> Tensor:
        """Add the second mix to what the network computed: h (B, T, H) ─▶ [h; ELMo] (B, T, H + output_dim).

        `layers` are those of the `InputVectors` that the network read. Without ELMo at the output, h is returned.
        """
        if self.mix_output is None:
            return hidden
        return torch.cat([hidden, self.mix_output(layers)], dim=-1)

    def new_mix(self) -> ScalarMix:
        """Return another mix of the layers, with the settings of the config, for a model that needs one of its own."""
        elmo = self.config.elmo
        return ScalarMix(self._n_layers, elmo.mix, l2=elmo.mix_l2, layer_norm=elmo.layer_norm, dropout=elmo.dropout)

    def penalty(self) -> Tensor:
        """Return the L2 terms of the mixes, to be added to the loss."""
        return total_penalty(self._mixes().values() if self.config.elmo.mix_l2 else ())

    def mixes(self) -> dict[str, Any]:
        """Return what the mixes have learned, by place: the weight of each layer, and γ."""
        return {
            name: {"weights": mix.weights.tolist(), "gamma": mix.gamma.item()} for name, mix in self._mixes().items()
        }

    def _layers(self, batch: Texts) -> Layers | None:
        """Return the layers of a batch: looked up, or computed by the biLM that is trained with the task."""
        if batch.layers is not None:
            return self._frozen_layers.of_read(batch.layers, batch.mask)
        if batch.ids is None:
            return None
        assert self.bilm is not None
        layers: Layers = self.bilm(batch.ids)[0]
        return layers.without_boundaries()

    @property
    def _device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def _frozen_layers(self) -> FrozenLayers:
        assert self.frozen is not None
        return self.frozen

    def _bilm_ids(self, texts: Sequence[Tokens]) -> Tensor:
        assert self.bilm is not None and self.bilm.config.char_cnn is not None
        return torch.from_numpy(sentence_ids(texts, self.bilm.config.char_cnn.max_characters_per_token))

    def _mixes(self) -> dict[str, ScalarMix]:
        both = {"input": self.mix_input, "output": self.mix_output}
        return {name: mix for name, mix in both.items() if mix is not None}

    def _table_rows(self, texts: Sequence[Tokens]) -> Iterable[int]:
        """Return the row of every token in the table, one text after another."""
        get = self._rows.get
        if self.config.lowercase:
            return [get(word.lower(), UNKNOWN_WORD) for text in texts for word in text]
        return [get(word, UNKNOWN_WORD) for text in texts for word in text]


class CharacterEncoder(nn.Module):
    """The character CNN of a task: `Characters` ─▶ (B, T, output_dim). Each distinct word is computed once."""

    def __init__(self, config: CharactersConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(PADDING_ID + 1, config.dim)
        self.convolution = nn.Conv1d(config.dim, config.filters, config.width)
        widths = range(config.width + 1, config.width + config.n_widths)
        self.wider = nn.ModuleList(nn.Conv1d(config.dim, config.filters, width) for width in widths)

    def prepare(self, texts: Sequence[Tokens], inside: Inside, recorded: bool) -> Characters:
        """Look up the characters of the distinct words, without the columns behind the longest of them.

        For a step that is recorded, the number of words is rounded up instead, and all columns are kept.
        """
        words = {word: row for row, word in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
        ids = word_ids(list(words), self.config.max_characters)
        if recorded:
            ids = np.pad(ids, ((0, rounded_up(len(ids)) - len(ids)), (0, 0)), constant_values=PADDING_ID)
        else:
            longest = int((ids != PADDING_ID).sum(axis=1).max())
            widest_filter = self.config.width + self.config.n_widths - 1
            ids = np.ascontiguousarray(ids[:, : max(longest, widest_filter)])
        places = padded(inside, map(words.__getitem__, chain.from_iterable(texts)))
        return Characters(torch.from_numpy(ids), places)

    def forward(self, batch: Characters) -> Tensor:
        """Encode every word of a batch."""
        # Not `[places]`: its gradient is summed by all of a CPU's threads at once, in any order.
        return nn.functional.embedding(batch.places, self.encode(batch.ids))

    def encode(self, ids: Tensor) -> Tensor:
        """Encode words: ids (U, C) ─▶ (U, output_dim), the maximum over the places inside of each word."""
        characters = self.embedding(ids).transpose(1, 2)
        lengths = (ids != PADDING_ID).sum(dim=1)[:, None]
        maxima = []
        for width, convolution in enumerate((self.convolution, *self.wider), start=self.config.width):
            values = convolution(characters)  # (U, filters, C − width + 1)
            inside = torch.arange(values.shape[2], device=values.device) <= (lengths - width).clamp(min=0)
            # Elsewhere 0, which before a ReLU is the same as −∞. Not amax: its gradient takes twice as many operations.
            maxima.append((values * inside[:, None]).max(dim=2).values)
        return torch.relu(torch.cat(maxima, dim=1) if len(maxima) > 1 else maxima[0])


def padded(inside: Inside, numbers: Iterable[int]) -> Tensor:
    """Arrange a number for each token, one text after another, as (B, T); zero where `inside` (B, T) is false."""
    rows = np.zeros(inside.shape, dtype=np.int64)
    rows[inside] = np.fromiter(numbers, np.int64, int(inside.sum()))
    return torch.from_numpy(rows)

