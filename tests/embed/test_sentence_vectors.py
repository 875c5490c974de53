"""Poolings by name: which layers they read, and whose words they know."""

import numpy as np
import pytest

from elmo.embed.pooling import POOLINGS, pooling, sif
from elmo.embed.sentence_vectors import sentence_pooling
from elmo.errors import ConfigError
from embedders import DIM, N_LAYERS, embedder
from weights.test_sif import STATISTICS

CONFIG = embedder().config
X = np.random.default_rng(0).standard_normal((4, DIM)).astype(np.float32)
TOKENS = ["The", "naïve", "cat", "!"]


@pytest.mark.parametrize("name", POOLINGS)
def test_the_layers_of_a_plain_pooling_are_those_that_are_asked_for(name: str) -> None:
    chosen = sentence_pooling(name, "top", CONFIG, None, "average")
    assert chosen.layers == "top"
    assert np.array_equal(chosen.pool(X, TOKENS), pooling(name)(X))
    assert sentence_pooling(name, None, CONFIG, STATISTICS, "all").layers == "all"


def test_the_layers_of_sif_are_those_of_its_statistics() -> None:
    chosen = sentence_pooling("sif", None, CONFIG, STATISTICS, "average")
    assert chosen.layers == STATISTICS.layers and len(STATISTICS.layers) == N_LAYERS
    assert np.array_equal(chosen.pool(X, TOKENS), sif(X, TOKENS, STATISTICS))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^pooling is 'sum'; expected one of mean, max, first-last, sif$"):
        sentence_pooling("sum", None, CONFIG, None, "average")
