"""`elmo evaluate TASK GOLD --predictions FILE`: scores computed by hand, and what is refused."""

import json
from pathlib import Path

import pytest

from embedders import assert_refused, elmo

POS = Path(__file__).parents[2] / "examples" / "pos"

ENTITIES = "Anna B-PER\nsaw O\nNew B-LOC\nYork I-LOC\n\nBela B-PER\nleft O\nOslo B-LOC\n"
# New York has a wrong start, Bela a wrong type, and there is one entity too many: 2 of 5 are correct.
FOUND = "Anna B-PER\nsaw O\nNew O\nYork B-LOC\n\nBela B-LOC\nleft B-PER\nOslo B-LOC\n"
TREES = "(3 (2 It) (4 (2 's) (3 fun)))\n(1 (2 No) (2 fun))\n(0 Bad)\n(2 Fine)\n"
PAIRS = [("A man runs.", "A man moves.", "entailment"), ("Snow.", "Rain.", "-"), ("A cat.", "A dog.", "contradiction")]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def pairs(path: Path) -> Path:
    rows = ({"sentence1": a, "sentence2": b, "gold_label": label} for a, b, label in PAIRS)
    return write(path, "".join(f"{json.dumps(row)}\n" for row in rows))


def test_entities_in_columns(tmp_path: Path) -> None:
    gold, found = write(tmp_path / "gold.txt", ENTITIES), write(tmp_path / "found.txt", FOUND)
    ended = elmo("evaluate", "ner", gold, "--predictions", found, "--json")
    precision, recall = 100 * 2 / 5, 100 * 2 / 4
    wanted = {"f1": 2 * precision * recall / (precision + recall), "precision": precision, "recall": recall}
    # LOC: 1 correct of 3 found and 2 gold; PER: 1 correct of 2 found and 2 gold
    assert json.loads(ended.out) == pytest.approx(wanted | {"f1_LOC": 100 * 2 / (3 + 2), "f1_PER": 100 * 2 / (2 + 2)})
    assert "recall             50.00\n" in elmo("evaluate", "ner", gold, "--predictions", found).out


def test_one_label_per_line(tmp_path: Path) -> None:
    trees, labels = write(tmp_path / "trees.txt", TREES), write(tmp_path / "labels.txt", "3\n2\n0\n2\n")
    ended = elmo("evaluate", "sst", trees, "--predictions", labels, "--json")
    assert json.loads(ended.out) == {"accuracy": 75.0}
    labels = write(tmp_path / "pairs.txt", "entailment\nneutral\n")
    ended = elmo("evaluate", "snli", pairs(tmp_path / "pairs.jsonl"), "--predictions", labels, "--json")
    assert json.loads(ended.out) == {"accuracy": 50.0}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (FOUND.replace("York", "Delhi"), "item 1 is 'Anna saw New Delhi'; expected 'Anna saw New York', as in"),
        (FOUND.partition("\n\n")[0], "number of items: 1; expected 2, as in the gold file"),
        (FOUND + "\nAnna B-PER\n", "number of items: 3; expected 2, as in the gold file"),
        (FOUND.replace("B-LOC", "LOC"), "found.txt:4: tag 'LOC'; expected O, or B-, I-, … and a type"),
    ],
)
def test_columns_that_do_not_belong_to_the_gold_file(found: str, message: str, tmp_path: Path) -> None:
    gold = write(tmp_path / "gold.txt", ENTITIES)
    ended = elmo("evaluate", "ner", gold, "--predictions", write(tmp_path / "found.txt", found))
    assert_refused(ended, message)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("3\n2\n0\n", "number of labels: 3; expected 4, one for each gold example"),
        ("3\n2\n5\n2\n", "labels.txt:3: found '5'; expected one label per line: 0, 1, 2, 3, 4"),
        ("3\n\n0\n2\n", "labels.txt:2: found ''; expected one label per line: 0, 1, 2, 3, 4"),
    ],
)
def test_labels_that_do_not_belong_to_the_gold_file(labels: str, message: str, tmp_path: Path) -> None:
    gold = write(tmp_path / "gold.txt", TREES)
    ended = elmo("evaluate", "sst", gold, "--predictions", write(tmp_path / "labels.txt", labels))
    assert_refused(ended, message)


def test_what_is_refused(tmp_path: Path) -> None:
    gold, found = write(tmp_path / "gold.txt", ENTITIES), write(tmp_path / "found.txt", FOUND)
    empty = write(tmp_path / "empty.txt", "")
    both = ("--predictions", found)
    assert_refused(elmo("evaluate", "nre", gold, *both), "nre: no such task; expected squad, ")
    assert_refused(elmo("evaluate", "ner", empty, *both), "empty.txt: contains no example; expected gold answers")
    assert_refused(elmo("evaluate", "ner", tmp_path / "none.txt", *both), "none.txt: cannot be read")
    assert_refused(elmo("evaluate", "ner", gold, "--predictions", tmp_path / "none.txt"), "none.txt: cannot be read")
    for option, value in {"output": tmp_path / "o", "part": "dev", "precision": "int8", "word-cache": tmp_path}.items():
        message = f"--{option} is for a model; with --predictions there is none"
        assert_refused(elmo("evaluate", "ner", gold, *both, f"--{option}", value), message)
    assert_refused(elmo("evaluate", POS, gold, *both), "task pos: has no format for predictions")
