"""A TRAINED TASK IN USE: `elmo.load_task(folder_or_name).predict(["…"])`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import refuse_existing
from elmo.tasks import folder
from elmo.tasks.batches import answers
from elmo.tasks.examples import Example
from elmo.tasks.folder import TrainedTask
from elmo.tasks.task import Task, prediction_format
from elmo.text.writer import text_output

BATCH_SIZE = 64
BUFFER_SIZE = 16 * BATCH_SIZE  # examples that are read before they are sorted by length and answered
BUFFER_TOKENS = 65_536  # or fewer examples, with this many tokens: all their layers are in memory


class Predictor:
    """A trained task in use. Any number of threads may call it at once."""

    def __init__(self, trained: TrainedTask) -> None:
        self.trained = trained
        trained.model.eval()  # once: no call may change the model
        self.task = trained.task

    @property
    def labels(self) -> list[str]:
        """The labels that the model predicts."""
        return self.trained.labels

    @property
    def scores(self) -> dict[str, Any]:
        """The scores of the model on its own data, by part."""
        return dict(self.trained.scores)

    def predict(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """Answer each item: a text, or any other value that the task parses."""
        if isinstance(items, str | dict):
            raise DataError("predict() was given one item; expected a list of items, such as [item]")
        return list(self.stream(items))

    def stream(self, items: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Yield an answer for each item; they are read as needed, so there may be any number of them."""
        return self.answers(map(self.task.parse, items))

    def answers(self, examples: Iterable[Example]) -> Iterator[dict[str, Any]]:
        """Yield an answer for each example."""
        for some in _buffers(examples):
            for example, answer in zip(some, self._predict(some), strict=True):
                yield self.task.to_json(example, answer)

    def evaluate(self, data: str | Path, part: str = "test", output: str | Path | None = None) -> dict[str, float]:
        """Score the model on a part of a folder of data; write its predictions to `output` in the public format."""
        if output is not None:
            format = prediction_format(self.task)
            refuse_existing(Path(output).expanduser())  # before anything is computed
        splits = self.task.read(Path(data).expanduser())
        if not splits.get(part):
            raise DataError(f"{data}: no {part} part; expected {' or '.join(splits)}")
        predicted = [answer for some in _buffers(splits[part]) for answer in self._predict(some)]
        if output is not None:
            with text_output(output) as file:
                format.write_predictions(file, splits[part], predicted)
        return self.task.score([example.gold for example in splits[part]], predicted)

    def _predict(self, examples: Sequence[Example]) -> list[Any]:
        """Answer all examples; the layers of a frozen biLM are computed first: that is faster than batch by batch."""
        frozen = self.trained.model.inputs.frozen
        texts = (text for example in examples for text in example.texts)
        with nullcontext() if frozen is None else frozen.holding(texts):
            return answers(self.trained.model, examples, BATCH_SIZE)


def _buffers(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Group examples in their order: `BUFFER_SIZE` of them, or fewer that have `BUFFER_TOKENS` tokens."""
    buffer: list[Example] = []
    tokens = 0
    for example in examples:
        buffer.append(example)
        tokens += sum(map(len, example.texts))
        if len(buffer) == BUFFER_SIZE or tokens >= BUFFER_TOKENS:
            yield buffer
            buffer, tokens = [], 0
    if buffer:
        yield buffer


def load_task(
    model: str | Path,
    device: str = "auto",
    task: Task | None = None,
    *,
    precision: str = "float32",
    word_cache: str | Path | None = None,
) -> Predictor:
    """Load a trained task: a folder, or the name of an installed one; `task` is needed if it is one of your own.

    `precision` and `word_cache` are those of its frozen biLM, as for `elmo.load`.
    """
    return Predictor(folder.load(model, device, task, precision=precision, word_cache=word_cache))
