"""FIGURES: how all pictures look, and how they are written. matplotlib is an extra; no display is needed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from elmo.analysis.analysis import Results
from elmo.errors import ElmoError
from elmo.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTERS_PER_INCH = 9  # in the figures' font size, with the margins of a figure allowed for
INK = "#0b0c0e"  # text and axes; the HTML report replaces it by the colour of its own text
PAPER = "#fefefd"  # the background; transparent in the report
COLOURS = ("#3b76c4", "#d9822b", "#3a9a6b", "#b0486c", "#7a5cc0", "#8a8f2a", "#2f98a8", "#8c6d5a")
STYLE: Any = {  # matplotlib's own names
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "elmo",  # names inside the file
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), PAPER),
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def require_matplotlib() -> None:
    """Refuse to begin without matplotlib: it draws the figures at the end of an analysis."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ElmoError("the figures of an analysis need matplotlib: pip install 'elmo-torch[plot]'") from None


def new_figure(width: float = 7.0, height: float = 4.2) -> "Figure":
    """Return an empty figure, with sizes in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write_figure(draw: Callable[[Results], "Figure"], results: Results, path: Path) -> None:
    """Draw a figure into PATH.png and PATH.svg; existing files are replaced."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = draw(results)
        with replacing(path.with_suffix(".png")) as temporary:
            figure.savefig(temporary, format="png", dpi=150)
        with replacing(path.with_suffix(".svg")) as temporary:  # without its date, the same figure is the same file
            figure.savefig(temporary, format="svg", metadata={"Date": None})


def literal(text: str) -> str:
    """Return text that matplotlib draws as it is: a dollar sign begins no formula."""
    return text.replace("$", r"\$")


Series = dict[str, list[tuple[float, float]]]  # by name: for every group a mean and its error


def bars(axes: "Axes", groups: list[str], series: Series) -> None:
    """Draw grouped bars, which begin at zero: for differences, and for numbers that are small when they are good."""
    width = 0.8 / max(1, len(series))
    for colour, name, places, means, errors in _placed(groups, series):
        axes.bar(places, means, 0.92 * width, yerr=errors, label=name, color=colour, ecolor=INK)
    _name_groups(axes, groups)
    axes.grid(axis="x", visible=False)


def points(axes: "Axes", groups: list[str], series: Series) -> None:
    """Draw grouped points, whose axis need not begin at zero: for scores."""
    for colour, name, places, means, errors in _placed(groups, series):
        axes.errorbar(places, means, errors, fmt="o", label=name, color=colour, ecolor=INK, elinewidth=1.2)
    _name_groups(axes, groups)
    axes.margins(x=0.08, y=0.15)


def _name_groups(axes: "Axes", groups: list[str]) -> None:
    """Write the names of groups below the axis, in lines that are short enough for the width of the figure."""
    inches = axes.figure.bbox.width / axes.figure.dpi
    characters = max(1, int(LETTERS_PER_INCH * inches / max(1, len(groups))))
    axes.set_xticks(range(len(groups)), [literal(fill(group, characters, break_long_words=False)) for group in groups])


def _placed(groups: list[str], series: Series) -> Iterator[tuple[str, str, list[float], list[float], list[float]]]:
    """Yield of each series: colour, name, places on the x axis, means, errors."""
    width = 0.8 / max(1, len(series))
    for k, (name, values) in enumerate(series.items()):
        places = [group + (k - (len(series) - 1) / 2) * width for group in range(len(groups))]
        yield COLOURS[k % len(COLOURS)], name, places, [mean for mean, _ in values], [error for _, error in values]


def legend_above(axes: "Axes", columns: int = 3) -> None:
    """Put the legend above the axes, where it hides nothing."""
    axes.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns)
