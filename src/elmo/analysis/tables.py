"""ROWS ─▶ MARKDOWN: the tables of the analyses, and the form of their numbers."""

import statistics
from collections.abc import Sequence

NONE = "–"  # a cell without a value


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def mean_sd(values: Sequence[float], digits: int = 2) -> str:
    """Return the mean of several seeds ± their (sample) standard deviation; a single value alone."""
    if not values:
        return NONE
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def number(value: float | None, digits: int = 2) -> str:
    """Return a number, or a dash if there is none."""
    return NONE if value is None else f"{value:,.{digits}f}"
