"""CoNLL-2012 COLUMNS ◀─▶ PROPOSITIONS: a token on each line, a blank line between sentences.

    document  part  number  word  part-of-speech  parse  lemma  frameset  sense  speaker  entities  ROLES…  coreference

There is a column of roles for each predicate, in the order of the predicates, which are the tokens with a frameset:
"(ARG1*" begins a span, "*)" ends it. Columns are separated by tabs or spaces. A part of the data is one file, or a
folder of them, as in OntoNotes (train/data/english/annotations/…/*.v4_gold_conll).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import IO

from elmo.errors import DataError
from elmo.tasks.columns import columns_of, sentences_of
from elmo.tasks.examples import Example, GroupedExamples, Splits
from elmo.tasks.reading import answers_for
from elmo.tasks.srl.data import PREDICATE, Answer, Proposition, Sentence, Span
from elmo.text.reader import files as files_below

NAMES = {"train": ("train",), "dev": ("dev", "development"), "test": ("test", "conll-2012-test")}
ENDING = "gold_conll"  # of file names: .gold_conll, .v4_gold_conll; beside them OntoNotes has files of other kinds
LANGUAGE = "english"  # OntoNotes has a folder for each language
UNKNOWN_SENSE = "XX"  # PropBank's word for a frameset that was not decided
_ROLE = re.compile(r"(?:\(([^()*]+))?\*(\))?")
# A biLM has read text as it is written: without the escapes of the Penn Treebank and of OntoNotes.
_WRITTEN = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", "``": '"', "''": '"',
    "/.": ".", "/?": "?", "/-": "-",
}  # fmt: skip


def read(folder: Path) -> Splits:
    """Read the parts of a folder: train.gold_conll, dev.gold_conll, …, or folders of such files."""
    found = {part: _find(folder, names) for part, names in NAMES.items()}
    if not any(found.values()):
        raise DataError(
            f"{folder}: contains no file of the task; expected train.{ENDING}, dev.{ENDING}, test.{ENDING}, or folders "
            f"train, development and test with files of that ending"
        )
    return {part: read_file(path) for part, path in found.items() if path is not None}


def read_file(path: Path) -> GroupedExamples:
    """Read a file, or all files of a folder that end in gold_conll: an example for each proposition."""
    numbers = count()
    return GroupedExamples(group for name in _files(path) for group in _examples(name, numbers))


def read_predictions(path: Path, gold: Sequence[Example]) -> list[Answer]:
    """Read the propositions of a file with the same sentences; a predicate that it lacks has no arguments.

    As in the official scorer, propositions of tokens that are not predicates in the gold file are not counted.
    """
    wanted, given = _by_sentence(gold), _by_sentence(read_file(path))
    answers_for([some[0] for some in wanted], [some[0] for some in given], path)
    answers = []
    for asked, found in zip(wanted, given, strict=True):
        spans = {one.predicate: one.spans for example in found for one in example.gold.propositions}
        for example in asked:
            propositions = tuple(Proposition(place, spans.get(place, ())) for place in example.predicates or ())
            answers.append(Answer(propositions, found[0].gold.predicates))
    return answers


def write_predictions(file: IO[str], examples: Sequence[Example], answers: Sequence[Answer]) -> None:
    """Write the propositions in columns; what a model does not predict is "-", "*", or the frameset XX."""
    document = None
    rest = iter(answers)
    for sentence in _by_sentence(examples):
        if sentence[0].document != document:
            if document is not None:
                file.write("#end document\n")
            document = sentence[0].document
            file.write(f"#begin document ({document[0]}); part {document[1].zfill(3)}\n")
        propositions = [one for _ in sentence for one in next(rest).propositions]
        lemmas = {
            place: lemma
            for example in sentence
            for place, lemma in zip(example.predicates or (), example.lemmas, strict=False)
        }
        file.write(_block(sentence[0], sorted(propositions), lemmas) + "\n")
    file.write("#end document\n" if document is not None else "")


def _block(sentence: Sentence, propositions: Sequence[Proposition], lemmas: dict[int, str]) -> str:
    """Return the lines of one sentence."""
    predicates = {one.predicate for one in propositions}
    roles = [_column(one.spans, len(sentence.tokens)) for one in propositions]
    lines = []
    for place, token in enumerate(sentence.tokens):
        lemma = lemmas.get(place, token) if place in predicates else "-"
        columns = [*sentence.document, str(place), token, "-", "*", lemma]
        columns += [UNKNOWN_SENSE if place in predicates else "-", "-", "-", "*", *(one[place] for one in roles), "-"]
        lines.append("\t".join(columns) + "\n")
    return "".join(lines)


def _column(spans: Iterable[Span], length: int) -> list[str]:
    column = ["*"] * length
    for start, end, role in spans:
        column[start] = f"({role}{column[start]}"
        column[end - 1] += ")"
    return column


def _find(folder: Path, names: Sequence[str]) -> Path | None:
    """Find the file or folder of a part."""
    endings = (f".{ENDING}", f".v4_{ENDING}", ".conll")
    files = [folder / f"{name}{ending}" for name in names for ending in endings]
    folders = [place / name for place in (folder, folder / "data") for name in names]
    found = (path for path in [*files, *folders] if path.is_file() or (path.is_dir() and any(path.rglob(f"*{ENDING}"))))
    return next(found, None)


def _files(path: Path) -> list[Path]:
    """List the files of a part."""
    if not path.is_dir():
        return [path]
    found = [Path(name) for name in files_below([path]) if name.endswith(ENDING)]
    english = [name for name in found if LANGUAGE in name.relative_to(path).parts]
    if not found:
        raise DataError(f"{path}: contains no file that ends in {ENDING}")
    return english or found


def _by_sentence(examples: Iterable[Example]) -> list[list[Sentence]]:
    """Group the examples of each sentence."""
    sentences = (example for example in examples if isinstance(example, Sentence))
    return [list(group) for _, group in groupby(sentences, key=lambda one: (one.document, one.number))]


def _examples(path: Path, numbers: Iterator[int]) -> Iterator[list[Sentence]]:
    """Yield the examples of each sentence of a file: one for each predicate, or one without."""
    sentences = sentences_of(path, "#begin document", "#end document")
    for (first, lines), number in zip(sentences, numbers, strict=False):  # a number only for a sentence
        rows = [_columns(line, f"{path}:{place}") for place, line in enumerate(lines, first)]
        for place, row in enumerate(rows, first):
            if len(row) != len(rows[0]):
                raise DataError(f"{path}:{place}: {len(row)} columns; expected {len(rows[0])}, as in line {first}")
        documents, parts, _, words, _, _, lemmas, framesets, *others = zip(*rows, strict=True)
        tokens = tuple(_WRITTEN.get(word, word) for word in words)
        columns = [_spans(column, path, first) for column in others[3:-1]]
        predicates = _predicates(framesets, columns, f"{path}:{first}")
        document = documents[0], parts[0]
        found = [
            Sentence(
                (tokens,),
                Answer((Proposition(place, spans),), tuple(sorted(predicates)) if k == 0 else None),
                predicates=(place,), lemmas=(lemmas[place],), document=document, number=number,
            )
            for k, (place, spans) in enumerate(zip(predicates, columns, strict=True))
        ]  # fmt: skip
        without = Sentence((tokens,), Answer((), ()), predicates=(), document=document, number=number)
        yield found or [without]


def _columns(line: str, where: str) -> list[str]:
    columns = columns_of(line)
    if len(columns) < 12 or not all(columns):
        raise DataError(
            f"{where}: {len(columns)} columns; expected the 12 of CoNLL-2012 (document, part, number, word, part of "
            f"speech, parse, lemma, frameset, sense, speaker, entities, coreference) and one for each predicate"
        )
    return columns


def _spans(column: Sequence[str], path: Path, first: int) -> tuple[Span, ...]:
    """Return the spans of a column of roles; they do not overlap."""
    spans: list[Span] = []
    start, role = 0, None
    for place, text in enumerate(column):
        if text == "*":
            continue
        match = _ROLE.fullmatch(text)
        begins, ends = match.groups() if match else (None, None)
        if match is None or (begins and role) or (ends and not (begins or role)):
            where = f" inside of {role}" if role else ""
            raise DataError(f"{path}:{first + place}: roles {text!r}{where}; expected *, (ROLE*, *) or (ROLE*)")
        if begins:
            start, role = place, begins
        if ends and role:
            spans.append(Span(start, place + 1, role))
            role = None
    if role:
        raise DataError(f"{path}:{first + start}: {role} has no end in its sentence; expected *) in the same column")
    return tuple(spans)


def _predicates(framesets: Sequence[str], columns: Sequence[Sequence[Span]], where: str) -> list[int]:
    """Return the predicate of each column: the tokens with a frameset or, if their number differs, the first of V."""
    places = [place for place, frameset in enumerate(framesets) if frameset != "-"]
    if len(places) != len(columns):
        found = [[span.start for span in spans if span.role == PREDICATE] for spans in columns]
        if not all(found) or len({some[0] for some in found}) < len(found):
            raise DataError(
                f"{where}: {len(places)} tokens have a frameset (column 8), and there are {len(columns)} columns of "
                f"roles; expected as many, or a V in each column"
            )
        places = [some[0] for some in found]
    return places
