"""A small entity task for tests: sentences, word vectors, a small biLM, and a recipe."""

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from elmo.config import build, merged, parse_assignments
from elmo.tasks.examples import Example, Splits
from elmo.tasks.ner.data import Span
from elmo.tasks.ner.model import TASK
from elmo.weights.folder import write
from embedders import pretrained

NAMES = ["Anna", "Bela", "Chris", "Dora"]
PLACES = ["Lima", "Oslo", "Paris", "Quito"]
WORDS = ["saw", "in", "the", "and", "left", "for", "a", "."]


@cache
def sentences(n: int, seed: int) -> tuple[Example, ...]:
    """Sentences in which some names are people and others are places, of one or two words."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        tokens, spans = [], []
        for _ in range(int(rng.integers(2, 6))):
            kind = rng.choice(["PER", "LOC", "O"])
            some = {"PER": NAMES, "LOC": PLACES, "O": WORDS}[kind]
            length = int(rng.integers(1, 3))
            if kind != "O":
                spans.append(Span(len(tokens), len(tokens) + length, str(kind)))
            tokens += [str(word) for word in rng.choice(some, length)]
            tokens.append(str(rng.choice(WORDS)))
        found.append(Example((tuple(tokens),), tuple(spans)))
    return tuple(found)


def splits(train: int = 24, dev: int = 8, test: int = 8) -> Splits:
    return {"train": sentences(train, 0), "dev": sentences(dev, 1), "test": sentences(test, 2)}


def write_columns(folder: Path, parts: Splits) -> Path:
    """Write the same as files, in IOB2."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, examples in parts.items():
        blocks = []
        for example in examples:
            shown = TASK.to_json(example, example.gold)
            blocks.append("".join(f"{a} {b}\n" for a, b in zip(shown["tokens"], shown["tags"], strict=True)))
        (folder / f"{part}.txt").write_text("\n".join(blocks), encoding="utf-8")
    return folder


def write_vectors(path: Path, dim: int = 6) -> Path:
    rng = np.random.default_rng(3)
    words = [word.lower() for word in (*WORDS, *NAMES[:3], *PLACES[:3])]
    rows = (" ".join([word, *(f"{value:.4f}" for value in rng.normal(size=dim))]) for word in words)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def write_elmo(folder: Path) -> Path:
    """Write a model folder with the small biLM of `embedders`."""
    write(pretrained(), folder)
    return folder


def recipe(*assignments: str) -> Any:
    """Build the config of a small tagger, with changes."""
    small = [
        "hidden=8", "n_layers=1", "dropout=0.1", "inputs.characters.filters=6", "inputs.characters.dim=4",
        "inputs.elmo.dropout=0.1", "train.epochs=3", "train.batch_size=5", "train.device=cpu",
        "train.learning_rate=1e-2",
    ]  # fmt: skip
    return build(TASK.config, merged(asdict(TASK.config()), parse_assignments([*small, *assignments])))
