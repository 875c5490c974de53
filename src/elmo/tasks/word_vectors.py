"""VECTOR FILE, DATA ─▶ WORD TABLE: GloVe's text format, a word and its numbers on each line."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.errors import DataError
from elmo.tasks.examples import Example, Splits
from elmo.tasks.inputs import InputsConfig
from elmo.text.reader import read_lines

Matrix = npt.NDArray[np.float32]
_EXPECTED = "expected a word and its numbers, as in GloVe's files"


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors."""

    words: list[str]
    matrix: Matrix  # (len(words), dim)


def for_task(config: InputsConfig, splits: Splits, seed: int) -> WordVectors | None:
    """Build the word table of a task; None if its config names no vector file.

    The table has the words of the training part first: those that are frequent but have no vector, with random ones,
    then the others. Then come, in the order of the file, its first words and all other words of the data.
    """
    if config.vectors is None:
        return None
    counts = {part: count_words(examples, config.lowercase) for part, examples in splits.items()}
    read = read_vectors(Path(config.vectors).expanduser(), config.max_words, set().union(*counts.values()))
    order = sorted(range(len(read.words)), key=lambda row: read.words[row] not in counts["train"])
    vectors = WordVectors([read.words[row] for row in order], read.matrix[order])
    if config.own_words is None:
        return vectors
    frequent = [word for word, count in counts["train"].items() if count >= config.own_words]
    return with_random(vectors, frequent, np.random.default_rng(seed))


def count_words(examples: Sequence[Example], lowercase: bool) -> Counter[str]:
    """Count the words of all texts."""
    words = (word for example in examples for text in example.texts for word in text)
    return Counter(word.lower() for word in words) if lowercase else Counter(words)


def read_vectors(path: Path, max_words: int, always: Iterable[str] = ()) -> WordVectors:
    """Read the first `max_words` lines of a file, and of the other lines those of the words in `always`.

    Most files are sorted by descending frequency. The file may be compressed (.gz, .xz, .bz2, .zst).
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
        word, *numbers = line.rstrip(" ").rsplit(" ", dim)  # a word may contain spaces: glove.840B has some
        if number > max_words and word not in wanted:
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


def with_random(vectors: WordVectors, words: Iterable[str], rng: np.random.Generator) -> WordVectors:
    """Put the `words` without a vector before the others; they get random vectors, of the same mean and deviation."""
    known = set(vectors.words)
    new = [word for word in dict.fromkeys(words) if word not in known]
    drawn = rng.normal(vectors.matrix.mean(), vectors.matrix.std(), (len(new), vectors.matrix.shape[1]))
    return WordVectors(new + vectors.words, np.concatenate([drawn.astype(np.float32), vectors.matrix]))
