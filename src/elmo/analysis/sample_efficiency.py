"""SAMPLE EFFICIENCY (paper, section 5.4, Figure 1): scores by the share of the training part, with and without ELMo.

A share is of whole sentences, documents or trees, drawn anew for every seed. An epoch reads a smaller share several
times, so that it has about as many updates as one of the whole, as far as `max_passes` allows. The second question of
the section: after how many updates does a model with ELMo pass the best dev score of the one without?
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import FAILS, Claim, higher, no_lower, together
from elmo.analysis.figures import COLOURS, new_figure
from elmo.analysis.sweep import NER, SNLI, SRL, Cell, Sweep, TaskSetup, base_config
from elmo.analysis.tables import NONE, markdown, mean_sd
from elmo.config import Bounds, CheckedConfig, PositiveInt
from elmo.errors import ConfigError
from elmo.packaged import DEFAULT
from elmo.tasks.train_config import TrainConfig
from elmo.training.seeds import mean_and_sd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITH, WITHOUT = "with ELMo", "without ELMo"
SMALL = 0.1  # the share that stands for few examples


@dataclass(frozen=True)
class SampleEfficiencyConfig(CheckedConfig):
    """The paper's two tasks and a third; shares from 0.1 % to all."""

    model: str = DEFAULT
    seeds: PositiveInt = 3
    max_passes: PositiveInt = 100  # through a share of the examples, in a whole run
    fractions: tuple[Annotated[float, Bounds(gt=0, le=1)], ...] = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
    tasks: tuple[TaskSetup, ...] = (SRL, SNLI, NER)

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.fractions) != sorted(set(self.fractions)) or len(self.fractions) < 2:
            raise ConfigError(f"fractions is {self.fractions}; expected two or more different ones, in rising order")


def cells(config: SampleEfficiencyConfig, workspace: Workspace) -> dict[str, Cell]:
    """Return every task with every share of its examples, with and without ELMo."""
    found = {}
    for setup in config.tasks:
        base = base_config(setup, workspace)[1].train
        for share in config.fractions:
            train = {"train": {"train_fraction": share, "passes": passes(base, share, config.max_passes)}}
            baseline = {**train, "inputs": {"elmo": {"placement": "none"}}}
            for kind, changes in ((WITH, train), (WITHOUT, baseline)):
                found[f"{setup.name}/{kind}/{share}"] = Cell(setup, changes, config.model, config.seeds)
    return found


def run(config: SampleEfficiencyConfig, workspace: Workspace) -> Results:
    """Train them all, and count the updates to the score of the baseline."""
    found = Sweep(workspace).run(cells(config, workspace))
    passed = {
        setup.name: updates_to_pass(
            found[f"{setup.name}/{WITHOUT}/{config.fractions[-1]}"],
            found[f"{setup.name}/{WITH}/{config.fractions[-1]}"],
        )
        for setup in config.tasks
    }
    return {
        "tasks": {setup.name: setup.task for setup in config.tasks},
        "fractions": list(config.fractions),
        "cells": found,
        "passed": passed,
    }


def passes(train: TrainConfig, share: float, max_passes: int) -> int:
    """Return how often an epoch reads a share of the examples, so that a run reads none more than `max_passes` times.

    At least once: then the number of epochs may be larger than `max_passes`.
    """
    return max(1, min(round(1 / share), max_passes // train.epochs))


def updates_to_pass(without: Results, with_elmo: Results) -> Results:
    """Compare the updates to the mean best score without ELMo: of the runs without, and of those with it.

    Without: the updates until each run's own best epoch. With: until the first epoch whose dev score is at least the
    mean of these best scores, None if there is none.
    """
    goal = statistics.fmean(without["dev"])
    return {
        "goal": goal,
        WITHOUT: [epoch * without["updates_per_epoch"] for epoch in without["best_epochs"]],
        WITH: [
            None if (epoch := first_at_least(curve, goal)) is None else epoch * with_elmo["updates_per_epoch"]
            for curve in with_elmo["curves"]
        ],
    }


def first_at_least(curve: Sequence[float], goal: float) -> int | None:
    """Return the first epoch, counted from 1, whose score is at least `goal`."""
    return next((epoch for epoch, score in enumerate(curve, 1) if score >= goal), None)


def table(results: Results) -> str:
    """One row per task and share; then the updates to the baseline's best."""
    rows = []
    for title in results["tasks"]:
        for share in results["fractions"]:
            one, other = (results["cells"][f"{title}/{kind}/{share}"] for kind in (WITHOUT, WITH))
            gain = statistics.fmean(other["dev"]) - statistics.fmean(one["dev"])
            examples = f"{one['examples']:,}"
            rows.append(
                [title, f"{100 * share:g} %", examples, mean_sd(one["dev"]), mean_sd(other["dev"]), f"{gain:+.2f}"]
            )
    first = markdown(["dev score", "share", "examples", WITHOUT, WITH, "difference"], rows)
    rows = []
    for title, passed in results["passed"].items():
        reached = [value for value in passed[WITH] if value is not None]
        never = len(passed[WITH]) - len(reached)
        shown = mean_sd(reached, 0) if reached else NONE
        rows.append(
            [
                title,
                f"{passed['goal']:.2f}",
                mean_sd(passed[WITHOUT], 0),
                shown + (f" ({never} never)" if never else ""),
            ]
        )
    second = markdown(["updates until", "the best score without ELMo", WITHOUT, WITH], rows)
    note = (
        "The paper, SRL: the baseline's best after 486 epochs, passed with ELMo after 10; 1 % of the examples with "
        "ELMo is about as good as 10 % without.\n"
    )
    return f"{first}\n{second}\n{note}"


def figure(results: Results) -> "Figure":
    """One panel per task: mean scores over the share of the training part, with bands of one standard deviation."""
    tasks = list(results["tasks"])
    drawn = new_figure(3.6 * len(tasks), 3.6)
    panels = drawn.subplots(1, len(tasks), squeeze=False)[0]
    for axes, title in zip(panels, tasks, strict=True):
        for colour, kind in zip(COLOURS, (WITH, WITHOUT), strict=False):
            found = [mean_and_sd(results["cells"][f"{title}/{kind}/{share}"]["dev"]) for share in results["fractions"]]
            means = [one["mean"] for one in found]
            low, high = ([one["mean"] + sign * one["sd"] for one in found] for sign in (-1, 1))
            shares = [100 * share for share in results["fractions"]]
            axes.plot(shares, means, marker="o", markersize=4, label=kind, color=colour)
            axes.fill_between(shares, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log")
        axes.set_xticks(shares, [f"{share:g}" for share in shares])
        axes.minorticks_off()
        axes.set_title(title)
        axes.set_xlabel("training part, %")
    panels[0].set_ylabel("dev score")
    drawn.legend(*panels[0].get_legend_handles_labels(), fontsize="small", loc="outside upper left", ncols=2)
    return drawn


def claims(results: Results) -> list[Claim]:
    """Fewer examples and fewer updates are needed with ELMo."""
    whole, small = results["fractions"][-1], min(results["fractions"], key=lambda share: abs(share - SMALL))
    tenth = next((share for share in results["fractions"] if math.isclose(10 * share, small)), None)
    gains, fewer = [], []
    for title in results["tasks"]:
        per_seed = {
            share: [
                other - one
                for one, other in zip(
                    results["cells"][f"{title}/{WITHOUT}/{share}"]["dev"],
                    results["cells"][f"{title}/{WITH}/{share}"]["dev"],
                    strict=True,
                )
            ]
            for share in (small, whole)
        }
        names = (f"the gain with {100 * small:g} %", f"with {100 * whole:g} %")
        gains.append(higher(title, per_seed[small], per_seed[whole], names))
        passed = results["passed"][title]
        reached = [float(value) for value in passed[WITH] if value is not None]
        names = ("updates without ELMo", "with it, to the same score")
        if len(reached) < len(passed[WITH]):
            missed = f"{len(passed[WITH]) - len(reached)} of {len(passed[WITH])} runs with ELMo never reach the score"
            fewer.append(Claim(title, FAILS, missed))
        else:
            fewer.append(higher(title, [float(value) for value in passed[WITHOUT]], reached, names))
    enough = [
        no_lower(
            title,
            results["cells"][f"{title}/{WITH}/{tenth}"]["dev"],
            results["cells"][f"{title}/{WITHOUT}/{small}"]["dev"],
            (f"{100 * tenth:g} % with ELMo", f"{100 * small:g} % without"),
        )
        for title, task in results["tasks"].items()
        if task == "srl" and tenth is not None
    ]
    return [
        together("ELMo helps more when there are few examples", gains),
        together("For semantic roles, a tenth of the examples is enough with ELMo", enough),
        together("With ELMo, fewer updates reach the best score without it", fewer),
    ]


ANALYSIS = Analysis(
    "sample-efficiency",
    "Sample efficiency",
    "section 5.4, Figure 1",
    "Scores when only a share of the training part is used, with and without ELMo, and the number of updates needed.",
    SampleEfficiencyConfig,
    run,
    table,
    figure,
    cells,
    claims,
)
