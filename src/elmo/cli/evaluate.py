"""`elmo evaluate`: a trained task and data, or gold answers and predictions ─▶ scores."""

import json
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, PrecisionOption, ThreadsOption, WordCacheOption, use_threads
from elmo.errors import ConfigError

TrainedArgument = Annotated[
    str, typer.Argument(help="The folder of a trained task, RUN/model, or the name of an installed one.")
]
TaskOption = Annotated[str | None, typer.Option("--task", help="The folder of your own task.")]


OF_A_MODEL = ("output", "part", "device", "precision", "word_cache")  # options that have no meaning with --predictions


def evaluate(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="The folder of a trained task, RUN/model, or its name; with --predictions, a task.")
    ],
    data: Annotated[
        Path, typer.Argument(help="A folder with the task's data files; with --predictions a file of gold answers.")
    ],
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Score this file of predictions, of any system; no model is needed."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write the predictions to this file.")
    ] = None,
    part: Annotated[str, typer.Option(help="Part of the data to score: train, dev or test.")] = "test",
    task: TaskOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    word_cache: WordCacheOption = None,
    threads: ThreadsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a trained task, or any system's predictions.

    A trained task is scored on a part of a dataset. With --predictions, a file of predictions is scored against a file
    of gold answers (the correct ones), and no model is needed. Both have the public format of the task, see
    docs/tasks.md.

    \b
    Examples:
      $ elmo evaluate tagger entities
      $ elmo evaluate tagger entities --part dev --json
      $ elmo evaluate tagger entities --output found.txt
      $ elmo evaluate ner entities/test.txt --predictions predictions.txt
    """
    from elmo.tasks import from_paths

    use_threads(threads)
    if predictions is not None:
        for name in OF_A_MODEL:
            if (given := context.get_parameter_source(name)) is not None and given.name == "COMMANDLINE":
                raise ConfigError(f"--{name.replace('_', '-')} is for a model; with --predictions there is none")
        scores = from_paths.evaluate_predictions(task or model, data, predictions)
    else:
        scores = from_paths.evaluate(
            model, data, part, task=task, device=device, precision=precision, word_cache=word_cache, output=output
        )
    if as_json:
        print(json.dumps(scores))
        return
    width = max(16, *(len(name) + 2 for name in scores))
    for name, value in scores.items():
        print(f"{name:<{width}}{value:>8.2f}")
