"""`elmo predict`: text or JSON lines ─▶ what a trained task finds in them, as JSON lines."""

import sys
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, OutputOption, ThreadsOption, to_standard_output, use_threads
from elmo.cli.evaluate import TaskOption, TrainedArgument
from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.progress import FileReport


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
    from elmo.tasks import from_paths
    from elmo.text.reader import total_bytes

    use_threads(threads)
    hidden = to_standard_output(output)
    with interrupted_by_sigterm(), FileReport(total_bytes([input]), "lines", hidden=hidden) as report:
        try:
            from_paths.predict(model, input, output, jsonl=jsonl, task=task, device=device, progress=report.show)
        except KeyboardInterrupt:
            left = "" if to_standard_output(output) else "; nothing was written"
            print(f"elmo: interrupted{left}", file=sys.stderr)
            raise typer.Exit(130) from None
