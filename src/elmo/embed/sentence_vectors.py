"""THE NAME OF A POOLING ─▶ HOW A SENTENCE GETS ITS VECTOR: which layers it needs, and what is computed from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elmo.embed.pooling import POOLINGS, SIF, pooling, sif
from elmo.embed.selection import Array, LayersArgument
from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLMConfig
from elmo.weights.sif import Sif


@dataclass(frozen=True)
class SentencePooling:
    """Turns the token vectors of a sentence into one vector."""

    layers: LayersArgument  # what `embed` has to return
    pool: Callable[[Array, Sequence[str]], Array]  # the array and the tokens of a sentence ─▶ its vector


def refuse_unknown(name: str) -> None:
    """Refuse a name that is not a pooling."""
    if name not in POOLINGS and name != SIF:
        raise ConfigError(f"pooling is {name!r}; expected one of {', '.join([*POOLINGS, SIF])}")


def sentence_pooling(
    name: str, layers: LayersArgument | None, config: BiLMConfig, statistics: Sif | None, default: LayersArgument
) -> SentencePooling:
    """Find a pooling by its name; `layers` None are those of the statistics, or else the default."""
    refuse_unknown(name)
    if name == SIF:
        return _sif(layers, statistics)
    pool = pooling(name, config.directions)
    return SentencePooling(default if layers is None else layers, lambda array, _: pool(array))


def _sif(layers: LayersArgument | None, statistics: Sif | None) -> SentencePooling:
    if statistics is None:
        raise WeightsError(
            "pooling is 'sif', but this model has no statistics for it; `elmo sif FOLDER TEXT` adds them to its folder"
        )
    if layers is not None:
        raise ConfigError(
            f"layers is {layers!r}, but pooling 'sif' has its own, those of its statistics: leave layers out"
        )
    return SentencePooling(statistics.layers, lambda array, tokens: sif(array, tokens, statistics))
