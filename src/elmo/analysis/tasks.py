"""THE SIX TASKS (paper, section 4, Table 1): each without ELMo and with it, everything else equal.

The increase is that of the last model over the baseline: in points, and as the share of the baseline's errors that it
removes. Beside the table: all other scores of the test part, and what the training cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import Claim, higher, together
from elmo.analysis.figures import bars, legend_above, new_figure
from elmo.analysis.sweep import COREF, NER, SNLI, SQUAD, SRL, SST, Cell, Sweep, TaskSetup
from elmo.analysis.tables import NONE, markdown, mean_sd
from elmo.config import CheckedConfig, PositiveInt
from elmo.packaged import DEFAULT
from elmo.training.seeds import mean_and_sd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE = "without ELMo"
PAPER = {  # test, without ELMo and with it
    "squad": (81.1, 85.8),
    "snli": (88.0, 88.7),
    "srl": (81.4, 84.6),
    "coref": (67.2, 70.4),
    "ner": (90.15, 92.22),
    "sst": (51.4, 54.7),
}


@dataclass(frozen=True)
class TasksConfig(CheckedConfig):
    """The paper's six tasks, each with its recipe."""

    model: str = DEFAULT
    others: tuple[str, ...] = ()  # other models to compare it with; their columns come before its own
    seeds: PositiveInt = 3
    tasks: tuple[TaskSetup, ...] = (SQUAD, SNLI, SRL, COREF, NER, SST)


def cells(config: TasksConfig, workspace: Workspace) -> dict[str, Cell]:
    """Return every task without ELMo, and with every model: first the baselines and the model, then the others."""
    columns = dict.fromkeys((BASELINE, config.model, *config.others))
    none = {"inputs": {"elmo": {"placement": "none"}}}
    return {
        f"{setup.name}/{column}": (
            Cell(setup, none, config.model, config.seeds)
            if column == BASELINE
            else Cell(setup, {}, column, config.seeds)
        )
        for column in columns
        for setup in config.tasks
    }


def run(config: TasksConfig, workspace: Workspace) -> Results:
    """Train them all."""
    others = [name for name in dict.fromkeys(config.others) if name != config.model]
    return {
        "tasks": {setup.name: setup.task for setup in config.tasks},
        "columns": [BASELINE, *others, config.model],
        "cells": Sweep(workspace).run(cells(config, workspace)),
    }


def table(results: Results) -> str:
    """The paper's Table 1, on test and on dev; all scores of the test part; epochs, seconds and memory."""
    return "\n".join([_scores(results, "test"), _scores(results, "dev"), _all_scores(results), _costs(results)])


def _scores(results: Results, part: str) -> str:
    columns = results["columns"]
    rows = []
    for title, task in results["tasks"].items():
        cells = [results["cells"][f"{title}/{column}"] for column in columns]
        ours = [_measured(cell, part) for cell in cells]
        paper = PAPER.get(task) if part == "test" else None
        row = [f"{title}, {cells[0]['score']}", *map(mean_sd, ours), _increase(ours[0], ours[-1])]
        if part == "test":
            row += [NONE, NONE] if paper is None else [f"{paper[0]} → {paper[1]}", _increase([paper[0]], [paper[1]])]
        rows.append(row)
    header = [part, *(columns[:1] + [f"+ {column}" for column in columns[1:]]), "increase (of the errors)"]
    return markdown([*header, "paper", "its increase"] if part == "test" else header, rows)


def _all_scores(results: Results) -> str:
    """Return every score of the test part: exact matches, the parts of a mean, each role."""
    columns = results["columns"]
    rows = []
    for title in results["tasks"]:
        cells = [results["cells"][f"{title}/{column}"] for column in columns]
        names = dict.fromkeys(name for cell in cells for one in cell["scores"] for name in one.get("test", {}))
        for name in names:
            seeds = [[one["test"].get(name, 0.0) for one in cell["scores"] if "test" in one] for cell in cells]
            rows.append([f"{title}, {name}", *map(mean_sd, seeds)])
    return markdown(["all scores, test", *columns], rows)


def _costs(results: Results) -> str:
    rows = []
    for title in results["tasks"]:
        for column in results["columns"]:
            cell = results["cells"][f"{title}/{column}"]
            rows.append(
                [
                    f"{title}, {column}",
                    f"{cell['examples']:,}",
                    ", ".join(map(str, cell["epochs"])),
                    f"{cell['seconds'] / sum(cell['epochs']):.1f}",
                    f"{cell['memory'] / 2**20:,.0f}" if cell["memory"] else NONE,
                ]
            )
    return markdown(["cost", "training examples", "epochs of each seed", "seconds per epoch", "memory, MiB"], rows)


def _measured(cell: Results, part: str) -> list[float]:
    return [value for value in cell[part] if value is not None]


def _increase(before: Sequence[float], after: Sequence[float]) -> str:
    """Return the difference of two means, and the share of the errors that it removes."""
    if not before or not after:
        return NONE
    one, other = mean_and_sd(before)["mean"], mean_and_sd(after)["mean"]
    return f"{other - one:+.2f} ({_removed(one, other):.1f} %)"


def _removed(before: float, after: float) -> float:
    """Return how much of the errors is gone, in percent."""
    return 100 * (after - before) / (100 - before) if before < 100 else 0.0


def figure(results: Results) -> "Figure":
    """Bars: the share of the baseline's errors that ELMo removes, of the paper and of each model."""
    drawn = new_figure(8.0, 4.0)
    axes = drawn.subplots()
    titles = list(results["tasks"])
    series = {"paper": [(_removed(*PAPER[task]) if task in PAPER else 0.0, 0.0) for task in results["tasks"].values()]}
    for column in results["columns"][1:]:
        series[column] = []
        for title in titles:
            base = mean_and_sd(_compared(results["cells"][f"{title}/{BASELINE}"]))["mean"]
            found = mean_and_sd(_compared(results["cells"][f"{title}/{column}"]))
            error = 100 * found["sd"] / (100 - base) if base < 100 else 0.0
            series[column].append((_removed(base, found["mean"]), error))
    bars(axes, titles, series)
    axes.set_ylabel("errors that ELMo removes, %")
    axes.axhline(0, color="#808080", linewidth=0.8)
    legend_above(axes, 4)
    return drawn


def _compared(cell: Results) -> list[float]:
    """Return the test scores; those of the dev part where there are none."""
    return _measured(cell, "test") or _measured(cell, "dev")


def claims(results: Results) -> list[Claim]:
    """ELMo improves every task, with every model."""
    cells = results["cells"]
    return [
        together(
            f"ELMo improves every task ({column})",
            [
                higher(
                    title,
                    _compared(cells[f"{title}/{column}"]),
                    _compared(cells[f"{title}/{BASELINE}"]),
                    ("with ELMo", "without"),
                )
                for title in results["tasks"]
            ],
        )
        for column in results["columns"][1:]
    ]


ANALYSIS = Analysis(
    "tasks",
    "The six tasks",
    "section 4, Table 1",
    "Every task without ELMo and with it, everything else equal: scores on test and dev, and the cost of training.",
    TasksConfig,
    run,
    table,
    figure,
    cells,
    claims,
)
