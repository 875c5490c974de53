"""bilm-tf'S NAMES: `Batcher`, `BidirectionalLanguageModel` and `weight_layers`, without a graph and a session.

    ids = Batcher(vocabulary, 50).batch_sentences(sentences)    (B, T+2, 50)
    ops = BidirectionalLanguageModel(options, weights)(ids)     lm_embeddings (B, 3, T, 1024), mask, lengths
    elmo = WeightLayers(3, l2_coef=0.001)(ops)                  weighted_op (B, T, 1024), regularization_op

As there, the LSTMs' state is carried from call to call, row by row.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.layers import Layers
from elmo.model.lstm import State
from elmo.model.scalar_mix import ScalarMix
from elmo.text.characters import sentence_ids
from elmo.text.vocabulary import Vocabulary
from elmo.weights import source


class Batcher:
    """Turns tokenized sentences into character ids with boundaries. The vocabulary file is not needed, and not read."""

    def __init__(self, lm_vocab_file: str | Path | None, max_token_length: int) -> None:
        self.max_token_length = max_token_length

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> npt.NDArray[np.int64]:
        """Return ids (B, T+2, C); zeros where there is no token."""
        return sentence_ids(sentences, self.max_token_length)


class TokenBatcher:
    """Turns tokenized sentences into word ids with boundaries, for a model with the vectors of a vocabulary."""

    def __init__(self, lm_vocab_file: str | Path) -> None:
        self.vocabulary = Vocabulary.read(Path(lm_vocab_file).expanduser())

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> npt.NDArray[np.int64]:
        """Return ids (B, T+2); zeros where there is no token."""
        ids = np.zeros((len(sentences), max(map(len, sentences), default=0) + 2), dtype=np.int64)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence) + 2] = self.vocabulary.ids(["<S>", *sentence, "</S>"])
        return ids


class BidirectionalLanguageModel(nn.Module):
    """A biLM with fixed weights, that carries its state.

    `embedding_weight_file` has the token vectors of a vocabulary, for ids of words (`use_character_inputs=False`); its
    words are those of `vocabulary_file`. More than `max_batch_size` sentences are refused, as there.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path,
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int = 128,
        *,
        vocabulary_file: str | Path | None = None,
    ) -> None:
        super().__init__()
        if use_character_inputs == (embedding_weight_file is not None):
            raise ConfigError("embedding_weight_file is needed with use_character_inputs=False, and only then")
        read = source.read(
            weight_file, options=options_file, token_embeddings=embedding_weight_file, vocabulary=vocabulary_file
        )
        self.bilm = read.bilm.requires_grad_(False)
        self.max_batch_size = max_batch_size
        self.reset_states()

    def reset_states(self) -> None:
        """Start the next batch from zeros."""
        self._state = self.bilm.zero_state(self.max_batch_size)

    @torch.no_grad()
    def forward(self, ids: Tensor | npt.NDArray[np.int64]) -> dict[str, Tensor]:
        """Run character ids (B, T+2, C), or word ids (B, T+2), with boundaries.

        Returns `lm_embeddings` (B, L+1, T, 2D), `lengths` (B,) and `mask` (B, T) without boundaries, and
        `token_embeddings` (B, T+2, D) with them. Padding is zero, also in the token layer.
        """
        ids = torch.as_tensor(ids, device=self.bilm.weight.device)
        batch = len(ids)
        if batch > self.max_batch_size:
            raise ConfigError(f"the batch has {batch} sentences; max_batch_size is {self.max_batch_size}")
        before = State(*(part.to(self.bilm.weight.device) for part in self._state))
        layers, after = self.bilm(ids, State(*(part[:, :, :batch] for part in before)))
        pairs = zip(after, before, strict=True)
        self._state = State(*(torch.cat([new, old[:, :, batch:]], dim=2) for new, old in pairs))
        inner = layers.without_boundaries()
        return {
            "lm_embeddings": inner.activations.transpose(0, 1),
            "lengths": inner.mask.sum(dim=1),
            "token_embeddings": layers.activations[0, ..., : self.bilm.config.lstm.projection_dim],
            "mask": inner.mask,
        }


class WeightLayers(nn.Module):
    """bilm-tf's `weight_layers`: a mix of the layers. Its variables are in this module; there, a name finds them."""

    def __init__(
        self, n_layers: int, l2_coef: float | None = None, use_top_only: bool = False, do_layer_norm: bool = False
    ) -> None:
        super().__init__()
        if use_top_only and do_layer_norm:
            raise ConfigError("use_top_only takes the layer as it is; leave do_layer_norm False")
        self.mix = ScalarMix(
            n_layers,
            "last" if use_top_only else "learned",
            l2=l2_coef or 0.0,
            layer_norm="bilm-tf" if do_layer_norm else None,
        )

    def forward(self, bilm_ops: dict[str, Any]) -> dict[str, Tensor]:
        """Return `weighted_op` (B, T, 2D) and `regularization_op`, to be added to the loss."""
        layers = Layers(bilm_ops["lm_embeddings"].transpose(0, 1), bilm_ops["mask"])
        return {"weighted_op": self.mix(layers), "regularization_op": self.mix.penalty()}
