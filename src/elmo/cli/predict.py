"""`elmo predict`: text or JSON lines ─▶ what a trained task finds in them, as JSON lines."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.arguments import DeviceOption
from elmo.cli.evaluate import TaskOption, TrainedArgument
from elmo.cli.lines import Lines
from elmo.cli.progress import Progress
from elmo.errors import DataError

if TYPE_CHECKING:
    from elmo.tasks.task import Example


def predict(
    model: TrainedArgument,
    input: Annotated[str, typer.Argument(help="A text file, an item per line, or .jsonl; - is standard input.")],
    output: Annotated[Path | None, typer.Option(help="The file to write instead of standard output.")] = None,
    jsonl: Annotated[bool | None, typer.Option("--jsonl/--text", help="What the lines are; the ending tells.")] = None,
    task: TaskOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Annotate a file, one item per line; an answer is a JSON object on a line of its own.

    Raw text is tokenised. In JSON lines an item is what the task reads: {"tokens": [...]}, {"sentence1": "...",
    "sentence2": "..."}, and so on. Blank lines are left out.

    \b
    Examples:
      $ elmo predict tagger sentences.txt
      $ elmo predict tagger sentences.txt --output entities.jsonl
      $ cat sentences.txt | elmo predict tagger -
    """
    from elmo.files import refuse_existing, replacing
    from elmo.tasks.predict import load_task
    from elmo.tasks.task import task_named

    if output is not None:
        refuse_existing(output)
    lines = Lines(input)
    as_json = jsonl if jsonl is not None else input.endswith((".jsonl", ".json"))
    predictor = load_task(model, device, task_named(task) if task else None)
    writing = replacing(output) if output is not None else nullcontext(None)
    with Progress(lines.size, hidden=output is None) as progress, writing as path:
        file = path.open("w", encoding="utf-8") if path is not None else sys.stdout
        for answer in predictor.answers(_examples(lines, as_json, predictor.task.parse)):
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
            progress.show(lines.count, lines.position)
        if path is not None:
            file.close()


def _examples(lines: Lines, as_json: bool, parse: "Callable[[Any], Example]") -> Iterator["Example"]:
    for line in lines:
        if not line.strip():
            continue
        try:
            yield parse(json.loads(line) if as_json else line.rstrip("\r\n"))
        except ValueError as error:
            raise DataError(f"{lines.name}: line {lines.count} is not JSON ({error})") from None
        except DataError as error:
            raise DataError(f"{lines.name}: line {lines.count}: {error}") from None
