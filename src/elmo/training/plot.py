"""METRICS ─▶ CURVES: the metrics of runs, each run in its own colour (matplotlib, no display needed).

A biLM, over the number of tokens seen:
    training loss          both directions; "sampled loss" if the softmax was sampled
    held-out perplexity    both directions and their mean, on a log axis; the best is marked
    speed                  tokens/s, and the learning rate
A task, over epochs: training loss, dev score with the best marked, learning rate.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmo.errors import ConfigError, DataError, ElmoError
from elmo.files import replacing
from elmo.training.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT = "curves.png"
FORMATS = ("png", "svg", "pdf")
FEW = 50  # with fewer points than this, each is marked: a single point makes no line

Lines = list[dict[str, Any]]


def plot(folders: Sequence[Path], output: Path | None = None) -> Path:
    """Draw the curves of runs into a file, by default curves.png in the first folder; an existing file is replaced."""
    output = output if output is not None else folders[0] / DEFAULT
    form = output.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise ConfigError(f"{output}: unknown format; expected a file name ending in .{', .'.join(FORMATS)}")
    figure = draw(folders)
    with replacing(output) as temporary:
        figure.savefig(temporary, format=form, dpi=150)
    return output


def draw(folders: Sequence[Path]) -> "Figure":
    """Draw one figure with three panels for all runs, which must all be biLMs or all be tasks."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ElmoError("curves need matplotlib: pip install 'elmo-torch[plot]'") from None
    runs = [(Run.open(folder), Run.open(folder).metrics()) for folder in folders]
    kinds = {}
    for run, lines in runs:
        if not lines:
            raise DataError(f"{run.folder}: no metrics yet; they begin after log_every steps, or after one epoch")
        kinds["of a task" if _is_task(lines) else "of a biLM"] = run.folder
    if len(kinds) > 1:
        (one, first), (other, second) = kinds.items()
        raise ConfigError(f"{first} is a run {one}, {second} a run {other}; expected one kind. Plot them separately")
    figure = Figure(figsize=(9.0, 10.0), layout="constrained")
    draw_all = _draw_tasks if "of a task" in kinds else _draw_bilms
    draw_all(figure, runs)
    return figure


def _is_task(lines: Lines) -> bool:
    return any(name.startswith("dev_") for name in lines[0])


def _draw_bilms(figure: "Figure", runs: list[tuple[Run, Lines]]) -> None:
    from matplotlib.ticker import EngFormatter, LogFormatter

    loss, perplexity, speed = figure.subplots(3, 1, sharex=True)
    learning_rate = speed.twinx()
    names = set()
    for number, (run, lines) in enumerate(runs):
        trained = [line for line in lines if "loss" in line]
        evaluated = [line for line in lines if "perplexity" in line]
        name = "loss" if run.record.get("negatives") is None else "sampled loss"
        names.add(name)
        look: dict[str, Any] = {"color": f"C{number}"}
        of = f"{run.folder}: " if len(runs) > 1 else ""
        _curve(loss, trained, "forward_loss", f"{of}{name}, forward", **look)
        _curve(loss, trained, "backward_loss", f"{of}{name}, backward", linestyle="--", **look)
        _curve(perplexity, evaluated, "forward_perplexity", f"{of}forward", linewidth=1.0, **look)
        _curve(perplexity, evaluated, "backward_perplexity", f"{of}backward", linewidth=1.0, linestyle="--", **look)
        _curve(perplexity, evaluated, "perplexity", f"{of}mean", linewidth=2.5, **look)
        _best(perplexity, evaluated, "perplexity", f"{of}best", min, **look)
        _curve(speed, trained, "tokens_per_second", f"{of}tokens/s", **look)
        _curve(learning_rate, trained, "learning_rate", f"{of}learning rate", linestyle=":", **look)
    loss.set_ylabel(names.pop() if len(names) == 1 else "training loss")
    perplexity.set_ylabel("held-out perplexity")
    perplexity.set_yscale("log")
    perplexity.margins(y=0.15)  # room for the best value, which is printed below its mark
    perplexity.yaxis.set_major_formatter(LogFormatter())
    perplexity.yaxis.set_minor_formatter(LogFormatter())
    speed.set_xlabel("tokens seen")
    speed.xaxis.set_major_formatter(EngFormatter())
    # Different scales, so that the curves do not overlap.
    for axes, label, room in ((speed, "tokens/s", 1.1), (learning_rate, "learning rate", 1.5)):
        axes.set_ylabel(label)
        if axes.get_lines():
            axes.set_ylim(0.0, room * axes.dataLim.ymax)
    for axes, shown in ((loss, [loss]), (perplexity, [perplexity]), (speed, [speed, learning_rate])):
        _legend(axes, shown)


def _draw_tasks(figure: "Figure", runs: list[tuple[Run, Lines]]) -> None:
    loss, score, learning_rate = figure.subplots(3, 1, sharex=True)
    names = set()
    for number, (run, lines) in enumerate(runs):
        look: dict[str, Any] = {"color": f"C{number}"}
        of = f"{run.folder}: " if len(runs) > 1 else ""
        name = next(name for name in lines[0] if name.startswith("dev_"))  # the score that the best model is chosen by
        shown = name.removeprefix("dev_")
        names.add(shown)
        _curve(loss, lines, "loss", f"{of}loss", x="step", **look)
        _curve(score, lines, name, f"{of}dev {shown}", x="step", **look)
        _best(score, lines, name, f"{of}best", max, x="step", **look)
        _curve(learning_rate, lines, "learning_rate", f"{of}learning rate", x="step", **look)
    loss.set_ylabel("training loss")
    score.set_ylabel(f"dev {names.pop()}" if len(names) == 1 else "dev score")
    score.margins(y=0.15)
    learning_rate.set_ylabel("learning rate")
    learning_rate.set_ylim(0.0, 1.1 * learning_rate.dataLim.ymax if learning_rate.get_lines() else 1.0)
    learning_rate.set_xlabel("epoch")
    learning_rate.xaxis.get_major_locator().set_params(integer=True)
    for axes in (loss, score, learning_rate):
        _legend(axes, [axes])


def _curve(axes: "Axes", lines: Lines, name: str, label: str, x: str = "tokens", **look: Any) -> None:
    """Draw one quantity; nothing is drawn for a direction that the model does not have."""
    points = [(line[x], line[name]) for line in lines if line.get(name) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < FEW else "", **look)


def _best(
    axes: "Axes", lines: Lines, name: str, label: str, choose: Callable[..., Any], x: str = "tokens", **look: Any
) -> None:
    """Mark the best value: the first one that `choose` (min or max) returns."""
    finite = [line for line in lines if math.isfinite(line[name])]
    if finite:
        best = choose(finite, key=lambda line: float(line[name]))
        place, value = best[x], best[name]
        axes.plot([place], [value], label=f"{label} {value:,.1f}", marker="o", markersize=9, linestyle="", **look)
        axes.annotate(f"{value:,.1f}", (place, value), (0, -20), textcoords="offset points", ha="center", **look)


def _legend(axes: "Axes", shown: "list[Axes]") -> None:
    axes.grid(alpha=0.3)
    handles = [line for some in shown for line in some.get_lines()]
    if handles:
        axes.legend(handles=handles)
