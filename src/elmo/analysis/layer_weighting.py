"""LAYER WEIGHTING (paper, section 5.1, Table 2): which layers, and how free the mix is to choose among them.

For each task: no ELMo; the last layer alone; all layers with a mix that λ = 1 holds near the average, or that λ = 0.001
leaves free. Beyond the paper: the plain average, and each layer alone. Dev scores, several seeds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import Claim, Judge, alike, higher, together
from elmo.analysis.figures import bars, legend_above, new_figure
from elmo.analysis.sweep import NER, SNLI, SQUAD, SRL, SST, Cell, Sweep, TaskSetup
from elmo.analysis.tables import markdown, mean_sd
from elmo.config import CheckedConfig, PositiveInt
from elmo.packaged import DEFAULT
from elmo.training.seeds import mean_and_sd
from elmo.weights import source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = {  # dev
    "without ELMo": {"squad": 80.8, "snli": 88.1, "srl": 81.6},
    "last layer": {"squad": 84.7, "snli": 89.1, "srl": 84.1},
    "all layers, λ = 1": {"squad": 85.0, "snli": 89.3, "srl": 84.6},
    "all layers, λ = 0.001": {"squad": 85.2, "snli": 89.5, "srl": 84.8},
}


@dataclass(frozen=True)
class LayerWeightingConfig(CheckedConfig):
    """The tasks of the paper's table, and two that it left out."""

    model: str = DEFAULT
    seeds: PositiveInt = 3
    tasks: tuple[TaskSetup, ...] = (SQUAD, SNLI, SRL, NER, SST)


def variants(n_layers: int) -> dict[str, dict[str, Any]]:
    """Return the rows of the table, with what each changes in `inputs.elmo`."""
    return {
        "without ELMo": {"placement": "none"},
        "last layer": {"mix": "last"},
        "all layers, λ = 1": {"mix": "learned", "mix_l2": 1.0},
        "all layers, λ = 0.001": {"mix": "learned", "mix_l2": 0.001},
        "average": {"mix": "average"},
        **{f"layer {layer}": {"mix": f"layer:{layer}"} for layer in range(n_layers - 1)},  # the last is "last layer"
    }


def cells(config: LayerWeightingConfig, workspace: Workspace) -> dict[str, Cell]:
    """Return every variant of every task."""
    n_layers = source.read(config.model).bilm.config.n_layers
    return {
        f"{setup.name}/{name}": Cell(setup, {"inputs": {"elmo": change}}, config.model, config.seeds)
        for setup in config.tasks
        for name, change in variants(n_layers).items()
    }


def run(config: LayerWeightingConfig, workspace: Workspace) -> Results:
    """Train every variant of every task."""
    found = Sweep(workspace).run(cells(config, workspace))
    return {
        "tasks": {setup.name: setup.task for setup in config.tasks},
        "variants": list(dict.fromkeys(key.rpartition("/")[2] for key in found)),
        "cells": found,
    }


def table(results: Results) -> str:
    """Rows are variants; columns are the dev scores of the tasks, each with the paper's where it has one."""
    tasks = results["tasks"]
    header = ["dev score"]
    for title, task in tasks.items():
        header += [title, "paper"] if task in PAPER["last layer"] else [title]
    rows = []
    for name in results["variants"]:
        row = [name]
        for title, task in tasks.items():
            row.append(mean_sd(results["cells"][f"{title}/{name}"]["dev"]))
            if task in PAPER["last layer"]:
                paper = PAPER.get(name, {}).get(task)
                row.append("" if paper is None else f"{paper:.1f}")
        rows.append(row)
    return markdown(header, rows)


def figure(results: Results) -> "Figure":
    """Grouped bars: what each variant adds to the score without ELMo."""
    tasks = list(results["tasks"])
    drawn = new_figure(8.0, 4.2)
    axes = drawn.subplots()
    series = {}
    for name in results["variants"][1:]:
        values = []
        for title in tasks:
            base = mean_and_sd(results["cells"][f"{title}/without ELMo"]["dev"])["mean"]
            found = mean_and_sd(results["cells"][f"{title}/{name}"]["dev"])
            values.append((found["mean"] - base, found["sd"]))
        series[name] = values
    bars(axes, tasks, series)
    axes.set_ylabel("dev score above that without ELMo")
    axes.axhline(0, color="#808080", linewidth=0.8)
    legend_above(axes, 4)
    return drawn


def claims(results: Results) -> list[Claim]:
    """All layers over the last; a small λ over a large one, except that the paper saw no difference for NER."""
    insensitive = [title for title, task in results["tasks"].items() if task == "ner"]
    sensitive = [title for title in results["tasks"] if title not in insensitive]

    def compared(
        other: str, names: tuple[str, str], tasks: Iterable[str] = results["tasks"], judge: Judge = higher
    ) -> list[Claim]:
        """Compare all layers and a small λ with another variant."""
        cells = results["cells"]
        return [
            judge(title, cells[f"{title}/all layers, λ = 0.001"]["dev"], cells[f"{title}/{other}"]["dev"], names)
            for title in tasks
        ]

    last, held = "last layer", "all layers, λ = 1"
    both = "small λ", "large λ"
    return [
        together("ELMo improves every task", compared("without ELMo", ("with ELMo", "without"))),
        together("All layers are better than the last layer alone", compared(last, ("all layers", last))),
        together("A small λ is better than a large one, except for named entities", compared(held, both, sensitive)),
        together("For named entities, λ makes no difference", compared(held, both, insensitive, alike)),
    ]


ANALYSIS = Analysis(
    "layer-weighting",
    "Layer weighting",
    "section 5.1, Table 2",
    "Which layers of the biLM a task gets, and how far its mix may move from their average (a large λ holds it there).",
    LayerWeightingConfig,
    run,
    table,
    figure,
    cells,
    claims,
)
