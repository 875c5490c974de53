"""Three short paragraphs with eight questions, as SQuAD's JSON and as examples; word vectors; a small recipe."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from elmo.config import build, merged, parse_assignments
from elmo.tasks.squad.data import Gold, Questions
from elmo.tasks.squad.model import TASK, SquadConfig
from elmo.tasks.squad.paragraph import Paragraph
from embedders import write_model

# A paragraph; then each question with the texts of its answers, the first of which is at its first place in the text.
PARAGRAPHS: list[tuple[str, list[tuple[str, list[str]]]]] = [
    (
        "The old mill (built in 1712) stands on the River Wey; its owner, Mrs. Ada Flint, isn't selling it.",
        [
            ("When was the mill built?", ["1712", "in 1712"]),
            ("Who owns the mill?", ["Mrs. Ada Flint", "Ada Flint"]),
            ("On which river does it stand?", ["the River Wey"]),
        ],
    ),
    (
        "Bees dance to tell the hive where flowers are. A “waggle” of one second means about a kilometre.",
        [
            ("What do bees tell by dancing?", ["where flowers are"]),
            ("How far is a waggle of one second?", ["about a kilometre", "a kilometre"]),
            ("Who dances?", ["Bees"]),
        ],
    ),
    (
        "Rain fell.",
        [("What fell?", ["Rain"]), ("What did the rain do?", ["fell"])],
    ),
]


def article(paragraphs: list[tuple[str, list[tuple[str, list[str]]]]], name: str) -> dict[str, Any]:
    """An article in SQuAD's JSON; the ids of its questions begin with `name`."""
    return {
        "title": name,
        "paragraphs": [
            {
                "context": text,
                "qas": [
                    {
                        "id": f"{name}-{n}-{k}",
                        "question": question,
                        "answers": [{"text": answer, "answer_start": text.find(answer)} for answer in answers],
                    }
                    for k, (question, answers) in enumerate(questions)
                ],
            }
            for n, (text, questions) in enumerate(paragraphs)
        ],
    }


def write_squad(path: Path, *articles: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"version": "1.1", "data": articles}), encoding="utf-8")
    return path


def eight() -> list[Questions]:
    """The eight questions as examples."""
    found = []
    for n, (text, questions) in enumerate(PARAGRAPHS):
        paragraph = Paragraph(text)
        for k, (question, answers) in enumerate(questions):
            spans = (paragraph.span(text.find(answer), answer) for answer in answers)
            gold = Gold(tuple(answers), tuple(span for span in spans if span is not None))
            found.append(Questions.of(paragraph, question, gold, f"all-{n}-{k}"))
    return found


def write_files(folder: Path) -> Path:
    """A model folder `elmo`, and word vectors of most words, `glove.txt`."""
    write_model(folder / "elmo")
    rng = np.random.default_rng(5)
    words = sorted(
        {token.lower() for example in eight() for text in example.texts for token in text} - {"bees", "1712"}
    )
    rows = (" ".join([word, *(f"{value:.3f}" for value in rng.normal(size=7))]) for word in words)
    (folder / "glove.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def small(files: Path, placement: str, *assignments: str) -> SquadConfig:
    """The config of a small model without dropout, with changes."""
    sizes = [
        f"inputs.elmo.model={files / 'elmo'}", f"inputs.elmo.placement={placement}", "inputs.elmo.dropout=0",
        f"inputs.vectors={files / 'glove.txt'}", "inputs.characters.dim=3", "inputs.characters.filters=4", "hidden=6",
        "feedforward=5", "dropout=0", "train.device=cpu", "train.batch_size=4",
    ]  # fmt: skip
    config: SquadConfig = build(TASK.config, merged(asdict(TASK.config()), parse_assignments([*sizes, *assignments])))
    return config
