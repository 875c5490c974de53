"""METRICS ─▶ CURVES: what runs logged, over the tokens they saw, each run in its own colour (matplotlib, no display).

    training loss          both directions; sampled, it is no perplexity, and is not called so
    held-out perplexity    both directions and their mean, on a log axis; the best is marked
    pace                   tokens/s, and the learning rate
"""

import math
from collections.abc import Sequence
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
FEW = 50  # points that are shown one by one: a single one would be no line

Lines = list[dict[str, Any]]


def plot(folders: Sequence[Path], output: Path | None = None) -> Path:
    """Draw the curves of runs into a file, curves.png in the first one's folder by default; an old one is replaced."""
    output = output if output is not None else folders[0] / DEFAULT
    form = output.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise ConfigError(f"{output}: the ending says the format; expected one of .{', .'.join(FORMATS)}")
    figure = draw(folders)
    with replacing(output) as temporary:
        figure.savefig(temporary, format=form, dpi=150)
    return output


def draw(folders: Sequence[Path]) -> "Figure":
    """One figure of three panels: loss, perplexity, pace."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter, LogFormatter
    except ImportError:
        raise ElmoError("curves need matplotlib: pip install 'elmo-torch[plot]'") from None
    runs = [Run.open(folder) for folder in folders]
    figure = Figure(figsize=(9.0, 10.0), layout="constrained")
    loss, perplexity, speed = figure.subplots(3, 1, sharex=True)
    rate = speed.twinx()
    names = set()
    for number, run in enumerate(runs):
        lines = run.metrics()
        trained = [line for line in lines if "loss" in line]
        evaluated = [line for line in lines if "perplexity" in line]
        if not trained and not evaluated:
            raise DataError(f"{run.folder}: no metrics yet; a run logs its first after log_every steps")
        name = "loss" if run.record["negatives"] is None else "sampled loss"
        names.add(name)
        look: dict[str, Any] = {"color": f"C{number}"}
        of = f"{run.folder}: " if len(runs) > 1 else ""
        _curve(loss, trained, "forward_loss", f"{of}{name}, forward", **look)
        _curve(loss, trained, "backward_loss", f"{of}{name}, backward", linestyle="--", **look)
        _curve(perplexity, evaluated, "forward_perplexity", f"{of}forward", linewidth=1.0, **look)
        _curve(perplexity, evaluated, "backward_perplexity", f"{of}backward", linewidth=1.0, linestyle="--", **look)
        _curve(perplexity, evaluated, "perplexity", f"{of}mean", linewidth=2.5, **look)
        _best(perplexity, evaluated, f"{of}best", **look)
        _curve(speed, trained, "tokens_per_second", f"{of}tokens/s", **look)
        _curve(rate, trained, "learning_rate", f"{of}learning rate", linestyle=":", **look)
    loss.set_ylabel(names.pop() if len(names) == 1 else "training loss")
    perplexity.set_ylabel("held-out perplexity")
    perplexity.set_yscale("log")
    perplexity.margins(y=0.15)  # the best's value stands below its mark
    perplexity.yaxis.set_major_formatter(LogFormatter())
    perplexity.yaxis.set_minor_formatter(LogFormatter())
    speed.set_xlabel("tokens seen")
    speed.xaxis.set_major_formatter(EngFormatter())
    for axes, label, room in ((speed, "tokens/s", 1.1), (rate, "learning rate", 1.5)):  # not one on the other
        axes.set_ylabel(label)
        if axes.get_lines():
            axes.set_ylim(0.0, room * axes.dataLim.ymax)
    for axes, shown in ((loss, [loss]), (perplexity, [perplexity]), (speed, [speed, rate])):
        axes.grid(alpha=0.3)
        handles = [line for some in shown for line in some.get_lines()]
        if handles:
            axes.legend(handles=handles)
    return figure


def _curve(axes: "Axes", lines: Lines, name: str, label: str, **look: Any) -> None:
    """A quantity over the tokens seen; a direction that a model does not have is not drawn."""
    points = [(line["tokens"], line[name]) for line in lines if line.get(name) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < FEW else "", **look)


def _best(axes: "Axes", evaluated: Lines, label: str, **look: Any) -> None:
    """Mark the lowest perplexity with its value."""
    finite = [line for line in evaluated if math.isfinite(line["perplexity"])]
    if finite:
        best = min(finite, key=lambda line: float(line["perplexity"]))
        place, value = best["tokens"], best["perplexity"]
        axes.plot([place], [value], label=f"{label} {value:,.1f}", marker="o", markersize=9, linestyle="", **look)
        axes.annotate(f"{value:,.1f}", (place, value), (0, -20), textcoords="offset points", ha="center", **look)
