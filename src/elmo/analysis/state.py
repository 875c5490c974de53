"""THE STATE BEFORE A SENTENCE (beyond the paper): how far fresh, warm and carried vectors are apart, and on a task.

`carried` reads the sentences one after another, in batches of one, as bilm-tf does; `carried, other order` reads them
in reverse: its distance from `carried` shows how far the vectors of a sentence depend on what came before. Distances
are ‖a − b‖ / ‖b‖ and 1 − cosine per token, means over tokens. On a task, the layers of all texts are computed with
each state, `carried` in batches of 64 as the originals do: a text follows the one 64 places before it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import Claim, alike, together
from elmo.analysis.figures import COLOURS, legend_above, new_figure
from elmo.analysis.sweep import NER, Cell, Sweep, TaskSetup
from elmo.analysis.tables import NONE, markdown, mean_sd
from elmo.analysis.vectors import Array
from elmo.config import CheckedConfig, PositiveInt
from elmo.embed.embedder import Embedder, load
from elmo.errors import DataError
from elmo.packaged import DEFAULT
from elmo.text.reader import read_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES = ("fresh", "warm", "carried")
OTHER = "carried, other order"
COMPARED = (("fresh", "carried"), ("warm", "carried"), (OTHER, "carried"), ("fresh", "warm"))
SHOWN = 20  # tokens from the beginning of a sentence


@dataclass(frozen=True)
class StateConfig(CheckedConfig):
    """500 sentences of running text, and a task whose sentences follow each other in documents."""

    model: str = DEFAULT
    text: str = "english-heldout/valid.txt"  # one sentence per line
    sentences: PositiveInt = 500
    seeds: PositiveInt = 3
    tasks: tuple[TaskSetup, ...] = (NER,)


def cells(config: StateConfig, workspace: Workspace) -> dict[str, Cell]:
    """Return every task with every state."""
    return {
        f"{setup.name}/{state}": Cell(setup, {"inputs": {"elmo": {"state": state}}}, config.model, config.seeds)
        for setup in config.tasks
        for state in STATES
    }


def run(config: StateConfig, workspace: Workspace) -> Results:
    """Measure the distances, then train the tasks with every state."""
    workspace.report("states", 0, len(STATES) + 1)
    path = workspace.find(config.text)
    lines = [line for _, line in read_lines(path) if line.strip()][: config.sentences]
    if not lines:
        raise DataError(f"{path}: contains no sentence")
    model = load(config.model)
    vectors = {}
    for number, state in enumerate((*STATES, OTHER), 1):
        vectors[state] = _vectors(model, lines, state)
        workspace.report("states", number, len(STATES) + 1)
    return {
        "sentences": len(lines),
        "tokens": sum(array.shape[1] for array in vectors["fresh"]),
        "distances": {f"{a} – {b}": distances(vectors[a], vectors[b]) for a, b in COMPARED},
        "tasks": [setup.name for setup in config.tasks],
        "cells": Sweep(workspace).run(cells(config, workspace)),
    }


def _vectors(model: Embedder, lines: list[str], state: str) -> list[Array]:
    """Return the layers (L+1, tokens, 2D) of every sentence."""
    if state not in ("carried", OTHER):
        return list(model.embed(lines, state=state))
    model.reset_state()
    order = lines[::-1] if state == OTHER else lines
    found = list(model.embed(order, state="carried", batch_size=1))
    return found[::-1] if state == OTHER else found


def distances(one: list[Array], other: list[Array]) -> Results:
    """Return mean distances of every layer, and of the top layer by the place of the token in its sentence."""
    pairs = list(zip(one, other, strict=True))
    relative = [np.linalg.norm(a - b, axis=2) / np.linalg.norm(b, axis=2) for a, b in pairs]
    cosine = [1 - (a * b).sum(axis=2) / np.linalg.norm(a, axis=2) / np.linalg.norm(b, axis=2) for a, b in pairs]
    shown = min(SHOWN, max(found.shape[1] for found in relative))
    long = [found[-1] for found in relative if found.shape[1] >= shown]
    return {
        "relative": np.concatenate(relative, axis=1).mean(axis=1).tolist(),
        "cosine": np.maximum(np.concatenate(cosine, axis=1).mean(axis=1), 0.0).tolist(),  # not −0 by rounding
        "first": float(np.mean([found[-1, 0] for found in relative])),
        "by place": np.mean([found[:shown] for found in long], axis=0).tolist(),
    }


def table(results: Results) -> str:
    """Distances by layer; then the scores of the tasks."""
    rows = []
    for name, found in results["distances"].items():
        layers = [f"{a:.4f} ({b:.4f})" for a, b in zip(found["relative"], found["cosine"], strict=True)]
        tenth = f"{found['by place'][9]:.4f}" if len(found["by place"]) > 9 else NONE
        rows.append([name, *layers, f"{found['first']:.4f}", tenth])
    n_layers = len(next(iter(results["distances"].values()))["relative"])
    header = ["relative (cosine) distance", *(f"layer {layer}" for layer in range(n_layers))]
    text = markdown([*header, "top layer, first token", "tenth token"], rows)
    if not results["tasks"]:
        return text
    rows = []
    for title in results["tasks"]:
        cells = [results["cells"][f"{title}/{state}"] for state in STATES]
        test = [[value for value in cell["test"] if value is not None] for cell in cells]
        rows.append([f"{title}, dev", *(mean_sd(cell["dev"]) for cell in cells)])
        rows.append([f"{title}, test", *map(mean_sd, test)])
    return f"{text}\n{markdown(['score', *STATES], rows)}"


def figure(results: Results) -> "Figure":
    """The distance at the top layer by the place of a token in its sentence."""
    drawn = new_figure(6.5, 3.6)
    axes = drawn.subplots()
    for colour, (name, found) in zip(COLOURS, results["distances"].items(), strict=False):
        axes.plot(range(1, len(found["by place"]) + 1), found["by place"], marker=".", color=colour, label=name)
    axes.set_yscale("log")
    axes.set_xlabel("token of the sentence")
    axes.set_ylabel("relative distance, top layer")
    legend_above(axes, 2)
    return drawn


def claims(results: Results) -> list[Claim]:
    """What users feared: that the state changes the score of a task."""

    def compared(title: str, state: str) -> Claim:
        one, other = (results["cells"][f"{title}/{name}"]["dev"] for name in (state, "fresh"))
        return alike(title, one, other, (state, "fresh"))

    return [
        together(
            f"The state makes no difference to the score of {title}",
            [compared(title, state) for state in STATES if state != "fresh"],
        )
        for title in results["tasks"]
    ]


ANALYSIS = Analysis(
    "state",
    "State before a sentence",
    "beyond the paper",
    "Vectors and task scores when the LSTMs start from zeros, from one stored state, or where the last sentence ended.",
    StateConfig,
    run,
    table,
    figure,
    cells,
    claims,
)
