"""ARRAYS OF VECTORS: unit length, cosines, centring, principal components; and word vectors as a control."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.tasks.word_vectors import read_vectors

Array = npt.NDArray[np.float32]


def unit(rows: Array) -> Array:
    """Scale rows (…, D) to length 1; a row of zeros stays as it is."""
    scaled: Array = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
    return scaled


class Whitening:
    """Centring, and the removal of the first principal components (Mu & Viswanath 2018), learned from some rows (N, D).

    `components` is how many are removed; with none, only the mean is subtracted.
    """

    def __init__(self, rows: Array, components: int = 0) -> None:
        self.mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        self.directions = principal_components(rows, components)  # (components, D)

    def __call__(self, rows: Array) -> Array:
        """Transform rows (…, D)."""
        centred = rows - self.mean
        result: Array = centred - (centred @ self.directions.T) @ self.directions
        return result


def principal_components(rows: Array, count: int) -> Array:
    """Return the first principal components of rows (N, D): orthonormal, (count, D)."""
    return _spectrum(rows)[1][:count]


def shares(rows: Array) -> npt.NDArray[np.float64]:
    """Return the share of the variance of rows (N, D) along each principal component, in falling order."""
    variances = _spectrum(rows)[0]
    parts: npt.NDArray[np.float64] = variances / max(float(variances.sum()), 1e-300)
    return parts


def _spectrum(rows: Array) -> tuple[npt.NDArray[np.float64], Array]:
    """Variances in falling order, and their directions (D, D): by the covariance, so that N may be large."""
    centred = rows - rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    covariance = (centred.T @ centred).astype(np.float64) / max(1, len(rows) - 1)
    variances, directions = np.linalg.eigh(covariance)
    return np.maximum(variances[::-1], 0.0), directions[:, ::-1].T.astype(np.float32)


def projected(rows: Array) -> Array:
    """Return the coordinates of rows (N, D) along their first two principal components, (N, 2)."""
    flat: Array = (rows - rows.mean(axis=0)) @ principal_components(rows, 2).T
    return flat


class StaticVectors:
    """Word vectors of a file: the same vector for a word in every context. Unknown words have zeros."""

    def __init__(self, path: Path, max_words: int = 1 << 30) -> None:
        read = read_vectors(path, max_words)
        self.words = read.words
        self.matrix = read.matrix
        self._rows = {word: row for row, word in enumerate(read.words)}

    def __contains__(self, word: str) -> bool:
        return word.lower() in self._rows

    def __call__(self, tokens: Sequence[str]) -> Array:
        """Return the vectors of tokens, looked up in lower case: (len(tokens), D)."""
        vectors = np.zeros((len(tokens), self.matrix.shape[1]), dtype=np.float32)
        for place, token in enumerate(tokens):
            if (row := self._rows.get(token.lower())) is not None:
                vectors[place] = self.matrix[row]
        return vectors
