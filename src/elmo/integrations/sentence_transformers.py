"""SENTENCE-TRANSFORMERS: texts ─▶ one vector each, (B, 2D), as the first module of a `SentenceTransformer`.

    model = SentenceTransformer(modules=[ElmoSentences("english")])

Its vectors are those of `Embedder.encode`; it can be trained with the losses there. Needs the extra
`sentence-transformers`. A model folder can also be opened as it is, after `import elmo.integrations.transformers`:
`SentenceTransformer(folder)` is then the mean of the top layer, with both boundaries.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from elmo.embed.pooling import POOLINGS
from elmo.embed.sentences import tokenize_sentences
from elmo.embed.words import WordEncoder
from elmo.errors import ConfigError
from elmo.model.elmo import Elmo
from elmo.model.scalar_mix import ScalarMix
from elmo.packaged import DEFAULT
from elmo.weights import folder, source

try:
    from sentence_transformers.base.modules import InputModule
except ImportError:
    raise ImportError(
        "ElmoSentences needs sentence-transformers: pip install 'elmo-torch[sentence-transformers]'"
    ) from None

HUB_OPTIONS = ("token", "cache_folder", "revision", "local_files_only")
SMALLEST = 1e-30  # a learned weight in a file: one of 0 could not be learned further


class ElmoSentences(InputModule):
    """A biLM, a mix of its layers, and pooling over tokens.

    `mix`, `weights`, `gamma` and `trainable` are those of `Elmo`: with `mix="learned"` the weights of the layers are
    trained, with `trainable=True` the biLM is. `pooling` is "mean", "max" or "first-last". Texts of more than
    `max_seq_length` tokens are cut; None sets no limit.
    """

    config_file_name = "elmo_sentences.json"

    def __init__(
        self,
        model: str | Path = DEFAULT,
        mix: str = "average",
        *,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
        pooling: str = "mean",
        trainable: bool = False,
        max_seq_length: int | None = None,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ConfigError(f"pooling is {pooling!r}; expected one of {', '.join(POOLINGS)}")
        read = source.read(model)
        self._pretrained = dataclasses.replace(read, bilm=read.bilm.float(), warm_state=None)
        self._encoder = WordEncoder(read.bilm, read.vocabulary, read.lexicon)
        self.elmo = Elmo(read.bilm, mix=mix, weights=weights, gamma=gamma, dropout=0.0, trainable=trainable)
        self.pooling = pooling
        self.max_seq_length = max_seq_length

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, with the weights of the layers and γ as they are now."""
        mix = self.elmo.mixes[0]
        assert isinstance(mix, ScalarMix)
        return {
            "mix": mix.mix,
            "weights": mix.weights.clamp(min=SMALLEST).tolist() if mix.mix == "learned" else None,
            "gamma": mix.gamma.item(),
            "pooling": self.pooling,
            "trainable": self.elmo.trainable,
            "max_seq_length": self.max_seq_length,
        }

    def get_embedding_dimension(self) -> int:
        """Return 2D, the width of the vectors."""
        return self.elmo.bilm.config.output_dim

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, max_length: int | None = None, **unused: Any
    ) -> dict[str, Any]:
        """Return the ids of texts, with boundaries, as `input_ids`: characters (B, T+2, C), or words (B, T+2)."""
        texts = inputs if not prompt else [prompt + text for text in inputs]
        tokens = [sentence[: max_length or self.max_seq_length] for sentence in tokenize_sentences(texts)]
        return {"input_ids": self._encoder.ids(tokens)}

    def forward(self, features: dict[str, Any], **unused: Any) -> dict[str, Any]:
        """Add `token_embeddings` (B, T, 2D), `attention_mask` (B, T) and `sentence_embedding` (B, 2D)."""
        (vectors,), mask = self.elmo(features["input_ids"])
        pooled = _pooled(vectors, mask, self.pooling, self.elmo.bilm.config.directions)
        return {**features, "token_embeddings": vectors, "attention_mask": mask.long(), "sentence_embedding": pooled}

    def save(self, output_path: str, *arguments: Any, **options: Any) -> None:
        """Write a model folder, which `elmo.load` reads, too, and the settings of this module."""
        folder.fill(Path(output_path), self._pretrained)
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> Self:
        """Read what `save` wrote, from a folder or from the Hub."""
        known = {name: options[name] for name in HUB_OPTIONS if name in options}
        place = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **known)
        return cls(place, **cls.load_config(model_name_or_path, subfolder=subfolder, **known))


def _pooled(vectors: Tensor, mask: Tensor, pooling: str, directions: int) -> Tensor:
    """Pool (B, T, 2D) over tokens as `embed/pooling.py` does; a text without tokens gives zeros."""
    lengths = mask.sum(dim=1)
    if vectors.shape[1] == 0:
        return vectors.sum(dim=1)
    if pooling == "mean":
        return vectors.sum(dim=1) / lengths.clamp(min=1)[:, None]  # padding is zero
    if pooling == "max":
        largest = vectors.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        return torch.where(lengths[:, None] > 0, largest, 0.0)
    width = vectors.shape[2] // directions
    last = vectors[torch.arange(len(vectors), device=vectors.device), (lengths - 1).clamp(min=0)]
    return torch.cat([last[:, :width], vectors[:, 0, width:]], dim=1)
