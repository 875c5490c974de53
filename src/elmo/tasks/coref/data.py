"""FOLDERS AND ITEMS ─▶ DOCUMENTS; ANSWERS ─▶ JSON AND CoNLL FILES.

A data folder has one of three layouts:

    train.conll, dev.conll, test.conll               OntoGUM; or train.english.v4_gold_conll, … of OntoNotes
    …/train/…/*gold_conll, …/development/…, …/test/…   OntoNotes as the CoNLL-2012 scripts write it, at any depth
    *.conll, without parts                           LitBank: a fixed split, see `split_of`
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from elmo.errors import DataError
from elmo.tasks.coref.conll import read_file, write_documents
from elmo.tasks.coref.document import Clusters, Document
from elmo.tasks.examples import Example, Splits
from elmo.text import sentences
from elmo.text.tokens import Tokens, words

PARTS = {
    "train": ("train.conll", "train.english.v4_gold_conll"),
    "dev": ("dev.conll", "dev.english.v4_gold_conll"),
    "test": ("test.conll", "test.english.v4_gold_conll"),
}
_FOLDERS = {"train": "train", "development": "dev", "dev": "dev", "test": "test"}
_EXPECTED_ITEM = (
    "expected a text, a list of sentences, or an object with 'text' or 'sentences', and optionally 'speakers' "
    "(of each sentence, or of each of its tokens), 'genre' and 'name'"
)


def read(folder: Path) -> Splits:
    """Read the documents of a folder, by part."""
    named = {part: next(((folder / n) for n in names if (folder / n).is_file()), None) for part, names in PARTS.items()}
    if any(named.values()):
        return {part: read_file(path) for part, path in named.items() if path is not None}
    files = _files_below(folder)
    parts: dict[str, list[Document]] = {}
    for path in files:
        part = next((_FOLDERS[name] for name in path.relative_to(folder).parts[:-1] if name in _FOLDERS), None)
        if part is not None:
            parts.setdefault(part, []).extend(read_file(path))
    if parts:
        return {part: parts[part] for part in PARTS if part in parts}
    return split_of([document for path in files for document in read_file(path)])


def _files_below(folder: Path) -> list[Path]:
    """Find the files of a folder and of the folders in it; if there are several languages, the English ones."""
    files = sorted(path for path in folder.rglob("*") if path.name.endswith((".conll", "gold_conll")))
    if not files:
        expected = ", ".join(name for names in PARTS.values() for name in names)
        raise DataError(
            f"{folder}: contains no file of the task; expected some of {expected}, or folders with *.conll or "
            f"*gold_conll files in them"
        )
    english = [path for path in files if "english" in path.relative_to(folder).parts]
    return english or files


def split_of(documents: Sequence[Document]) -> Splits:
    """Divide documents that have no parts: sorted by name, of every ten the ninth is dev and the tenth is test."""
    ordered = sorted(documents, key=lambda document: (document.name, document.part))
    parts: dict[str, list[Document]] = {"train": [], "dev": [], "test": []}
    for number, document in enumerate(ordered):
        parts[{8: "dev", 9: "test"}.get(number % 10, "train")].append(document)
    return parts


def labels(examples: Sequence[Example]) -> list[str]:
    """Return the genres of the documents."""
    return sorted({document.genre for document in examples if isinstance(document, Document) and document.genre})


def read_gold(path: Path) -> list[Document]:
    """Read the documents of a file, or of all files below a folder."""
    if path.is_dir():
        return [document for file in _files_below(path) for document in read_file(file)]
    return read_file(path)


def read_predictions(path: Path, gold: Sequence[Example]) -> list[Clusters]:
    """Read the clusters of a CoNLL file, for each gold document those of the same name and part."""
    wanted = {_key(document): len(document.tokens) for document in gold if isinstance(document, Document)}
    if len(wanted) < len(gold):
        raise DataError(f"{path}: cannot be compared; the gold documents do not all have names of their own")
    found: dict[str, Clusters] = {}
    for document in read_file(path):
        key = _key(document)
        if key not in wanted:
            raise DataError(f"{path}: document {key} is not among the gold documents")
        if key in found:
            raise DataError(f"{path}: document {key} occurs twice")
        if len(document.tokens) != wanted[key]:
            raise DataError(f"{path}: document {key} has {len(document.tokens)} tokens; expected {wanted[key]}")
        found[key] = document.gold
    missing = [key for key in wanted if key not in found]
    if missing:
        raise DataError(f"{path}: {len(missing)} of {len(wanted)} documents are missing, such as {missing[0]}")
    return [found[key] for key in wanted]


def write_predictions(file: IO[str], examples: Sequence[Example], answers: Sequence[Any]) -> None:
    """Write documents with predicted clusters, in the columns of CoNLL-2012."""
    write_documents(file, [one for one in examples if isinstance(one, Document)], answers)


def _key(document: Document) -> str:
    part = document.part.lstrip("0")  # the same with and without leading zeros
    return f"({document.name}); part {part or '0'}"


def parse(item: Any) -> Document:
    """Parse a document to predict from: raw text, or sentences, which are lists of tokens or raw text.

    An object may also have the speakers of the sentences or of their tokens, a genre and a name.
    """
    fields = item if isinstance(item, dict) else {"text" if isinstance(item, str) else "sentences": item}
    given = _split(fields["text"]) if isinstance(fields.get("text"), str) else fields.get("sentences")
    genre, name = (fields.get(field) or "" for field in ("genre", "name"))
    if not isinstance(given, list | tuple) or not isinstance(genre, str) or not isinstance(name, str):
        raise DataError(f"{_shown(item)}: {_EXPECTED_ITEM}")
    texts = [tuple(words(one)) if isinstance(one, str) else tuple(one) if _is_tokens(one) else None for one in given]
    speakers = fields.get("speakers")
    speakers = [""] * len(texts) if speakers is None else speakers
    if None in texts or not isinstance(speakers, list | tuple) or len(speakers) != len(texts):
        raise DataError(f"{_shown(item)}: {_EXPECTED_ITEM}")
    pairs = [(text, _of_each(speaker, text, item)) for text, speaker in zip(texts, speakers, strict=True) if text]
    by_token = tuple(speaker for _, some in pairs for speaker in some)
    return Document(tuple(text for text, _ in pairs), name=name, genre=genre, speakers=by_token)


def _split(text: str) -> list[str]:
    """Split a text into sentences; a blank line always ends one."""
    return [sentence for paragraph in re.split(r"\n\s*\n", text) for sentence in sentences.split(paragraph)]


def _is_tokens(one: Any) -> bool:
    return isinstance(one, list | tuple) and all(isinstance(token, str) and token for token in one)


def _of_each(speaker: Any, text: Tokens, item: Any) -> list[str]:
    """Return the speaker of each token of a sentence: one for all of them, or one for each."""
    if isinstance(speaker, str | None):
        return [speaker or ""] * len(text)
    if isinstance(speaker, list | tuple) and len(speaker) == len(text) and all(isinstance(s, str) for s in speaker):
        return list(speaker)
    raise DataError(f"{_shown(item)}: {_EXPECTED_ITEM}")


def _shown(item: Any) -> str:
    shown = repr(item)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"


def to_json(example: Example, clusters: Clusters) -> dict[str, Any]:
    """Return the sentences, and the clusters: the offsets of each mention in the document, and its text."""
    assert isinstance(example, Document)
    tokens = example.tokens
    shown = [
        [{"start": start, "end": end, "text": " ".join(tokens[start:end])} for start, end in cluster]
        for cluster in clusters
    ]
    named = {"name": example.name} if example.name else {}
    return {**named, "sentences": [list(text) for text in example.texts], "clusters": shown}
