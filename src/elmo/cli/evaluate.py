"""`elmo evaluate`: a trained task and data ─▶ its scores."""

import json
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, ThreadsOption, use_threads
from elmo.cli.train import DataArgument

TrainedArgument = Annotated[
    str, typer.Argument(help="The folder of a trained task, RUN/model, or the name of an installed one.")
]
TaskOption = Annotated[str | None, typer.Option("--task", help="The folder of your own task.")]


def evaluate(
    model: TrainedArgument,
    data: DataArgument,
    part: Annotated[str, typer.Option(help="Part of the data to score: train, dev or test.")] = "test",
    task: TaskOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a trained task on a data set.

    \b
    Examples:
      $ elmo evaluate tagger entities
      $ elmo evaluate tagger entities --part dev --json
    """
    from elmo.tasks import from_paths

    use_threads(threads)
    scores = from_paths.evaluate(model, data, part, task=task, device=device)
    if as_json:
        print(json.dumps(scores))
        return
    for name, value in scores.items():
        print(f"{name:<16}{value:>8.2f}")
