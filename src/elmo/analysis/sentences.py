"""SENTENCE VECTORS: the mean of a sentence's token vectors, by every layer and by word vectors; and the datasets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.analysis.vectors import Array, StaticVectors
from elmo.embed.embedder import Embedder
from elmo.tasks.sentences.data import read_judged

STATIC = "word vectors"


@dataclass(frozen=True)
class Pairs:
    """Pairs of sentences, as tokens, and how similar they are."""

    first: list[list[str]]
    second: list[list[str]]
    scores: npt.NDArray[np.float64]

    @property
    def sentences(self) -> list[list[str]]:
        """All sentences: the first of every pair, then the second."""
        return [*self.first, *self.second]


def read_pairs(path: Path) -> Pairs:
    """Read a file of the STS Benchmark: tabs between genre, file, year, id, score, sentence 1, sentence 2."""
    examples = read_judged(path)
    first, second = ([list(example.texts[side]) for example in examples] for side in (0, 1))
    return Pairs(first, second, np.array([example.gold for example in examples]))


def mean_vectors(
    sentences: Sequence[Sequence[str]],
    model: Embedder,
    static: StaticVectors | None,
    report: Callable[[int, int], None],
) -> dict[str, Array]:
    """Return the mean vectors of sentences by every method: (sentences, D) for each layer, their mean, word vectors.

    Words without a word vector are left out of its mean; a sentence without any has zeros.
    """
    means = []
    for number, array in enumerate(model.embed([list(sentence) for sentence in sentences])):
        if number % 100 == 0:
            report(number, len(sentences))
        means.append(array.mean(axis=1) if array.shape[1] else np.zeros(array.shape[::2], dtype=np.float32))
    layers = np.stack(means, axis=1)  # (L+1, sentences, 2D)
    found = {f"layer {number}": layer for number, layer in enumerate(layers)}
    found["mean of layers"] = layers.mean(axis=0)
    if static is not None:
        rows = []
        for sentence in sentences:
            known = [token for token in sentence if token in static]
            rows.append(static(known).mean(axis=0) if known else np.zeros(static.matrix.shape[1], dtype=np.float32))
        found[STATIC] = np.stack(rows)
    return found
