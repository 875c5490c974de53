"""CoNLL-2012 COLUMNS ◀─▶ DOCUMENTS.

    #begin document (bc/cctv/00/cctv_0000); part 000
    bc/cctv/00/cctv_0000  0  0  Anna   NNP  …  Speaker#1  *  (12)
    bc/cctv/00/cctv_0000  0  1  left   VBD  …  Speaker#1  *  -
    …
    #end document

A token per line, a blank line between sentences; columns are separated by tabs or spaces. Read are the word (column 4),
the speaker (column 10, if there are at least 12), and coreference (the last one): `(12` begins a mention of entity 12,
`12)` ends it, `(12)` is a mention of one token; several stand side by side, with or without `|`. As in the CoNLL
scorer, the marks of a line are read in this order: mentions of one token, beginnings, ends; an end belongs to the
latest beginning of its entity.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from elmo.errors import DataError
from elmo.tasks.coref.document import Clusters, Document, Span
from elmo.text.reader import read_lines
from elmo.text.tokens import Tokens

_BEGIN = re.compile(r"#\s*begin document\s+(?:\((?P<name>.*)\)|(?P<bare>[^();]*?))\s*(?:;\s*part\s+(?P<part>\S+))?\s*")
_END = re.compile(r"#\s*end document\b.*")
_BLANKS = re.compile("[ \t]+")  # no others: a token may contain a no-break space
_MARK = re.compile(r"(\()?([^()|\s]+)(\))?\|?")
_NONE = ("", "-", "_", "*")
_WORD, _SPEAKER, _COLUMNS = 3, 9, 12
_EXPECTED_COLUMNS = "expected 5 or more: document, part, number, word, …, and coreference in the last one"
_EXPECTED_BEGIN = "expected a line such as '#begin document (name); part 000'"


def read_file(path: Path) -> list[Document]:
    """Read the documents of one file."""
    documents: list[Document] = []
    open_one: _OpenDocument | None = None
    for number, line in read_lines(path):
        where, line = f"{path}:{number}", line.rstrip("\r")
        if begin := _BEGIN.fullmatch(line):
            if open_one is not None:
                raise DataError(f"{where}: a document begins inside another; expected '#end document' before it")
            open_one = _OpenDocument(begin["name"] or begin["bare"] or "", begin["part"] or "")
        elif _END.fullmatch(line):
            if open_one is None:
                raise DataError(f"{where}: '#end document' without a beginning; {_EXPECTED_BEGIN} before it")
            documents.append(open_one.finished())
            open_one = None
        elif line.startswith("#"):
            if "begin document" in line:
                raise DataError(f"{where}: {line!r}; {_EXPECTED_BEGIN}")
        elif not line.strip(" \t"):
            if open_one is not None:
                open_one.end_sentence()
        elif open_one is None:
            raise DataError(f"{where}: {line[:40]!r} is outside of a document; {_EXPECTED_BEGIN} before it")
        else:
            open_one.add(line, where)
    if open_one is not None:
        raise DataError(f"{path}: ends inside document {open_one.name!r}; expected '#end document' at its end")
    return documents


class _OpenDocument:
    """A document of which only a part has been read."""

    def __init__(self, name: str, part: str) -> None:
        self.name, self._part = name, part
        self._sentences: list[Tokens] = []
        self._tokens: list[str] = []  # of the current sentence
        self._speakers: list[str] = []
        self._clusters: dict[str, list[Span]] = {}
        self._begun: dict[str, list[tuple[int, str]]] = {}  # first token and line of mentions that have not ended

    def add(self, line: str, where: str) -> None:
        """Add a token."""
        columns = line.split("\t") if "\t" in line else _BLANKS.split(line.strip(" "))
        if len(columns) <= _WORD + 1 or not columns[_WORD].strip(" "):
            raise DataError(f"{where}: {len(columns)} columns in {line[:40]!r}; {_EXPECTED_COLUMNS}")
        speaker = columns[_SPEAKER].strip() if len(columns) >= _COLUMNS else ""
        self._add_mentions(columns[-1].strip(), where)
        self._tokens.append(columns[_WORD].strip(" "))
        self._speakers.append("" if speaker in _NONE else speaker)

    def end_sentence(self) -> None:
        """End a sentence; one without tokens is none."""
        if self._tokens:
            self._sentences.append(tuple(self._tokens))
            self._tokens = []

    def finished(self) -> Document:
        """Return the complete document."""
        self.end_sentence()
        for entity, begun in self._begun.items():
            if begun:
                raise DataError(f"{begun[-1][1]}: '({entity}' is never closed; expected '{entity})' in the document")
        return Document(
            tuple(self._sentences),
            tuple(map(tuple, self._clusters.values())),
            name=self.name,
            part=self._part,
            genre=genre_of(self.name),
            speakers=tuple(self._speakers),
        )

    def _add_mentions(self, column: str, where: str) -> None:
        if column in _NONE:
            return
        token = len(self._speakers)
        marks = _marks(column, where)
        for entity in (entity for begins, entity, ends in marks if begins and ends):
            self._clusters.setdefault(entity, []).append(Span(token, token + 1))
        for entity in (entity for begins, entity, ends in marks if begins and not ends):
            self._clusters.setdefault(entity, [])
            self._begun.setdefault(entity, []).append((token, where))
        for entity in (entity for begins, entity, ends in marks if ends and not begins):
            if not self._begun.get(entity):
                raise DataError(f"{where}: '{entity})' without a beginning; expected '({entity}' before it")
            self._clusters[entity].append(Span(self._begun[entity].pop()[0], token + 1))


def _marks(column: str, where: str) -> list[tuple[bool, str, bool]]:
    """Parse the coreference of a token: does a mention begin here, of which entity, does it end here?"""
    marks = []
    place = 0
    while place < len(column):
        mark = _MARK.match(column, place)
        if mark is None or not (mark[1] or mark[3]):
            raise DataError(f"{where}: coreference {column!r}; expected '-', or marks such as (3|(4) or 3)")
        marks.append((mark[1] is not None, mark[2], mark[3] is not None))
        place = mark.end()
    return marks


def genre_of(name: str) -> str:
    """Return the genre in a document's name: "bc" in bc/cctv/00/cctv_0000, "news" in GUM_news_asylum; else ""."""
    if "/" in name:
        return name.partition("/")[0]
    pieces = name.split("_")
    return pieces[1] if pieces[0] == "GUM" and len(pieces) > 2 else ""


def write_documents(file: IO[str], documents: Iterable[Document], clusters: Iterable[Clusters]) -> None:
    """Write documents with these clusters: twelve columns with tabs between them, as the CoNLL scorer reads them."""
    for document, some in zip(documents, clusters, strict=True):
        part = f"; part {document.part}" if document.part else ""
        file.write(f"#begin document ({document.name}){part}\n")
        marks = _marks_of(some, len(document.speakers))
        place = 0
        for text in document.texts:
            for number, token in enumerate(text):
                speaker = document.speakers[place] or "-"
                columns = (document.name, str(int(document.part)) if document.part.isdecimal() else "0", str(number),
                           token, "-", "*", "-", "-", "-", speaker, "*", "|".join(marks[place]) or "-")  # fmt: skip
                file.write("\t".join(columns) + "\n")
                place += 1
            file.write("\n")
        file.write("#end document\n")


def _marks_of(clusters: Sequence[Sequence[Span]], n_tokens: int) -> list[list[str]]:
    """Return the marks of each token: mentions that begin, the longest first, then those that end, the shortest first.

    Entities are numbered in the order of the clusters.
    """
    mentions = [(start, end, entity) for entity, cluster in enumerate(clusters) for start, end in cluster]
    marks: list[list[str]] = [[] for _ in range(n_tokens)]
    for start, end, entity in sorted(mentions, key=lambda mention: (mention[0], -mention[1])):
        marks[start].append(f"({entity})" if end - start == 1 else f"({entity}")
    for start, end, entity in sorted(mentions, key=lambda mention: (mention[1], -mention[0])):
        if end - start > 1:
            marks[end - 1].append(f"{entity})")
    return marks
