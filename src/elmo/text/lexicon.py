"""WORDS ─▶ IDS OF ELMoForManyLangs: the row of a word in a table, and its code points in an alphabet.

    "hi"  ─▶  word, <eow>, 'h', 'i', <bow>, <pad>, <pad>, …        (1 + C ids)

The tables are files of lines `entry TAB row`. Ids are rows plus one: 0 means "no token", as in `characters`.

What its own code does, and the published models were trained with:
- `<eow>` begins a word and `<bow>` ends it;
- a word of more than C − 2 code points is cut, before it is looked up among the words, too;
- unknown words and code points are `<oov>`; `<bos>` and `<eos>` are the boundaries, also where a text contains them;
- a line of one field is the row of U+3000, because fields are read without the spaces around them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.errors import DataError
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE

CHARACTERS, WORDS = "char.dic", "word.dic"
UNKNOWN, PADDING, BEGIN, END = "<oov>", "<pad>", "<bos>", "<eos>"
BEGIN_WORD, END_WORD = "<eow>", "<bow>"  # not a mistake here: see above
SPELLING = (BEGIN, END, BEGIN_WORD, END_WORD)
BOUNDARIES = {BEGIN_SENTENCE: BEGIN, END_SENTENCE: END}
MAX_BYTES = 512 << 20


class Lexicon:
    """The rows of words, of code points, or of both. `max_characters` counts the marks around a word."""

    def __init__(
        self, words: Mapping[str, int] | None, characters: Mapping[str, int] | None, max_characters: int
    ) -> None:
        self.words = words
        self.characters = characters
        self.max_characters = max_characters

    @classmethod
    def read(cls, folder: Path, *, n_words: int | None, n_characters: int | None, max_characters: int) -> "Lexicon":
        """Read `word.dic` and `char.dic`, or one of them, for tables of so many rows; None: there is no such table."""
        marks = (UNKNOWN, PADDING)
        return cls(
            None if n_words is None else read_rows(folder / WORDS, marks, n_words),
            None if n_characters is None else read_rows(folder / CHARACTERS, (*marks, *SPELLING), n_characters),
            max_characters,
        )

    def write(self, folder: Path) -> None:
        """Write the files that `read` reads."""
        for name, rows in ((WORDS, self.words), (CHARACTERS, self.characters)):
            if rows is not None:
                text = "".join(f"{entry}\t{row}\n" for entry, row in rows.items())
                (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))

    @property
    def width(self) -> int:
        """Number of ids of a token: one for the word, C for its code points."""
        return (self.words is not None) + (self.max_characters if self.characters is not None else 0)

    def ids(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the ids of words, (N, width)."""
        ids = np.empty((len(words), self.width), dtype=np.int64)
        for row, word in zip(ids, words, strict=True):
            cut = BOUNDARIES.get(word, word[: self.max_characters - 2])
            if self.words is not None:
                row[0] = self.words.get(cut, self.words[UNKNOWN])
            if self.characters is not None:
                self._spell(row[-self.max_characters :], cut)
        return ids + 1

    def sentence_ids(self, sentences: Sequence[Sequence[str]]) -> npt.NDArray[np.int64]:
        """Return the ids of sentences with boundaries, (B, T, width); zeros where there is no token."""
        longest = max(map(len, sentences), default=0) + 2
        ids = np.zeros((len(sentences), longest, self.width), dtype=np.int64)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence) + 2] = self.ids([BEGIN_SENTENCE, *sentence, END_SENTENCE])
        return ids

    def _spell(self, row: npt.NDArray[np.int64], word: str) -> None:
        rows = self.characters
        assert rows is not None
        unknown = rows[UNKNOWN]
        inside = [rows[word]] if word in (BEGIN, END) else [rows.get(point, unknown) for point in word]
        row[: len(inside) + 2] = [rows[BEGIN_WORD], *inside, rows[END_WORD]]
        row[len(inside) + 2 :] = rows[PADDING]


def read_rows(path: Path, required: Sequence[str], n_rows: int) -> dict[str, int]:
    """Read the rows of entries in a table of `n_rows`."""
    try:
        if path.stat().st_size > MAX_BYTES or not path.is_file():  # a device has no end
            raise DataError(f"{path}: not a file of at most {MAX_BYTES:,} bytes; expected entries with their rows")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        lines = data.decode("utf-8", "surrogatepass").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}") from None
    rows: dict[str, int] = {}
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, 1):
        fields = line.strip().split("\t")
        *entry, row = ["\u3000", *fields] if len(fields) == 1 else fields
        if len(entry) != 1 or not (row.isascii() and row.isdecimal() and len(row) < 10):
            raise DataError(f"{path}, line {number}: found {line[:80]!r}; expected an entry, a tab, a row number")
        rows[entry[0]] = int(row)
        if rows[entry[0]] >= n_rows:
            raise DataError(f"{path}, line {number}: row {row} of a table of {n_rows} rows. Are they from one model?")
    missing = [mark for mark in required if mark not in rows]
    if missing:
        raise DataError(f"{path}: {', '.join(missing)} not among its {len(rows)} entries")
    return rows
