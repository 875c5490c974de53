"""PLACEMENT (paper, section 5.2, Table 3): ELMo at the input of the task's network, at its output, or at both."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import Claim, higher, together
from elmo.analysis.figures import bars, legend_above, new_figure
from elmo.analysis.sweep import SNLI, SQUAD, SRL, Cell, Sweep, TaskSetup
from elmo.analysis.tables import markdown, mean_sd
from elmo.config import CheckedConfig, PositiveInt
from elmo.packaged import DEFAULT
from elmo.training.seeds import mean_and_sd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACEMENTS = {"input only": "input", "input and output": "both", "output only": "output"}
PAPER = {"squad": (85.1, 85.6, 84.8), "snli": (88.9, 89.5, 88.7), "srl": (84.7, 84.3, 80.9)}  # dev, in this order
ATTENTION = ("squad", "snli")  # the task models with attention over the output of their first network


@dataclass(frozen=True)
class PlacementConfig(CheckedConfig):
    """The tasks of the paper's table."""

    model: str = DEFAULT
    seeds: PositiveInt = 3
    tasks: tuple[TaskSetup, ...] = (SQUAD, SNLI, SRL)


def cells(config: PlacementConfig, workspace: Workspace) -> dict[str, Cell]:
    """Return every placement of every task."""
    return {
        f"{setup.name}/{name}": Cell(setup, {"inputs": {"elmo": {"placement": place}}}, config.model, config.seeds)
        for setup in config.tasks
        for name, place in PLACEMENTS.items()
    }


def run(config: PlacementConfig, workspace: Workspace) -> Results:
    """Train every placement of every task."""
    return {
        "tasks": {setup.name: setup.task for setup in config.tasks},
        "cells": Sweep(workspace).run(cells(config, workspace)),
    }


def table(results: Results) -> str:
    """One row per task: the dev score of each placement, ours and the paper's."""
    rows = []
    for title, task in results["tasks"].items():
        ours = [mean_sd(results["cells"][f"{title}/{name}"]["dev"]) for name in PLACEMENTS]
        paper = " / ".join(f"{value:.1f}" for value in PAPER[task]) if task in PAPER else ""
        rows.append([title, *ours, paper])
    return markdown(["dev score", *PLACEMENTS, "paper"], rows)


def figure(results: Results) -> "Figure":
    """Grouped bars, each relative to ELMo at the input only."""
    tasks = list(results["tasks"])
    drawn = new_figure(6.5, 3.8)
    axes = drawn.subplots()
    series = {}
    for name in PLACEMENTS:
        values = []
        for title in tasks:
            base = mean_and_sd(results["cells"][f"{title}/input only"]["dev"])["mean"]
            found = mean_and_sd(results["cells"][f"{title}/{name}"]["dev"])
            values.append((found["mean"] - base, found["sd"]))
        series[name] = values
    bars(axes, tasks, series)
    axes.axhline(0, color="#808080", linewidth=0.8)
    axes.set_ylabel("dev score relative to the input only")
    legend_above(axes)
    return drawn


def claims(results: Results) -> list[Claim]:
    """Both places for models with attention; the input alone for semantic roles."""
    cells = results["cells"]

    def compared(tasks: tuple[str, ...], one: str, other: str) -> list[Claim]:
        return [
            higher(title, cells[f"{title}/{one}"]["dev"], cells[f"{title}/{other}"]["dev"], (one, other))
            for title, task in results["tasks"].items()
            if task in tasks
        ]

    return [
        together(
            "ELMo at both places is better than at the input alone, for models with attention (SQuAD, SNLI)",
            compared(ATTENTION, "input and output", "input only"),
        ),
        together(
            "For semantic roles, ELMo at the input alone is better than at the output alone",
            compared(("srl",), "input only", "output only"),
        ),
        together(
            "For semantic roles, ELMo at the input alone is better than at both places",
            compared(("srl",), "input only", "input and output"),
        ),
    ]


ANALYSIS = Analysis(
    "placement",
    "Placement",
    "section 5.2, Table 3",
    "Where ELMo enters a task model: beside the word vectors, beside the output of its first network, or at both.",
    PlacementConfig,
    run,
    table,
    figure,
    cells,
    claims,
)
