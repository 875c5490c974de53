"""PAIRS OF SNLI AND SQUAD TO LEARN FROM, PAIRS OF THE STS BENCHMARK TO JUDGE BY.

A folder with the training file of SNLI, files of SQuAD, if there are any, and sts-dev.csv and sts-test.csv; or with
the folders `snli`, `squad` and `stsb`, in which they are. An example to learn from is a premise, a sentence that
follows from it, and, if there is one, a sentence that contradicts it; or a question and the sentence that has its
answer. One to judge by is two sentences and their similarity, from 0 to 5.
"""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from elmo.errors import DataError
from elmo.tasks.examples import Example, Splits
from elmo.tasks.reading import files_in
from elmo.tasks.squad.data import Questions, read_file
from elmo.text.reader import read_lines
from elmo.text.tokens import Tokens, words

TRAIN = ("snli_1.0_train.jsonl", "snli_train_subset.jsonl", "train.jsonl")
PARTS = {
    "train": (*TRAIN, *(f"snli/{name}" for name in TRAIN)),
    "dev": ("sts-dev.csv", "stsb/sts-dev.csv"),
    "test": ("sts-test.csv", "stsb/sts-test.csv"),
}
QUESTIONS = ("train-v1.1.json", "train-subset-du-v1.1.json", "dev-v1.1.json")  # all that are there are read
SENTENCE_ENDS = {".", "?", "!"}
FIELDS = ("gold_label", "sentence1", "sentence2")


def read(folder: Path) -> Splits:
    """Read the parts of a folder."""
    found = files_in(folder, PARTS)
    splits = {part: (read_entailed if part == "train" else read_judged)(path) for part, path in found.items()}
    if "train" in splits:
        for path in (folder / place / name for place in (".", "squad") for name in QUESTIONS):
            if path.is_file():
                splits["train"] += read_answered(path)
    return splits


def read_entailed(path: Path) -> list[Example]:
    """Read the pairs of SNLI that are entailed, each with a contradiction of its premise, in turn."""
    pairs: list[tuple[Tokens, Tokens]] = []
    contradictions: defaultdict[Tokens, list[Tokens]] = defaultdict(list)
    for number, line in read_lines(path):
        if not line.strip():
            continue
        label, premise, hypothesis = _pair(line.rstrip(), f"{path}:{number}")
        if label == "entailment":
            pairs.append((premise, hypothesis))
        elif label == "contradiction":
            contradictions[premise].append(hypothesis)
    used: defaultdict[Tokens, int] = defaultdict(int)
    examples = []
    for premise, hypothesis in pairs:
        some = contradictions[premise]
        negative = (some[used[premise] % len(some)],) if some else ()
        used[premise] += 1
        examples.append(Example((premise, hypothesis, *negative)))
    if not examples:
        raise DataError(f"{path}: contains no pair with the label 'entailment'")
    return examples


def read_answered(path: Path) -> list[Example]:
    """Read the questions of SQuAD, each with the sentence of its paragraph that has the first answer."""
    pairs = []
    for example in read_file(path):
        assert isinstance(example, Questions)
        if example.gold.spans:
            pairs.append((example.texts[0], _sentence(example)))
    return [Example(pair) for pair in dict.fromkeys(pairs)]


def _sentence(question: Questions) -> Tokens:
    """Return the tokens of the first answer, and those around them as far as the next end of a sentence."""
    tokens = [token.text for token in question.paragraph.tokens]
    first, last = question.gold.spans[0]
    while first > 0 and tokens[first - 1] not in SENTENCE_ENDS:
        first -= 1
    while last < len(tokens) - 1 and tokens[last] not in SENTENCE_ENDS:
        last += 1
    return tuple(tokens[first : last + 1])


def _pair(line: str, where: str) -> tuple[str, Tokens, Tokens]:
    item: Any
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        item = None
    if isinstance(item, dict) and all(isinstance(item.get(name), str) for name in FIELDS):
        first, second = (tuple(words(item[name])) for name in FIELDS[1:])
        if first and second:
            return item["gold_label"], first, second
    names = ", ".join(FIELDS)
    raise DataError(f"{where}: {line[:40]!r}; expected a JSON object with a label and two sentences: {names}")


def read_judged(path: Path) -> list[Example]:
    """Read a file of the STS Benchmark: tabs between genre, file, year, id, score, sentence 1, sentence 2."""
    examples = []
    for number, line in read_lines(path):
        fields = line.split("\t")
        try:
            score, pair = float(fields[4]), (tuple(words(fields[5])), tuple(words(fields[6])))
        except (IndexError, ValueError):
            score, pair = math.nan, ((), ())
        if not (math.isfinite(score) and all(pair)):
            raise DataError(
                f"{path}:{number}: {line[:40]!r}; expected tabs between genre, file, year, id, score and two sentences"
            )
        examples.append(Example(pair, score))
    if not examples:
        raise DataError(f"{path}: contains no pairs")
    return examples


def read_similarities(path: Path, gold: Sequence[Example]) -> list[float]:
    """Read a file of predictions: one number per line, for each pair of the gold file."""
    found = []
    for number, line in read_lines(path):
        try:
            found.append(float(line))
        except ValueError:
            raise DataError(f"{path}:{number}: {line.strip()[:40]!r}; expected a number") from None
        if not math.isfinite(found[-1]):
            raise DataError(f"{path}:{number}: {line.strip()!r}; expected a finite number")
    if len(found) != len(gold):
        raise DataError(f"{path}: number of lines: {len(found)}; expected {len(gold)}, one for each pair")
    return found


def write_similarities(file: IO[str], examples: Sequence[Example], similarities: Sequence[float]) -> None:
    """Write one number per line."""
    file.writelines(f"{similarity!r}\n" for similarity in similarities)


def labels(examples: Sequence[Example]) -> list[str]:
    """Return nothing: there are no labels."""
    return []


def parse(item: Any) -> Example:
    """Parse two sentences: a line with a tab between them, a list, or an object with sentence1 and sentence2."""
    sides = item
    if isinstance(item, dict):
        sides = [item.get(name) for name in FIELDS[1:]]
    elif isinstance(item, str):
        sides = item.split("\t")
    if isinstance(sides, list | tuple) and len(sides) == 2 and all(isinstance(side, str) for side in sides):
        pair = tuple(tuple(words(side)) for side in sides)
        if all(pair):
            return Example(pair)
    raise DataError(f"{item!r}: expected two sentences, with a tab between them, as a list, or as an object")


def to_json(example: Example, similarity: float) -> dict[str, Any]:
    """Return the tokens of both sentences, and the cosine of their vectors."""
    first, second = example.texts
    return {"sentence1": list(first), "sentence2": list(second), "similarity": round(similarity, 6)}
