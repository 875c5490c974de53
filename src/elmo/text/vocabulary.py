"""VOCABULARY FILE ◀─▶ WORD IDS, in bilm-tf's format: a word per line, `<S>`, `</S>`, `<UNK>`, then by descending count.

Word ids are shifted by one, like character ids: 0 means "no token", the first line is 1.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.errors import DataError
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmo.text.reader import read_lines

UNKNOWN = "<UNK>"
SPECIAL = (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN)
MAX_WORDS = 1 << 24
MAX_CHARACTERS = 512 << 20  # of a file; compressed, it may be a thousand times smaller


class Vocabulary:
    """The words of a vocabulary file, in its order, and their ids."""

    def __init__(self, words: Iterable[str], where: str = "vocabulary") -> None:
        self.words: list[str] = list(words)
        self._ids = {word: row + 1 for row, word in enumerate(self.words)}
        missing = [word for word in SPECIAL if word not in self._ids]
        if missing:
            raise DataError(
                f"{where}: {', '.join(missing)} not among its {len(self.words)} words; a vocabulary begins with "
                f"the lines {', '.join(SPECIAL)}"
            )
        if len(self._ids) < len(self.words):
            twice = next(word for row, word in enumerate(self.words) if self._ids[word] != row + 1)
            raise DataError(f"{where}: {twice!r} occurs more than once; expected one line per word")

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read a vocabulary file, one word per line; it may be compressed."""
        return cls(_words(path), where=str(path))

    def write(self, path: Path) -> None:
        """Write one word per line."""
        path.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def ids(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the ids of the words, (N,); an unknown word has the id of `<UNK>`."""
        unknown = self._ids[UNKNOWN]
        return np.fromiter((self._ids.get(word, unknown) for word in words), dtype=np.int64, count=len(words))


def _words(path: Path) -> Iterator[str]:
    """Yield the words of a file. A blank line is a row too, as in bilm-tf: word ids are line numbers."""
    size = 0
    for number, line in read_lines(path):
        size += len(line)
        if number > MAX_WORDS or size > MAX_CHARACTERS:
            raise DataError(
                f"{path}: has more than {MAX_WORDS:,} words or {MAX_CHARACTERS:,} characters; expected a vocabulary, "
                "one word per line"
            )
        yield line.strip()
