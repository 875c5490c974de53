"""`elmo predict`: text or JSON lines ─▶ what a trained task finds in them, as JSON lines."""

import sys
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, OutputOption, ThreadsOption, to_standard_output, use_threads
from elmo.cli.evaluate import TaskOption, TrainedArgument
from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.progress import Progress


def predict(
    model: TrainedArgument,
    input: Annotated[
        str,
        typer.Argument(metavar="INPUT", help="A text file or JSON lines, one item per line; - is standard input."),
    ],
    output: OutputOption = None,
    jsonl: Annotated[
        bool | None,
        typer.Option("--jsonl/--text", help="The format of the lines. By default the ending of INPUT decides."),
    ] = None,
    task: TaskOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Annotate a file, one item per line. Each answer is a JSON object on a line of its own.

    Line N of the output answers line N of the input and begins with {"line": N; a blank line gives
    {"line": N, "blank": true}. Raw text is tokenized. In JSON lines an item is what the task reads: {"tokens": [...]},
    {"sentence1": "...", "sentence2": "..."}, and so on.

    \b
    Examples:
      $ elmo predict tagger sentences.txt
      $ elmo predict tagger sentences.txt --output entities.jsonl
      $ cat sentences.txt | elmo predict tagger -
    """
    from elmo.files import refuse_existing
    from elmo.tasks.predict import load_task
    from elmo.tasks.predict_file import predict_file
    from elmo.tasks.task import task_named
    from elmo.text.reader import Lines, total_bytes

    use_threads(threads)
    if output is not None and not to_standard_output(output):
        refuse_existing(output)  # before the model is read
    Lines(input)
    predictor = load_task(model, device, task_named(task) if task else None)
    with interrupted_by_sigterm(), Progress(total_bytes([input]), hidden=to_standard_output(output)) as progress:
        try:
            predict_file(predictor, input, output, jsonl=jsonl, progress=progress.show)
        except KeyboardInterrupt:
            left = "" if to_standard_output(output) else "; nothing was written"
            print(f"elmo: interrupted{left}", file=sys.stderr)
            raise typer.Exit(130) from None
