"""`elmo predict`: text or JSON lines ─▶ what a trained task finds in them, as JSON lines."""

import sys
from typing import Annotated

import typer

from elmo.cli.arguments import (
    DeviceOption,
    OutputOption,
    PrecisionOption,
    ThreadsOption,
    WordCacheOption,
    to_standard_output,
    use_threads,
)
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
        typer.Option("--jsonl/--text", help="Format of the lines. By default the ending of INPUT decides."),
    ] = None,
    task: TaskOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    word_cache: WordCacheOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Predict with a trained task, line by line.

    Each line of the input is an item: raw text, which is tokenized; or in JSON lines what the task reads, such as
    {"tokens": [...]} or {"sentence1": "...", "sentence2": "..."}. Each line of the output is a JSON object, and line N
    of the output is the answer to line N of the input: {"line": N, ...}, or {"line": N, "blank": true} for a blank
    line.

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
            from_paths.predict(
                model, input, output,
                jsonl=jsonl, task=task, device=device, precision=precision, word_cache=word_cache, progress=report.show,
            )  # fmt: skip
        except KeyboardInterrupt:
            left = "" if to_standard_output(output) else "; nothing was written"
            print(f"elmo: interrupted{left}", file=sys.stderr)
            raise typer.Exit(130) from None
