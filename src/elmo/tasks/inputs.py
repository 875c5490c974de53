"""TOKENS ─▶ WHAT A TASK MODEL READS: `[x_k; ELMo_k]`, and `[h_k; ELMo_k]` behind its own network (paper, section 3.3).

    Inputs.texts     sentences ─▶ `Texts`: ids, mask and, of a frozen biLM, the layers
    Inputs(texts)    x (B, T, dim): word vectors, the task's own character CNN, ELMo, side by side
    at_output        h (B, T, H) ─▶ [h; ELMo] (B, T, H + 2D), with a second mix

Where ELMo enters, how its layers are mixed, and what else a word is, are values of the config. No task knows of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from elmo.config import Bounds, CheckedConfig, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Probability
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.device import to_device
from elmo.model.layers import Layers
from elmo.model.scalar_mix import ScalarMix
from elmo.packaged import DEFAULT
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.layers.encoder import Packed
from elmo.text.characters import PADDING_ID, sentence_ids, word_ids
from elmo.text.tokens import Tokens

NO_WORD, UNKNOWN_WORD = 0, 1  # rows of the word table before the first word's


@dataclass(frozen=True)
class ElmoConfig(CheckedConfig):
    """How a biLM enters a task."""

    model: str = DEFAULT  # whatever `elmo.load` takes
    placement: Literal["none", "input", "output", "both"] = "input"
    mix: str = "learned"  # or last, average, layer:j
    mix_l2: NonNegativeFloat = 0.001  # λ
    dropout: Probability = 0.5
    layer_norm: Literal["token", "bilm-tf"] | None = None
    trainable: bool = False
    learning_rate: PositiveFloat | None = None  # the biLM's own learning rate, where it is trained

    @property
    def at_input(self) -> bool:
        """Whether the task's network reads it."""
        return self.placement in ("input", "both")

    @property
    def at_output(self) -> bool:
        """Whether what comes after the task's network reads it."""
        return self.placement in ("output", "both")


@dataclass(frozen=True)
class CharactersConfig(CheckedConfig):
    """A character CNN of the task's own: filters of one width, and their maximum over the word."""

    dim: PositiveInt = 16
    filters: PositiveInt = 128
    width: PositiveInt = 3
    max_characters: Annotated[int, Bounds(ge=3)] = 50  # of a word, its begin and its end among them

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_characters < self.width:
            raise ConfigError(
                f"inputs.characters.max_characters is {self.max_characters}; expected at least "
                f"inputs.characters.width, which is {self.width}"
            )


@dataclass(frozen=True)
class InputsConfig(CheckedConfig):
    """What a token is to a task."""

    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    vectors: str | None = None  # a file of word vectors, as GloVe writes them
    vectors_trainable: bool = True
    lowercase: bool = True  # words are looked up in lower case
    max_words: NonNegativeInt = 100_000  # the first lines of the file; words of the data are always read
    own_words: PositiveInt | None = 3  # a word without a vector gets one if it occurs this often in the training part
    characters: CharactersConfig | None = None
    dropout: Probability = 0.0  # on words and characters

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elmo.placement in ("none", "output") and self.vectors is None and self.characters is None:
            raise ConfigError(
                f"inputs.elmo.placement is {self.elmo.placement!r}, and a word has neither inputs.vectors nor "
                f"inputs.characters: the task's network would read nothing"
            )


@dataclass
class Texts:
    """A batch of token sequences, as `Inputs` wants it."""

    mask: Tensor  # (B, T)
    lengths: tuple[int, ...]  # (B,)
    words: Tensor | None = None  # (B, T) rows of the word table
    spelled: Tensor | None = None  # (U, C) characters of the distinct words
    places: Tensor | None = None  # (B, T) rows of `spelled`
    layers: Layers | None = None  # of a frozen biLM; or what one that is trained said when `Inputs` was last called
    ids: Tensor | None = None  # (B, T + 2, C) what a biLM reads that is trained with the task

    @cached_property
    def packed(self) -> Packed:
        """The tokens as an LSTM reads them."""
        return Packed.of(self.lengths).to(self.mask.device)

    def to(self, device: torch.device) -> "Texts":
        """The same on a device."""
        moved: dict[str, Any] = {
            n: to_device(value, device) for n, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)


class Inputs(nn.Module):
    """Everything a task's network reads, and the ELMo vectors added behind it.

    `words` are the word table's, without its first two rows; `frozen` gives the layers of a frozen biLM, `bilm` is one
    that is trained with the task.
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
        widths = []
        self.table: nn.Embedding | None = None
        if matrix is not None:
            first = torch.zeros(UNKNOWN_WORD + 1, matrix.shape[1])
            rows = torch.cat([first, matrix])
            self.table = nn.Embedding(len(rows), rows.shape[1], padding_idx=NO_WORD, _weight=rows)
            self.table.requires_grad_(config.vectors_trainable)
            widths.append(matrix.shape[1])
        self.characters: _Characters | None = None
        if config.characters is not None:
            self.characters = _Characters(config.characters)
            widths.append(config.characters.filters)
        self.mix_input: ScalarMix | None = None
        self.mix_output: ScalarMix | None = None
        self.output_dim = 0
        elmo = config.elmo
        if elmo.placement != "none":
            of = frozen.embedder.config if frozen is not None else bilm.config if bilm is not None else None
            if of is None:
                raise ConfigError(f"inputs.elmo.placement is {elmo.placement!r}, but there is no biLM")
            if elmo.at_input:
                self.mix_input = self._mix(of.n_layers)
                widths.append(of.output_dim)
            if elmo.at_output:
                self.mix_output = self._mix(of.n_layers)
                self.output_dim = of.output_dim
        self.dim = sum(widths)
        self.dropout = nn.Dropout(config.dropout)
        self.elmo_dropout = nn.Dropout(elmo.dropout)

    def texts(self, sentences: Sequence[Tokens]) -> Texts:
        """A batch of sentences, none of them empty."""
        lengths = tuple(len(sentence) for sentence in sentences)
        longest = max(lengths)
        mask = np.arange(longest) < np.array(lengths)[:, None]
        words = spelled = places = ids = layers = None
        if self.table is not None:
            words = torch.from_numpy(_padded([[self._row(word) for word in s] for s in sentences], longest))
        if self.characters is not None:
            distinct = {word: row for row, word in enumerate(dict.fromkeys(word for s in sentences for word in s))}
            places = torch.from_numpy(_padded([[distinct[word] for word in s] for s in sentences], longest))
            spelled = torch.from_numpy(word_ids(list(distinct), self.characters.config.max_characters))
        if self.config.elmo.placement != "none":
            if self.bilm is not None:
                assert self.bilm.config.char_cnn is not None
                ids = torch.from_numpy(sentence_ids(sentences, self.bilm.config.char_cnn.max_characters_per_token))
            else:
                assert self.frozen is not None
                layers = self.frozen.layers(sentences)
        return Texts(torch.from_numpy(mask), lengths, words, spelled, places, layers, ids)

    def forward(self, texts: Texts) -> Tensor:
        """x (B, T, dim), zeros where there is no token."""
        if self.bilm is not None and texts.ids is not None:
            texts.layers = self.bilm(texts.ids)[0].without_boundaries()
        parts = []
        if self.table is not None:
            parts.append(self.dropout(self.table(texts.words)))
        if self.characters is not None and texts.places is not None:
            # Not `[places]`: its gradient is summed by all of a CPU's threads at once, in any order.
            spelled = nn.functional.embedding(texts.places, self.characters(texts.spelled))  # (B, T, filters)
            parts.append(self.dropout(spelled))
        if self.mix_input is not None:
            parts.append(self._mixed(self.mix_input, texts))
        return torch.cat(parts, dim=-1) * texts.mask[..., None]

    def at_output(self, hidden: Tensor, texts: Texts) -> Tensor:
        """h (B, T, H) ─▶ (B, T, H + output_dim): with the second mix beside it, if ELMo stands there."""
        if self.mix_output is None:
            return hidden
        return torch.cat([hidden, self._mixed(self.mix_output, texts)], dim=-1)

    def penalty(self) -> Tensor:
        """The mixes' L2 terms."""
        terms = [mix.penalty() for mix in (self.mix_input, self.mix_output) if mix is not None]
        return torch.stack(terms).sum() if terms else torch.zeros(())

    def mixes(self) -> dict[str, Any]:
        """What the mixes have learned: each layer's share, and γ."""
        found = {"input": self.mix_input, "output": self.mix_output}
        return {
            name: {"weights": mix.weights.tolist(), "gamma": mix.gamma.item()}
            for name, mix in found.items()
            if mix is not None
        }

    def _mix(self, n_layers: int) -> ScalarMix:
        elmo = self.config.elmo
        return ScalarMix(n_layers, elmo.mix, l2=elmo.mix_l2, layer_norm=elmo.layer_norm)

    def _mixed(self, mix: ScalarMix, texts: Texts) -> Tensor:
        mixed: Tensor = self.elmo_dropout(mix(texts.layers))
        return mixed

    def _row(self, word: str) -> int:
        return self._rows.get(word.lower() if self.config.lowercase else word, UNKNOWN_WORD)


class _Characters(nn.Module):
    """Characters (U, C) of distinct words ─▶ (U, filters)."""

    def __init__(self, config: CharactersConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(PADDING_ID + 1, config.dim)
        self.convolution = nn.Conv1d(config.dim, config.filters, config.width)

    def forward(self, spelled: Tensor) -> Tensor:
        """The maximum over the word's places, and no more than its own: what stands behind its end does not count."""
        values = self.convolution(self.embedding(spelled).transpose(1, 2))  # (U, filters, C − width + 1)
        lengths = (spelled != PADDING_ID).sum(dim=1)
        last = (lengths - self.config.width).clamp(min=0)
        beyond = torch.arange(values.shape[2], device=values.device) > last[:, None]
        return torch.relu(values.masked_fill(beyond[:, None], -torch.inf).amax(dim=2))


def _padded(rows: Sequence[Sequence[int]], width: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    padded = np.zeros((len(rows), width), dtype=np.int64)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded
