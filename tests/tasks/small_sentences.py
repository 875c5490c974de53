"""A small task of sentence vectors for tests: its files, and a head that is trained on them in a second."""

import json
from pathlib import Path

from elmo.tasks.from_paths import train

PAIRS = [
    ("A baker lifts warm bread out of the oven.", "Someone is baking.", "entailment"),
    ("A baker lifts warm bread out of the oven.", "Bread is hot.", "entailment"),
    ("A baker lifts warm bread out of the oven.", "The baker opened the shop at dawn.", "neutral"),
    ("A baker lifts warm bread out of the oven.", "Nobody is near the oven.", "contradiction"),
    ("Two goats climb a steep hill.", "Animals are on a hill.", "entailment"),
    ("Two goats climb a steep hill.", "The goats sleep.", "contradiction"),
    ("Two goats climb a steep hill.", "The hill is flat.", "contradiction"),
    ("Rain.", "It is wet.", "entailment"),
    ("A girl reads.", "A child has a book.", "entailment"),
    ("A girl reads.", "She runs.", "contradiction"),
    ("The train is late.", "People wait.", "entailment"),
    ("Snow covers the roof.", "It is white.", "entailment"),
    ("Snow covers the roof.", "The roof is bare.", "contradiction"),
    ("They sing loudly.", "There is a song.", "entailment"),
]
JUDGED = [
    (5.0, "A baker lifts bread.", "Someone lifts bread out of an oven."),
    (1.2, "Two goats climb.", "A girl reads a book."),
    (3.8, "It is wet.", "There is rain."),
    (0.0, "The train is late.", "Snow is white."),
]


def lines_of(pairs: list[tuple[str, str, str]]) -> list[str]:
    """Return the lines of SNLI."""
    return [json.dumps({"gold_label": label, "sentence1": a, "sentence2": b}) for a, b, label in pairs]


def write_data(folder: Path) -> Path:
    """Write the files of the task under their original names."""
    (folder / "snli").mkdir(parents=True)
    (folder / "stsb").mkdir()
    (folder / "snli" / "train.jsonl").write_text("\n".join(lines_of(PAIRS)) + "\n", encoding="utf-8")
    rows = (f"main-captions\tMSRvid\t2012test\t{k:04}\t{score}\t{a}\t{b}\n" for k, (score, a, b) in enumerate(JUDGED))
    (folder / "stsb" / "sts-dev.csv").write_text("".join(rows), encoding="utf-8")
    return folder


def train_head(model: str | Path, folder: Path, *settings: str) -> Path:
    """Train a small head on a biLM; returns RUN/model."""
    small = ["hidden=4", "dim=6", "train.epochs=1", "train.batch_size=3", "train.device=cpu"]
    data = write_data(folder / "data")
    return train("sentences", data, folder / "run", settings=[*small, f"inputs.elmo.model={model}", *settings]).model
