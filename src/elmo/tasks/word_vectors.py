"""VECTOR FILE ─▶ WORD TABLE: GloVe's text format, a word and its numbers on each line."""

import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.errors import DataError

Matrix = npt.NDArray[np.float32]
_EXPECTED = "expected a word and its numbers, as GloVe has"


@dataclass(frozen=True)
class WordVectors:
    """Words and a row for each."""

    words: list[str]
    matrix: Matrix  # (len(words), dim)


def read(path: Path, most: int, always: Iterable[str] = ()) -> WordVectors:
    """The first `most` lines of a file, the words of most files being sorted by how frequent they are, and of the rest
    the words that are asked for. A plain file, or one compressed as .xz."""
    wanted, words, rows = set(always), [], []
    dim = None
    try:
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if dim is None:
                    fields = line.split()
                    if number == 1 and len(fields) == 2 and fields[0].isdecimal():
                        continue  # word2vec's text format says first how many words and numbers follow
                    dim = len(fields) - 1
                    if dim < 2:
                        raise DataError(f"{path}:{number}: {line[:40]!r}; {_EXPECTED}")
                word, *numbers = line.rstrip("\n ").rsplit(" ", dim)  # a word may hold spaces: glove.840B has some
                if number > most and word not in wanted:
                    continue
                if len(numbers) != dim:
                    raise DataError(f"{path}:{number}: {len(numbers)} numbers after {word!r}; expected {dim}")
                words.append(word)
                rows.append(np.array(numbers, dtype=np.float32))
    except OSError as error:
        what = error.strerror or error
        raise DataError(f"{path}: cannot be read ({what}); expected a file of word vectors") from None
    except ValueError as error:
        raise DataError(f"{path}:{number}: {error}; {_EXPECTED}") from None
    if not rows:
        raise DataError(f"{path}: holds no word vectors; expected a word and its numbers on each line")
    return WordVectors(words, np.stack(rows))


def with_own(vectors: WordVectors, words: Iterable[str], rng: np.random.Generator) -> WordVectors:
    """And those of `words` that have no vector yet, each with one of its own: of numbers as they are in the others."""
    known = set(vectors.words)
    own = [word for word in dict.fromkeys(words) if word not in known]
    drawn = rng.normal(vectors.matrix.mean(), vectors.matrix.std(), (len(own), vectors.matrix.shape[1]))
    return WordVectors(vectors.words + own, np.concatenate([vectors.matrix, drawn.astype(np.float32)]))
