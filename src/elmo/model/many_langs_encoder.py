"""WORD AND CHARACTER IDS ─▶ TOKEN VECTORS of ELMoForManyLangs: (N, 1 + C) ─▶ (N, D), context independent.

the word's row of a table (100) next to the character CNN after its highways (2048) ─▶ linear to D

Either of the two may be absent. The published models differ from bilm-tf's in this encoder only; see
`weights/many_langs.py` for the layout of their files.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.char_cnn import MOST_CHARACTERS, CharCNN, CharCNNConfig
from elmo.model.checks import check_integer


@dataclass(frozen=True)
class ManyLangsConfig:
    """Sizes of the encoder: of the word table, of the character CNN, or of both."""

    n_words: int | None = None  # rows of the word table
    word_dim: int | None = None
    char_cnn: CharCNNConfig | None = None
    padding_id: int | None = None  # of the padding character, in the alphabet of this model
    max_characters_per_token: int = 50  # where a word is cut, also a word of the table; two more than are kept

    def __post_init__(self) -> None:
        if self.n_words is None and self.char_cnn is None:
            raise ConfigError("many_langs has neither words (n_words) nor characters (char_cnn); expected one or both")
        if (self.n_words is None) != (self.word_dim is None):
            raise ConfigError("many_langs.n_words and many_langs.word_dim belong together: give both or none")
        if (self.char_cnn is None) != (self.padding_id is None):
            raise ConfigError("many_langs.char_cnn and many_langs.padding_id belong together: give both or none")
        check_integer("many_langs.max_characters_per_token", self.max_characters_per_token, 3, MOST_CHARACTERS)
        for name in ("n_words", "word_dim", "padding_id"):
            if getattr(self, name) is not None:
                check_integer(f"many_langs.{name}", getattr(self, name))
        if self.char_cnn is not None and self.padding_id is not None and self.padding_id > self.char_cnn.n_characters:
            raise ConfigError(
                f"many_langs.padding_id is {self.padding_id}; expected one of {self.char_cnn.n_characters} characters"
            )
        if self.char_cnn is not None and self.char_cnn.max_characters_per_token != self.max_characters_per_token:
            raise ConfigError(
                f"many_langs.max_characters_per_token is {self.max_characters_per_token}, and that of its char_cnn is "
                f"{self.char_cnn.max_characters_per_token}; expected the same"
            )

    @property
    def last_ids(self) -> tuple[int, ...]:
        """The highest id in each column: of the word, and of each character."""
        words = () if self.n_words is None else (self.n_words,)
        cnn = self.char_cnn
        return words + (() if cnn is None else (cnn.n_characters,) * cnn.max_characters_per_token)


class ManyLangsEncoder(nn.Module):
    """The token encoder of ELMoForManyLangs."""

    def __init__(self, config: ManyLangsConfig, dim: int) -> None:
        super().__init__()
        self.word_embedding: nn.Parameter | None = None
        self.char_cnn: CharCNN | None = None
        width = 0
        if config.n_words is not None and config.word_dim is not None:
            self.word_embedding = nn.Parameter(torch.empty(config.n_words + 1, config.word_dim))  # row 0: no token
            width += config.word_dim
        if config.char_cnn is not None and config.padding_id is not None:
            n_filters = config.char_cnn.n_filters
            self.char_cnn = CharCNN(config.char_cnn, n_filters, config.padding_id)  # as wide as its filters: no linear
            width += n_filters
        self.projection = nn.Parameter(torch.empty(width, dim))
        self.projection_bias = nn.Parameter(torch.empty(dim))
        if not self.projection.is_meta:
            self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Set uniform values for the words, as the original does, and zeros for "no token"."""
        if self.word_embedding is not None:
            self.word_embedding.uniform_(-0.25, 0.25)
            self.word_embedding[0] = 0.0
        self.projection.normal_(0.0, len(self.projection) ** -0.5)
        self.projection_bias.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (N, 1 + C) ─▶ token vectors (N, D)."""
        parts = []
        if self.word_embedding is not None:
            parts.append(nn.functional.embedding(ids[:, 0], self.word_embedding))
            ids = ids[:, 1:]
        if self.char_cnn is not None:
            parts.append(self.char_cnn(ids))
        return torch.addmm(self.projection_bias, torch.cat(parts, dim=1), self.projection)
