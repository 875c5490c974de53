"""A FILE OF ITEMS ─▶ A FILE OF ANSWERS, line by line: `elmo predict` as a function."""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.tasks.examples import Example
from elmo.tasks.predict import Predictor
from elmo.text.reader import COMPRESSED, Lines
from elmo.text.writer import text_output

_CHARACTER = re.compile(r"[^\s\x00-\x1f]")  # that can be in a token: not white space, and not a control character
_HALF = re.compile("[\ud800-\udfff]")


def predict_file(
    predictor: Predictor,
    input: str | Path,
    output: str | Path | None = None,
    *,
    jsonl: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Answer every line of a file, and write one JSON object per line: {"line": N, …}. Return the number of lines.

    Line N of the output is the answer to line N of the input; a blank line gives {"line": N, "blank": true}. A line is
    raw text, or with `jsonl` (by default if the name ends in .jsonl or .json) a JSON value that the task parses. A task
    about documents reads raw text as one document, and gives one answer. The input may be compressed; "-" is standard
    input. `output` must not exist; None or "-" is standard output. `progress` is called with the number of lines
    answered so far, and the number of bytes of the input up to there.
    """
    lines = Lines(input)
    if jsonl is None:
        name = Path(input)
        jsonl = (name.with_suffix("") if name.suffix in COMPRESSED else name).suffix in (".jsonl", ".json")
    done = 0
    one_item = predictor.task.unit == "file" and not jsonl
    answers = _document(predictor, lines) if one_item else _answers(predictor, lines, jsonl)
    with text_output(output) as file:
        for number, position, answer in answers:
            file.write(json.dumps({"line": number, **answer}, ensure_ascii=False) + "\n")
            done = number
            if progress is not None:
                progress(done, position)
    return done


def _answers(predictor: Predictor, lines: Lines, as_json: bool) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the number of each line, the number of bytes of the input up to its end, and its answer."""
    waiting: deque[tuple[int, int, bool]] = deque()  # number, position, blank: of lines that are not answered yet

    def examples() -> Iterator[Example]:
        for number, line in lines:
            blank = not (line.strip() if as_json else _CHARACTER.search(line))
            waiting.append((number, lines.position, blank))
            if not blank:
                yield _parsed(predictor, lines, number, line, as_json)

    def blanks() -> Iterator[tuple[int, int, dict[str, Any]]]:
        while waiting and waiting[0][2]:
            number, position, _ = waiting.popleft()
            yield number, position, {"blank": True}

    for answer in predictor.answers(examples()):
        yield from blanks()
        number, position, _ = waiting.popleft()
        yield number, position, answer
    yield from blanks()


def _document(predictor: Predictor, lines: Lines) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the answer to the text of all lines, in the form of an answer to line 1."""
    text = "\n".join(line for _, line in lines)
    if not _CHARACTER.search(text):
        yield 1, lines.position, {"blank": True}
        return
    for answer in predictor.answers([_parsed(predictor, lines, 1, text, as_json=False)]):
        yield 1, lines.position, answer


def _parsed(predictor: Predictor, lines: Lines, number: int, line: str, as_json: bool) -> Example:
    where = f"{lines.shown}: line {number}"
    try:
        item = json.loads(line) if as_json else line
        half = as_json and "\\u" in line and _HALF.search(json.dumps(item, ensure_ascii=False))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error}); expected an item per line, or use --text") from None
    if half:  # no file of answers could contain it
        raise DataError(f"{where} has half a surrogate pair, \\ud800 to \\udfff; expected characters of Unicode")
    try:
        return predictor.task.parse(item)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
