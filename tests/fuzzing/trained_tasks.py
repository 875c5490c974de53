"""The reader of trained tasks, with a small valid folder of every task; what is read also predicts."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from elmo.config import build, merged
from elmo.embed.embedder import Embedder
from elmo.tasks import folder
from elmo.tasks.folder import TrainedTask
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.predict import load_task
from elmo.tasks.task import task_named
from fuzzing.cases import Files, Reader
from fuzzing.model_readers import changed_folder, contents, small_model

SIZES: dict[str, dict[str, Any]] = {
    "ner": {"hidden": 3, "n_layers": 1},
    "srl": {"hidden": 3, "n_layers": 2, "predicate_dim": 2},
    "sst": {"prenet": 3, "hidden": 3, "maxout": 4, "pool": 2},
    "snli": {"hidden": 3, "projection": 3, "feedforward": 3},
    "squad": {"hidden": 3, "feedforward": 4},
    "coref": {"hidden": 3, "n_layers": 1, "feedforward": 3, "feature": 2, "max_width": 3},
}
LABELS = {
    "ner": ["O", "U-PER", "B-PER", "I-PER", "L-PER"],
    "srl": ["O", "B-V", "B-ARG0", "I-V", "I-ARG0"],
    "sst": ["0", "1"],
    "snli": ["entailment", "contradiction"],
    "squad": [],
    "coref": ["bc"],
}
ITEMS: dict[str, Any] = {
    "snli": ["The cat", "A naïve cat"],
    "squad": {"context": "The cat sat.", "question": "Who sat?"},
    "coref": {"sentences": [["The", "cat"], ["It", "sat"]], "genre": "bc"},
}
WORDS = ["the", "cat", "日本"]


def task_folder_reader() -> Reader:
    """Return the reader of the folders of trained tasks; sentence heads have a reader of their own."""
    seeds = _folder("ner", "both"), *(_folder(name, "none") for name in SIZES)
    return Reader("trained task", seeds, changed_folder, _predict)


def _folder(name: str, placement: str) -> Files:
    torch.manual_seed(0)
    task = task_named(name)
    characters = {"dim": 2, "filters": 2, "width": 2, "n_widths": 1, "max_characters": 8}
    inputs = {"characters": characters, "vectors": "glove.txt", "elmo": {"placement": placement, "model": "small"}}
    config = build(task.config, merged(asdict(task.config()), {**SIZES[name], "inputs": inputs}))
    frozen = FrozenLayers(Embedder(small_model(), device="cpu")) if placement != "none" else None
    network = task.model(config, Inputs(config.inputs, WORDS, torch.randn(len(WORDS), 2), frozen=frozen), LABELS[name])
    trained = TrainedTask(task, config, LABELS[name], WORDS, network.eval(), {"dev": {"f1": 12.5}})

    def write(path: Path) -> None:
        path.mkdir()
        folder.save(path, trained)

    return contents(write)


def _predict(path: Path) -> None:
    predictor = load_task(path, device="cpu")
    predictor.predict([ITEMS.get(predictor.task.name, "The cat sat.")])
