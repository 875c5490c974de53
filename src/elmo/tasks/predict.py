"""A TRAINED TASK IN USE: `elmo.load_task(folder).predict(["…"])`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from elmo.errors import DataError
from elmo.tasks import folder
from elmo.tasks.batches import answers
from elmo.tasks.folder import Trained
from elmo.tasks.task import Example, Task
from elmo.text.batches import consecutive

BATCH = 64  # examples that are computed together
AT_ONCE = 16 * BATCH  # examples that are read, sorted by length and answered


class Predictor:
    """Answers of a trained task, item by item. Any number of threads may ask at once."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained
        trained.model.eval()  # once: no call changes the model
        self.task = trained.task
        self.device: torch.device = next(trained.model.parameters()).device

    @property
    def labels(self) -> list[str]:
        """What the model tells apart."""
        return self.trained.labels

    @property
    def scores(self) -> dict[str, Any]:
        """What the model reached on its own data, by part."""
        return dict(self.trained.scores)

    def predict(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """An answer for each item: a text, or whatever else the task reads."""
        if isinstance(items, str | dict):
            raise DataError("expected a list of items, found one; write [item]")
        return list(self.stream(items))

    def stream(self, items: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Yield an answer for each item, as it is needed: the items may be endless."""
        return self.answers(map(self.task.parse, items))

    def answers(self, examples: Iterable[Example]) -> Iterator[dict[str, Any]]:
        """Yield an answer for each example, parsed already."""
        for some in consecutive(examples, AT_ONCE):
            yield from (self.task.show(*pair) for pair in zip(some, self._found(some), strict=True))

    def evaluate(self, data: str | Path, part: str = "test") -> dict[str, float]:
        """The scores on a part of a folder of data."""
        splits = self.task.read(Path(data))
        if not splits.get(part):
            raise DataError(f"{data}: no {part} part; there is {', '.join(splits)}")
        found = [answer for some in consecutive(splits[part], AT_ONCE) for answer in self._found(some)]
        return self.task.score([example.gold for example in splits[part]], found)

    def _found(self, examples: Sequence[Example]) -> list[Any]:
        """Answer all examples; the layers of a frozen biLM are computed first, which is faster than batch by batch."""
        frozen = self.trained.model.inputs.frozen
        texts = (text for example in examples for text in example.texts)
        with nullcontext() if frozen is None else frozen.holding(texts):
            return answers(self.trained.model, examples, BATCH, self.device)


def load_task(path: str | Path, device: str = "auto", task: Task | None = None) -> Predictor:
    """Load a trained task; `task` is one of your own, if it is none of those here."""
    return Predictor(folder.read(Path(path), device, task))
