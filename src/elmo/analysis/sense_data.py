"""TEXT WITH WORD SENSES: the unified evaluation framework (Raganato et al. 2017), and WordNet.

FOLDER/*.data.xml        sentences; words that have a sense are instances
FOLDER/*.gold.key.txt    the senses of every instance, one or several, as WordNet's sense keys
dict/index.sense         WordNet's sense keys, each with its synset and its number: 1 is the first sense
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from elmo.errors import DataError
from elmo.text.reader import read_lines

Lemma = tuple[str, str]  # and its part of speech
TYPES = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}  # the first digit of a sense key
FILES = {"1": "data.noun", "2": "data.verb", "3": "data.adj", "4": "data.adv", "5": "data.adj"}


@dataclass(frozen=True)
class Occurrence:
    """A word of a sentence that has a sense."""

    id: str
    lemma: Lemma
    place: int  # the token that stands for it: its last one, if it is a phrase
    senses: frozenset[str]


@dataclass(frozen=True)
class SenseSentence:
    """The tokens of a sentence, their coarse parts of speech, and the occurrences that have a sense."""

    tokens: list[str]
    pos: list[str]
    occurrences: list[Occurrence]


def read_senses(folder: Path) -> Iterator[SenseSentence]:
    """Read the sentences of a dataset."""
    xml, keys = _only(folder, "*.data.xml"), _only(folder, "*.gold.key.txt")
    senses = {}
    for _, line in read_lines(keys):
        name, *found = line.split()
        senses[name] = frozenset(found)
    try:
        for _, element in ElementTree.iterparse(xml):
            if element.tag == "sentence":
                yield _sentence(element, senses)
                element.clear()
    except (ElementTree.ParseError, KeyError) as error:
        raise DataError(f"{xml}: damaged ({error}); expected a dataset of the unified evaluation framework") from None


def _sentence(element: ElementTree.Element, senses: dict[str, frozenset[str]]) -> SenseSentence:
    tokens: list[str] = []
    pos: list[str] = []
    occurrences = []
    for word in element:
        parts = (word.text or "").split()
        tokens += parts
        pos += [word.attrib["pos"]] * len(parts)
        if word.tag == "instance":
            name, lemma = word.attrib["id"], (word.attrib["lemma"], word.attrib["pos"])
            occurrences.append(Occurrence(name, lemma, len(tokens) - 1, senses[name]))
    return SenseSentence(tokens, pos, occurrences)


def first_senses(wordnet: Path) -> dict[Lemma, str]:
    """Return WordNet's first sense of every lemma and part of speech; `wordnet` is its folder `dict`."""
    found = {}
    for number, line in read_lines(wordnet / "index.sense"):
        fields = line.split()
        if len(fields) != 4 or "%" not in fields[0]:
            raise DataError(
                f"{wordnet / 'index.sense'}:{number}: {line[:40]!r}; expected a sense key and three numbers"
            )
        if fields[2] == "1":
            lemma, lexical = fields[0].split("%")
            found[lemma, TYPES[lexical[0]]] = fields[0]
    return found


def glosses(wordnet: Path, keys: set[str]) -> dict[str, str]:
    """Return the definitions of some senses, without the examples."""
    found = {}
    for _, line in read_lines(wordnet / "index.sense"):
        key, offset, *_ = line.split()
        if key in keys:
            with (wordnet / FILES[key.partition("%")[2][0]]).open("rb") as file:
                file.seek(int(offset))
                gloss = file.readline().decode("utf-8").partition("|")[2]
            found[key] = gloss.partition('; "')[0].strip()
    return found


def _only(folder: Path, pattern: str) -> Path:
    paths = sorted(folder.glob(pattern))
    if len(paths) != 1:
        raise DataError(
            f"{folder}: number of files {pattern}: {len(paths)}; expected 1, as in the evaluation framework"
        )
    return paths[0]
