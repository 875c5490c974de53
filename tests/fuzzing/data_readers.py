"""The readers of text and of the data of tasks, with small valid files of each format."""

import bz2
import gzip
import io
import json
import lzma
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import zstandard

from elmo.errors import DataError
from elmo.tasks.coref import data as coref
from elmo.tasks.examples import Example
from elmo.tasks.ner import data as ner
from elmo.tasks.reading import parse_sentence
from elmo.tasks.sentences import data as sentences
from elmo.tasks.snli import data as snli
from elmo.tasks.squad import data as squad
from elmo.tasks.squad import predictions
from elmo.tasks.srl import conll as srl
from elmo.tasks.srl import data as propositions
from elmo.tasks.sst import data as sst
from elmo.tasks.task import PredictionFormat
from elmo.tasks.word_vectors import read_vectors
from elmo.text import reader
from elmo.text.vocabulary import Vocabulary
from fuzzing.cases import Files, Reader
from fuzzing.mutations import changed_bytes, changed_json, changed_lines

TEXT = "The cat sat .\r\nnaïve 日本語 🙂\n\n{}\nlast line".encode()
WORDS = "<S>\n</S>\n<UNK>\nthe\nnaïve\n日本\n".encode()
VECTORS = b"3 2\nthe 0.5 -1e3\n, 1 2\nat name@domain.com 3 4.25\n"
NER = b"-DOCSTART- -X- -X- O\n\nAnna NNP I-NP B-PER\nFlint NNP I-NP I-PER\nleft VBD I-VP O\n. . O O\n\nIn Lima S-LOC\n"
ROWS = [
    ("Anna", "Anna", "-", "(ARG0*)", "(ARG0*", "(12)"),
    ("saw", "see", "01", "(V*)", "*)", "-"),
    ("-LRB-", "-", "-", "(ARG1*", "*", "(3|(12"),
    ("runs", "run", "XX", "*)", "(V*)", "12)|3)"),
]
ONTONOTES = "#begin document (bc/cctv/00/cctv_0000); part 000\n" + "".join(
    f"bc/cctv/00/cctv_0000  0  {n}  {word}  NNP  *  {lemma}  {sense}  -  Speaker#1  *  {one}  {two}  {mention}\n"
    for n, (word, lemma, sense, one, two, mention) in enumerate(ROWS)
)
CONLL_2012 = f"{ONTONOTES}\n#end document\n".encode()
COREF = CONLL_2012 + CONLL_2012.replace(b"  ", b"\t").replace(b"part 000", b"part 001")
SNLI = b"".join(
    json.dumps({"gold_label": label, "sentence1": "A man isn't here .", "sentence2": "`` No '' one."}).encode() + b"\n"
    for label in ("neutral", "-", "entailment")
)
SST = b"(3 (2 It) (4 (2 's) (3 fun)))\n\n(0 (1 -LRB-) (2 a\\/b))\n"
STS = "captions\tnone\t2012\t0001\t3.800\tA man isn't here.\tNobody is naïve.\n".encode() * 2
CONTEXT = "The old mill (built in 1712) stands on the River Wey; its owner isn't selling it."
SQUAD = json.dumps(
    {
        "data": [
            {
                "title": "Mill",
                "paragraphs": [
                    {
                        "context": CONTEXT,
                        "qas": [
                            {
                                "id": str(n),
                                "question": "When?",
                                "answers": [{"text": answer, "answer_start": CONTEXT.find(answer)}],
                            }
                            for n, answer in enumerate(("1712", "the River Wey"))
                        ],
                    }
                ],
            }
        ]
    }
).encode()
ANSWERS = json.dumps({"0": "1712", "1": "Wey", "other": ""}).encode()
ITEMS: tuple[Any, ...] = (
    "The cat sat.",
    ["The", "cat"],
    {"tokens": ["The", "cat"], "predicates": [1]},
    {"text": "One. Two.", "genre": "bc", "name": "x"},
    {"sentences": [["One", "."], "Two."], "speakers": ["A", ["B", "C"]]},
    {"sentence1": "A", "sentence2": ["B", "C"]},
    {"context": CONTEXT, "questions": ["When?", "Who?"]},
)


def text_readers() -> list[Reader]:
    """Return the readers of text: plain and compressed files, JSON lines, Parquet, vocabularies, word vectors."""
    return [
        Reader("text", _text_files(), _changed_text, _read_text),
        Reader("vocabulary", ({"file.txt": WORDS},), _lines, _whole(Vocabulary.read)),
        Reader("word vectors", ({"file.txt": VECTORS},), _lines, _whole(partial(read_vectors, max_words=2))),
    ]


def task_readers() -> list[Reader]:
    """Return the readers of the tasks' data, of files of predictions, and of items to predict from."""
    squad_format = PredictionFormat(squad.read_file, predictions.read_predictions, predictions.write_predictions)
    return [
        _columns("ner", NER, ner.read_file, ner.read_predictions, ner.labels),
        _columns("srl", CONLL_2012, srl.read_file, srl.read_predictions, propositions.labels),
        _columns("coref", COREF, coref.read_gold, coref.read_predictions, coref.labels),
        Reader("squad", ({"file.json": SQUAD},), _json, _whole(squad.read_file)),
        Reader("squad predictions", ({"gold.json": SQUAD, "file.json": ANSWERS},), _json, _answers(squad_format)),
        Reader("snli", ({"file.jsonl": SNLI},), _json_lines, _whole(snli.read_file)),
        Reader("sst", ({"file.txt": SST},), _trees, _whole(partial(sst.read_file, phrases=True))),
        Reader("sentences", ({"file.jsonl": SNLI},), _json_lines, _whole(sentences.read_entailed)),
        Reader("answered questions", ({"file.json": SQUAD},), _json, _whole(sentences.read_answered)),
        Reader("similarities", ({"file.csv": STS},), _lines, _whole(sentences.read_judged)),
        Reader("items", tuple({"file.json": json.dumps(item).encode()} for item in ITEMS), _json, _read_item),
    ]


def _columns(
    name: str,
    valid: bytes,
    read: Callable[[Path], Sequence[Example]],
    predictions: Callable[[Path, Sequence[Example]], list[Any]],
    labels: Callable[[Sequence[Example]], list[str]],
) -> Reader:
    """Return the reader of a format in columns: as gold data, and as predictions for the valid file."""

    def read_both(folder: Path) -> None:
        predictions(folder / "file.txt", read(folder / "gold.txt"))
        labels(read(folder / "file.txt"))

    return Reader(name, ({"gold.txt": valid, "file.txt": valid},), _lines, read_both)


def _whole(read: Callable[[Path], Any]) -> Callable[[Path], object]:
    return lambda folder: read(next(folder.iterdir()))


def _answers(format: PredictionFormat) -> Callable[[Path], object]:
    return lambda folder: format.read_predictions(folder / "file.json", format.read_gold(folder / "gold.json"))


def _changed(rng: Random, files: Files, *changes: Callable[[Random, bytes], bytes]) -> Files:
    """Change the file that is not gold."""
    name = next(name for name in files if name.startswith("file"))
    return {**files, name: rng.choice(changes)(rng, files[name])}


def _lines(rng: Random, files: Files) -> Files:
    return _changed(rng, files, changed_lines, changed_lines, changed_lines, changed_bytes)


def _json(rng: Random, files: Files) -> Files:
    return _changed(rng, files, changed_json)


def _json_lines(rng: Random, files: Files) -> Files:
    def one_line(rng: Random, data: bytes) -> bytes:
        lines = data.split(b"\n")
        at = rng.randrange(len(lines) - 1)
        lines[at] = changed_json(rng, lines[at])
        return b"\n".join(lines)

    return _changed(rng, files, one_line, one_line, one_line, changed_lines, changed_bytes)


def _trees(rng: Random, files: Files) -> Files:
    def nested(rng: Random, data: bytes) -> bytes:
        levels = rng.choice((3, 100, 199, 200, 201, 20_000))
        return b"(2 (2 a) " * levels + b"(2 b" + b")" * rng.choice((levels, levels + 1, 1)) + data

    changes = (changed_lines, changed_bytes) * 20
    return _changed(rng, files, *changes, nested)


def _read_item(folder: Path) -> None:
    """Parse an item as each task does; raise the last of their errors."""
    try:
        item = json.loads((folder / "file.json").read_bytes())
    except (ValueError, RecursionError):  # predict_file refuses it
        return
    refused = None
    for parse in (parse_sentence, propositions.parse, coref.parse, snli.parse, squad.parse):
        try:
            parse(item)
        except DataError as error:
            refused = error
    if refused is not None and item not in ITEMS:  # no item is one of every task
        raise refused


# Text


def _parquet() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"text": ["The cat .", None, "a\nb"], "n": [1, 2, 3]}), file)
    return file.getvalue()


def _text_files() -> tuple[Files, ...]:
    packed = zstandard.compress(TEXT)
    lines = b'{"text": "The cat ."}\n\n{"text": null}\n{"text": "a\\nb", "n": 1}\n'
    return (
        {"file.txt": TEXT},
        {"file.txt.gz": gzip.compress(TEXT, mtime=0)},
        {"file.txt.xz": lzma.compress(TEXT)},
        {"file.txt.bz2": bz2.compress(TEXT)},
        {"file.txt.zst": packed + packed},
        {"file.jsonl": lines},
        {"file.jsonl.gz": gzip.compress(lines, mtime=0)},
        {"file.parquet": _parquet()},
    )


def _bomb(name: str, mebibytes: int = 200) -> bytes:
    """Zeros: a line without an end."""
    zeros = bytes(1 << 20)
    if name.endswith(".zst"):
        # Blocks of 128 KiB that repeat a byte, of 4 bytes each, in a frame of unknown size.
        block = struct.pack("<I", (128 << 10 << 3) | 2)[:3] + b"\0"
        return b"\x28\xb5\x2f\xfd\0\x58" + block * (8 * mebibytes) + b"\x01\0\0"
    packers: dict[str, Any] = {".gz": lambda: gzip.compress(zeros, mtime=0), ".xz": lambda: lzma.compress(zeros)}
    return packers.get(Path(name).suffix, lambda: bz2.compress(zeros))() * mebibytes  # streams may follow each other


def _changed_text(rng: Random, files: Files) -> Files:
    name = next(iter(files))
    if Path(name).suffix in reader.COMPRESSED and rng.random() < 0.0005:
        return {name: _bomb(name)}
    return _changed(rng, files, changed_bytes) if name != "file.jsonl" else _json_lines(rng, files)


def _read_text(folder: Path) -> None:
    path = next(folder.iterdir())
    if ".jsonl" not in path.name and path.suffix != ".parquet":
        for _ in reader.read_lines(path):
            pass
    for piece in reader.pieces([str(path)]):
        for _ in reader.lines(piece):
            pass
