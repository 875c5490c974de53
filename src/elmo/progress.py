"""PROGRESS BARS: the one place that sets them up, for the command line and for downloads."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


def progress_bars(*columns: "str | ProgressColumn", hidden: bool = False) -> "Progress":
    """Bars on standard error: description, bar, `columns` and the time left.

    They are drawn on a terminal only, and not if `hidden`. `bars.console.print` prints a line above them, also where
    they are not drawn.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    return Progress(
        "{task.description}",
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        disable=hidden or not console.is_terminal,
        redirect_stdout=False,  # it may be the result
    )
