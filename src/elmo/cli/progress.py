"""A PROGRESS BAR on standard error."""


class Progress:
    """A bar with tokens/s and the time left; shown on a terminal only, and not if `hidden`."""

    def __init__(self, size: int | None, hidden: bool = False) -> None:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[tokens]:,} tokens, {task.fields[speed]:,.0f}/s"),
            progress.TimeRemainingColumn(),
            console=console,
            disable=hidden or not console.is_terminal,
            redirect_stdout=False,  # it may be the result
        )
        self._task = self._bar.add_task("", total=size, tokens=0, speed=0.0)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, step: str, size: int | None) -> None:
        """Begin another step of the work, with a bar of its own length."""
        self._bar.reset(self._task, total=size, description=step)

    def show(self, tokens: int, position: int) -> None:
        """Show the number of tokens done in all, and the position of the bar."""
        elapsed = self._bar.tasks[0].elapsed or 0.0
        speed = tokens / elapsed if elapsed else 0.0
        self._bar.update(self._task, completed=position, tokens=tokens, speed=speed)
