"""VECTOR FILE ─▶ WORD TABLE: GloVe's text format, a word and its numbers on each line."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.errors import DataError
from elmo.text.reader import read_lines

Matrix = npt.NDArray[np.float32]
_EXPECTED = "expected a word and its numbers, as GloVe has"


@dataclass(frozen=True)
class WordVectors:
    """Words and a row for each."""

    words: list[str]
    matrix: Matrix  # (len(words), dim)


def read(path: Path, most: int, always: Iterable[str] = ()) -> WordVectors:
    """Read the first `most` lines of a file, and of the rest the words of `always`.

    Most files are sorted by falling frequency. The file may be compressed (.gz, .xz, .bz2, .zst).
    """
    wanted, words, rows = set(always), [], []
    dim = None
    for number, line in read_lines(path):
        if dim is None:
            fields = line.split()
            if number == 1 and len(fields) == 2 and fields[0].isdecimal():
                continue  # word2vec's text format begins with the number of words and of dimensions
            dim = len(fields) - 1
            if dim < 2:
                raise DataError(f"{path}:{number}: {line[:40]!r}; {_EXPECTED}")
        word, *numbers = line.rstrip(" ").rsplit(" ", dim)  # a word may hold spaces: glove.840B has some
        if number > most and word not in wanted:
            continue
        if len(numbers) != dim:
            raise DataError(f"{path}:{number}: {len(numbers)} numbers after {word[:40]!r}; expected {dim}")
        words.append(word)
        rows.append(_row(numbers, word, f"{path}:{number}"))
    if not rows:
        raise DataError(f"{path}: contains no word vectors; expected a word and its numbers on each line")
    return WordVectors(words, np.stack(rows))


def _row(numbers: list[str], word: str, where: str) -> npt.NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):  # what does not fit into float32 is refused below
            row = np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{where}: {error}; {_EXPECTED}") from None
    if not np.isfinite(row).all():
        wrong = numbers[int(np.argmin(np.isfinite(row)))]
        raise DataError(f"{where}: the vector of {word[:40]!r} contains {wrong}; expected finite numbers")
    return row


def with_own(vectors: WordVectors, words: Iterable[str], rng: np.random.Generator) -> WordVectors:
    """Add those of `words` that have no vector, each with random numbers of the mean and deviation of all others."""
    known = set(vectors.words)
    own = [word for word in dict.fromkeys(words) if word not in known]
    drawn = rng.normal(vectors.matrix.mean(), vectors.matrix.std(), (len(own), vectors.matrix.shape[1]))
    return WordVectors(vectors.words + own, np.concatenate([vectors.matrix, drawn.astype(np.float32)]))
