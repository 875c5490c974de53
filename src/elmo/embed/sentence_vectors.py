"""THE NAME OF A POOLING ─▶ HOW A SENTENCE GETS ITS VECTOR: which layers it needs, and what is computed from them.

A name is that of a plain pooling, "sif", or that of a trained sentence head: an installed one, or the folder of one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from elmo.embed.pooling import POOLINGS, SIF, pooling, sif
from elmo.embed.selection import Array, LayersArgument
from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLMConfig
from elmo.weights import installed, sentence_head
from elmo.weights.sentence_head import TrainedHead
from elmo.weights.sif import Sif


@dataclass(frozen=True)
class SentencePooling:
    """Turns the token vectors of a sentence into one vector."""

    name: str  # by which any process finds it: an absolute path for a head that is not installed
    identity: str  # poolings of one identity compute the same: the name, or the fingerprint of a head
    layers: LayersArgument  # what `embed` has to return
    dim: int  # of the vector
    pool: Callable[[Array, Sequence[str]], Array]  # the array and the tokens of a sentence ─▶ its vector


def refuse_unknown(name: str) -> None:
    """Refuse a name that is not a pooling."""
    if name not in POOLINGS and name != SIF:
        _folder_of_head(name)


def sentence_pooling(
    name: str,
    layers: LayersArgument | None,
    config: BiLMConfig,
    statistics: Sif | None,
    fingerprint: Callable[[], str],
    default: LayersArgument,
) -> SentencePooling:
    """Find a pooling by its name, for a model with this config, these statistics and this fingerprint.

    If `layers` is None, they are those that the pooling was made for, or else the default.
    """
    if name in POOLINGS:
        pool = pooling(name, config.directions)
        chosen = default if layers is None else layers
        return SentencePooling(name, name, chosen, config.output_dim, lambda array, _: pool(array))
    folder = None if name == SIF else _folder_of_head(name)
    if layers is not None:
        raise ConfigError(f"layers is {layers!r}, but pooling {name!r} has its own: leave layers out")
    return _sif(statistics, config.output_dim) if folder is None else _head(name, folder, config, fingerprint())


def _folder_of_head(name: str) -> Path:
    if (folder := sentence_head.find(name)) is None:
        heads = ", ".join(sentence_head.names()) or "none"
        raise ConfigError(
            f"pooling is {name!r}; expected one of {', '.join([*POOLINGS, SIF])}; or a sentence head: the folder of "
            f"one, or the name of an installed one ({heads})"
        )
    return folder


def _sif(statistics: Sif | None, dim: int) -> SentencePooling:
    if statistics is None:
        raise WeightsError(
            "pooling is 'sif', but this model has no statistics for it; `elmo sif FOLDER TEXT` adds them to its folder"
        )
    return SentencePooling(SIF, SIF, statistics.layers, dim, lambda array, tokens: sif(array, tokens, statistics))


def _head(name: str, folder: Path, config: BiLMConfig, fingerprint: str) -> SentencePooling:
    trained = sentence_head.read(folder, config.n_layers, config.output_dim, fingerprint)

    def pool(array: Array, _: Sequence[str]) -> Array:
        return _by_head(trained, array)

    found = name if folder == installed.find(installed.TASKS, name) else str(folder)
    layers = "all" if trained.layer is None else trained.layer
    return SentencePooling(found, trained.fingerprint, layers, trained.dim, pool)


def _by_head(trained: TrainedHead, array: Array) -> Array:
    if not array.shape[-2]:
        return np.zeros(trained.dim, dtype=array.dtype)
    vector: Array = trained.encode(torch.from_numpy(array).float()).numpy()
    return vector.astype(array.dtype, copy=False)
