"""PROGRESS REPORTS on standard error: a bar on a terminal, and lines for what a training run logs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from elmo.progress import progress_bars

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from elmo.pretrain.plan import Plan

GIB = 1 << 30


class _Report:
    """Bars for the duration of a `with` block."""

    def __init__(self, *columns: "str | ProgressColumn", hidden: bool = False) -> None:
        self._bars = progress_bars(*columns, hidden=hidden)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _print(self, line: str) -> None:
        self._bars.console.print(line)


class FileReport(_Report):
    """A bar over the bytes of an input file, with the number of tokens (or another unit) and the speed."""

    def __init__(self, size: int | None, unit: str = "tokens", hidden: bool = False) -> None:
        from rich.progress import TaskProgressColumn

        count = "{task.fields[count]:,} " + unit + ", {task.fields[speed]:,.0f}/s"
        super().__init__(TaskProgressColumn(), count, hidden=hidden)
        self._bar = self._bars.add_task("", total=size, count=0, speed=0.0)
        self._stage = ""

    def show(self, count: int, position: int) -> None:
        """Show `count` units done, and the bar at `position` bytes."""
        elapsed = self._bars.tasks[0].elapsed
        speed = count / elapsed if elapsed else 0.0
        self._bars.update(self._bar, completed=position, count=count, speed=speed)

    def show_stage(self, stage: str, position: int, size: int | None, count: int) -> None:
        """Show a stage of the work, each with a bar of its own size."""
        if stage != self._stage:
            self._stage = stage
            self._bars.reset(self._bar, total=size, description=stage)
        self.show(count, position)


class StepReport(_Report):
    """The plan of a pretraining run, a bar over its steps, and a line for every line of its log."""

    def __init__(self) -> None:
        from rich.progress import MofNCompleteColumn

        super().__init__(MofNCompleteColumn())
        self._bar = self._bars.add_task("")

    def __enter__(self) -> Self:  # the bar starts below the plan
        return self

    def planned(self, plan: "Plan", done: int) -> None:
        """Print the plan and start the bar."""
        free = f" of {plan.bytes_available / GIB:.1f} GiB free" if plan.bytes_available is not None else ""
        softmax = f"{plan.negatives:,} negatives" if plan.negatives is not None else "full softmax"
        self._print(f"parameters   {plan.parameters:,}, plus {plan.softmax_parameters:,} of the softmax")
        self._print(f"step         {plan.tokens_per_step:,} tokens in each direction, {softmax}")
        self._print(f"run          {plan.steps:,} steps, {plan.steps / plan.steps_per_epoch:.2f} epochs, {done:,} done")
        self._print(f"memory       about {plan.bytes_needed / GIB:.1f} GiB{free} on {plan.device}")
        self._bars.start()
        self._bars.update(self._bar, total=plan.steps, completed=done)

    def stepped(self, step: int, plan: "Plan") -> None:
        """Move the bar."""
        self._bars.update(self._bar, completed=step)

    def logged(self, values: Mapping[str, Any]) -> None:
        """Print a line of the log."""
        step = f"step {values['step']:,} epoch {values['epoch']:.2f}"
        if "perplexity" in values:
            forward, backward = values["forward_perplexity"], values["backward_perplexity"]
            each = f" (forward {forward:.2f}, backward {backward:.2f})" if backward is not None else ""
            self._print(f"{step}: held-out perplexity {values['perplexity']:.2f}{each}")
        else:
            loss = f"loss {values['loss']:.3f} {values['tokens_per_second']:,.0f} tokens/s"
            self._bars.update(self._bar, description=loss)
            self._print(f"{step}: {loss}, gradient {values['gradient_norm']:.2f}")


class StageReport(_Report):
    """A bar over each stage of an analysis."""

    def __init__(self) -> None:
        from rich.progress import MofNCompleteColumn

        super().__init__(MofNCompleteColumn())
        self._bar = self._bars.add_task("")
        self._stage = ""

    def show(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of the `total` steps of a stage are done."""
        if stage != self._stage:
            self._stage = stage
            self._bars.reset(self._bar, total=total, description=stage)
        self._bars.update(self._bar, completed=done, total=total)


class EpochReport(_Report):
    """A bar over the batches of an epoch, and a line for every epoch."""

    def __init__(self) -> None:
        from rich.progress import MofNCompleteColumn

        super().__init__(MofNCompleteColumn())
        self._epoch = self._bars.add_task("")

    def prepared(self, done: int, of: int) -> None:
        """Show that the layers of `done` of `of` tokens are computed."""
        self._bars.update(self._epoch, completed=done, total=of, description="layers")

    def began(self, epoch: int, batches: int) -> None:
        """Begin the bar of an epoch."""
        self._bars.reset(self._epoch, total=batches, description=f"epoch {epoch}")

    def stepped(self) -> None:
        """Count a batch."""
        self._bars.advance(self._epoch)

    def logged(self, values: Mapping[str, Any]) -> None:
        """Print the line of an epoch."""
        from elmo.tasks.seeds import epoch_line

        self._print(epoch_line(values))


class SeedReport(EpochReport):
    """A bar for the layers, which are computed first, and one for every seed."""

    def __init__(self) -> None:
        super().__init__()
        self._seeds: dict[int, Any] = {}

    def show(self, logs: Mapping[int, list[dict[str, Any]]], epochs: int) -> None:
        """Show the epochs and the latest score of each seed."""
        from elmo.tasks.seeds import dev_score

        for seed, lines in logs.items():
            if seed not in self._seeds:
                self._seeds[seed] = self._bars.add_task("", total=epochs)
            shown = f"seed {seed}, dev {dev_score(lines[-1])[1]:.2f}" if lines else f"seed {seed}"
            self._bars.update(self._seeds[seed], completed=len(lines), description=shown)
