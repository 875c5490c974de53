"""FINE-TUNING (paper, appendix A.1): perplexity on the text of a task before and after one epoch on it; and the task.

The text of a task's training part becomes a corpus, 5 % of its sentences held out, with the vocabulary of the model.
The model is trained on it as `elmo finetune` does. Then the tasks are trained with the model as it was, and with the
tuned one.

OUT/domains/NAME.corpus    the corpus
OUT/domains/NAME.tuned     the run of the fine-tuning
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmo.analysis.analysis import Analysis, Results, StoppedError, Workspace
from elmo.analysis.claims import FAILS, HOLDS, UNTESTED, Claim, Judge, alike, higher, together
from elmo.analysis.domains import KINDS
from elmo.analysis.figures import bars, legend_above, new_figure
from elmo.analysis.sweep import SNLI, SST, Cell, Sweep, TaskSetup
from elmo.analysis.tables import markdown, mean_sd
from elmo.config import CheckedConfig, PositiveInt
from elmo.errors import ConfigError
from elmo.packaged import DEFAULT
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import MANIFEST, Corpus
from elmo.pretrain.finetune import SOFTMAX, finetune
from elmo.pretrain.prepare import prepare
from elmo.training.processes import cores
from elmo.training.run import MODEL, RECORD
from elmo.weights import source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from elmo.pretrain.plan import Plan

BEFORE, AFTER = "before", "after"
UNCHANGED = ("sst",)  # tasks whose dev score is about the same with the tuned model, in the paper


@dataclass(frozen=True)
class Domain(CheckedConfig):
    """The text of a dataset."""

    name: str
    data: str  # a folder inside the data folder
    kind: Literal["snli", "entities", "contexts", "questions", "sst"]
    paper: tuple[float, ...] = ()  # the paper's perplexity before and after


@dataclass(frozen=True)
class TunedTask(CheckedConfig):
    """A task to train with the model of a domain, and with the model as it was."""

    domain: str
    setup: TaskSetup

    @property
    def name(self) -> str:
        """The name of the task in tables."""
        return self.setup.name


@dataclass(frozen=True)
class FineTuningConfig(CheckedConfig):
    """The texts of the paper that are here, one epoch, and the task whose gain the paper reports."""

    model: str = DEFAULT
    settings: tuple[str, ...] = ()  # changes of the recipe of `elmo finetune`
    domains: tuple[Domain, ...] = (
        Domain("SNLI", "snli", "snli", (72.1, 16.8)),
        Domain("CoNLL-2003", "conll2003", "entities", (103.2, 46.3)),
        Domain("SQuAD contexts", "squad", "contexts", (99.1, 43.5)),
        Domain("SQuAD questions", "squad", "questions", (158.2, 52.0)),
        Domain("SST", "sst", "sst", (131.5, 78.6)),
    )
    seeds: PositiveInt = 3
    tasks: tuple[TunedTask, ...] = (
        TunedTask("SNLI", SNLI),
        TunedTask("SST", SST),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [domain.name for domain in self.domains]
        for task in self.tasks:
            if task.domain not in names:
                raise ConfigError(f"tasks: the domain of {task.name} is {task.domain!r}; expected {', '.join(names)}")


def cells(config: FineTuningConfig, workspace: Workspace) -> dict[str, Cell]:
    """Return every task with the model as it is; those with a tuned model follow when it is there."""
    return {f"{task.name}/{BEFORE}": Cell(task.setup, {}, config.model, config.seeds) for task in config.tasks}


def run(config: FineTuningConfig, workspace: Workspace) -> Results:
    """Tune to every domain; train the tasks."""
    domains, tuned = {}, {}
    for number, domain in enumerate(config.domains):
        workspace.report("domains", number, len(config.domains))
        domains[domain.name], tuned[domain.name] = _tune(config, domain, workspace)
    after = {
        f"{task.name}/{AFTER}": Cell(
            task.setup, {"inputs": {"elmo": {"model": str(tuned[task.domain])}}}, config.model, config.seeds
        )
        for task in config.tasks
    }
    return {
        "domains": domains,
        "tasks": {task.name: task.setup.task for task in config.tasks},
        "cells": Sweep(workspace).run({**cells(config, workspace), **after}),
    }


def _tune(config: FineTuningConfig, domain: Domain, workspace: Workspace) -> tuple[Results, Path]:
    """Make the corpus of a domain and tune the model to it, as far as that is not done; return figures and model."""
    name = domain.name.replace(" ", "-").lower()
    corpus, out = (workspace.out / "domains" / f"{name}.{kind}" for kind in ("corpus", "tuned"))
    start = source.read(config.model, softmax=True)
    if not (corpus / MANIFEST).exists():
        kind = KINDS[domain.kind]
        with tempfile.TemporaryDirectory() as folder:
            text, words = Path(folder) / "text.txt", Path(folder) / "vocabulary.txt"
            lines = kind.read(workspace.find(domain.data))
            text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            if start.vocabulary is not None:
                start.vocabulary.write(words)
            prepare(
                text,
                corpus,
                tokenizer=kind.tokenizer,
                sentences=kind.sentences,
                heldout="5%",
                vocabulary=words if start.vocabulary is not None else None,
                jobs=cores(),
            )
    opened = Corpus.open(corpus)
    resume = (out / RECORD).exists() or (out / SOFTMAX / RECORD).exists()
    recipe = PretrainConfig.load(None, None, config.settings, finetuning=True)
    tuning = _Steps(workspace, f"fine-tuning to {domain.name}")
    change = finetune(start, opened, out, recipe, resume=resume, stop=workspace.stop, report=tuning)
    if change is None:
        raise StoppedError
    counts = json.loads((corpus / MANIFEST).read_text(encoding="utf-8"))["counts"]
    figures = {
        name: {**asdict(one), "mean": one.mean} for name, one in ((BEFORE, change.before), (AFTER, change.after))
    }
    facts = {"sentences": counts["sentences"], "tokens": counts["tokens"], "paper": list(domain.paper)}
    return {**figures, **facts}, out / MODEL


class _Steps:
    """Report the steps of a fine-tuning."""

    def __init__(self, workspace: Workspace, what: str) -> None:
        self.workspace, self.what = workspace, what

    def planned(self, plan: "Plan", done: int) -> None:
        self.workspace.progress(self.what, done, plan.steps)

    def stepped(self, step: int, plan: "Plan") -> None:
        self.workspace.progress(self.what, step, plan.steps)

    def logged(self, values: Mapping[str, Any]) -> None:
        pass


def table(results: Results) -> str:
    """Perplexity of every domain; then the dev scores of the tasks."""
    rows = []
    for name, found in results["domains"].items():
        paper = " → ".join(f"{value:.1f}" for value in found["paper"])
        size = [f"{found['sentences']:,}", f"{found['tokens']:,}", f"{100 * found[BEFORE]['unknown']:.1f} %"]
        rows.append([name, *size, f"{found[BEFORE]['mean']:.1f}", f"{found[AFTER]['mean']:.1f}", paper])
    header = ["perplexity", "sentences", "tokens", "unknown", BEFORE, AFTER, "paper"]
    text = markdown(header, rows)
    if not results["tasks"]:
        return text
    cells = results["cells"]
    rows = [
        [title, *(mean_sd(cells[f"{title}/{name}"]["dev"]) for name in (BEFORE, AFTER))] for title in results["tasks"]
    ]
    return (
        f"{text}\n{markdown(['dev score', BEFORE, AFTER], rows)}\nThe paper: +0.6 for SNLI, about nothing for SST-5.\n"
    )


def figure(results: Results) -> "Figure":
    """Bars: perplexity before and after."""
    drawn = new_figure(7.0, 3.6)
    axes = drawn.subplots()
    series = {name: [(found[name]["mean"], 0.0) for found in results["domains"].values()] for name in (BEFORE, AFTER)}
    bars(axes, list(results["domains"]), series)
    axes.set_ylabel("held-out perplexity")
    legend_above(axes, 2)
    return drawn


def claims(results: Results) -> list[Claim]:
    """Perplexity falls on every domain; the score of the task rises, except for SST-5."""
    falls = {name: (found[BEFORE]["mean"], found[AFTER]["mean"]) for name, found in results["domains"].items()}
    lower = all(after < before for before, after in falls.values())

    def compared(judge: Judge, unchanged: bool) -> list[Claim]:
        cells = results["cells"]
        return [
            judge(title, cells[f"{title}/{AFTER}"]["dev"], cells[f"{title}/{BEFORE}"]["dev"], ("tuned", "not tuned"))
            for title, task in results["tasks"].items()
            if (task in UNCHANGED) == unchanged
        ]

    return [
        Claim(
            "One epoch on the text of a task lowers the perplexity on it",
            UNTESTED if not falls else HOLDS if lower else FAILS,
            "; ".join(f"{name} {before:.1f} → {after:.1f}" for name, (before, after) in falls.items())
            or "no text was measured",
        ),
        together("Fine-tuning the biLM first improves the dev score of the task", compared(higher, False)),
        together("Fine-tuning the biLM first makes no difference to sentiment", compared(alike, True)),
    ]


ANALYSIS = Analysis(
    "fine-tuning",
    "Fine-tuning the biLM",
    "appendix A.1",
    "Perplexity on the text of a task before and after one epoch on it, and the score of the task with either model.",
    FineTuningConfig,
    run,
    table,
    figure,
    cells,
    claims,
)
