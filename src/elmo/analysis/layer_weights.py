"""LEARNED WEIGHTS (paper, section 5.5, Figure 2): how much of each layer a task mixes, at its input and its output."""

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import FAILS, HOLDS, UNTESTED, Claim
from elmo.analysis.figures import new_figure
from elmo.analysis.sweep import COREF, NER, SNLI, SQUAD, SRL, SST, Cell, Sweep, TaskSetup
from elmo.analysis.tables import markdown
from elmo.config import CheckedConfig, PositiveInt
from elmo.packaged import DEFAULT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACES = ("input", "output")


@dataclass(frozen=True)
class LayerWeightsConfig(CheckedConfig):
    """The six tasks, with the recipes of the paper: ELMo where it put it, its λ for each task."""

    model: str = DEFAULT
    seeds: PositiveInt = 3
    tasks: tuple[TaskSetup, ...] = (SQUAD, SNLI, SRL, COREF, NER, SST)


def cells(config: LayerWeightsConfig, workspace: Workspace) -> dict[str, Cell]:
    """Return every task, with its own recipe."""
    return {setup.name: Cell(setup, {}, config.model, config.seeds) for setup in config.tasks}


def run(config: LayerWeightsConfig, workspace: Workspace) -> Results:
    """Train every task; its mixes are those of the best epoch."""
    found = Sweep(workspace).run(cells(config, workspace))
    rows = []
    for title, cell in found.items():
        for place in PLACES:
            mixes = [mix[place] for mix in cell["mixes"] if place in mix]
            if mixes:
                columns = zip(*(mix["weights"] for mix in mixes), strict=True)
                rows.append(
                    {
                        "task": title,
                        "place": place,
                        "weights": [statistics.fmean(column) for column in columns],
                        "gamma": statistics.fmean(mix["gamma"] for mix in mixes),
                        "each": mixes,
                    }
                )
    return {"rows": rows, "cells": found}


def table(results: Results) -> str:
    """One row per mix: the mean weight of every layer over the seeds, and γ."""
    n_layers = len(results["rows"][0]["weights"])
    rows = []
    for row in results["rows"]:
        largest = max(row["weights"])
        weights = [f"**{value:.3f}**" if value == largest else f"{value:.3f}" for value in row["weights"]]
        rows.append([row["task"], row["place"], *weights, f"{row['gamma']:.2f}"])
    return markdown(["task", "mix at the", *(f"layer {layer}" for layer in range(n_layers)), "γ"], rows)


def figure(results: Results) -> "Figure":
    """The paper's picture: a square per task and layer, lined below 1/3 and dotted above 2/3; inputs, then outputs."""
    parts = {place: [row for row in results["rows"] if row["place"] == place] for place in PLACES}
    parts = {place: rows for place, rows in parts.items() if rows}
    n_layers = len(results["rows"][0]["weights"])
    drawn = new_figure(1.5 + 0.95 * len(results["rows"]), 0.8 * n_layers + 1.0)
    panels = drawn.subplots(1, len(parts), squeeze=False, width_ratios=[len(rows) for rows in parts.values()])[0]
    for axes, (place, rows) in zip(panels, parts.items(), strict=True):
        grid = [[row["weights"][layer] for row in rows] for layer in range(n_layers)]
        axes.pcolormesh(grid, vmin=0.0, vmax=1.0, cmap="Blues", edgecolors="#808080", linewidth=0.6)
        for layer, values in enumerate(grid):
            for column, value in enumerate(values):
                hatch = "--" if value < 1 / 3 else ".." if value > 2 / 3 else None
                if hatch:
                    axes.fill_between(
                        [column, column + 1],
                        layer,
                        layer + 1,
                        facecolor="none",
                        edgecolor="#80808060",
                        hatch=hatch,
                        lw=0,
                    )
                colour = "white" if value > 0.55 else "black"
                axes.text(column + 0.5, layer + 0.5, f"{value:.2f}", ha="center", va="center", color=colour)
        axes.set_xticks([column + 0.5 for column in range(len(rows))], [row["task"] for row in rows])
        axes.set_yticks([layer + 0.5 for layer in range(n_layers)], [f"layer {layer}" for layer in range(n_layers)])
        axes.set_title(f"{place} mix")
        axes.grid(visible=False)
    return drawn


def claims(results: Results) -> list[Claim]:
    """Input mixes favour the first LSTM layer, with every seed of most tasks; output mixes are nearly even."""
    inputs, outputs = ({row["task"]: row for row in results["rows"] if row["place"] == place} for place in PLACES)
    favour = [
        task for task, row in inputs.items() if all(max(mix["weights"]) == mix["weights"][1] for mix in row["each"])
    ]
    shown = ", ".join(f"{task} {row['weights'][1]:.2f}" for task, row in inputs.items())
    first = Claim(
        "At the input, most tasks favour the first LSTM layer",
        UNTESTED if not inputs else HOLDS if 2 * len(favour) > len(inputs) else FAILS,
        f"it has the largest weight, with every seed, in {len(favour)} of {len(inputs)} tasks; its mean weight: {shown}"
        if inputs
        else "no task has ELMo at its input",
    )
    ranges = {
        task: [max(row["weights"]) - min(row["weights"]) for row in (outputs[task], inputs[task])]
        for task in outputs
        if task in inputs
    }
    second = Claim(
        "At the output, the weights are nearly even, more so than at the input of the same tasks",
        UNTESTED if not ranges else HOLDS if all(output < other for output, other in ranges.values()) else FAILS,
        "; ".join(
            f"{task}: largest − smallest {output:.2f}, input {other:.2f}" for task, (output, other) in ranges.items()
        )
        or "no task has ELMo at both places",
    )
    return [first, second]


ANALYSIS = Analysis(
    "layer-weights",
    "Learned layer weights",
    "section 5.5, Figure 2",
    "The softmax-normalised weights that each task learned for the layers of the biLM, at the best epoch.",
    LayerWeightsConfig,
    run,
    table,
    figure,
    cells,
    claims,
)
