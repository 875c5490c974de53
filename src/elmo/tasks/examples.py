"""THE DATA OF A TASK: examples, the parts they come in, and a fraction of them."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elmo.text.tokens import Tokens

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Example:
    """One or several token sequences, and the gold answer: a value whose repr shows its content.

    A task whose model reads more than tokens adds fields in a subclass.
    """

    texts: tuple[Tokens, ...]
    gold: Any = None

    @property
    def n_tokens(self) -> int:
        """The number of tokens that a model reads."""
        return sum(map(len, self.texts))


Splits = Mapping[str, Sequence[Example]]  # "train", "dev" and "test", as far as they exist


class GroupedExamples(list[Example]):
    """The distinct examples of several groups, such as the phrases of trees; `fraction` draws whole groups."""

    def __init__(self, groups: Iterable[Sequence[Example]]) -> None:
        first: dict[Example, Example] = {}  # equal examples are kept once in memory
        self.groups = [[first.setdefault(example, example) for example in group] for group in groups]
        super().__init__(first)


def fraction(examples: Sequence[Example], share: float, seed: int) -> Sequence[Example]:
    """Draw a share of the examples with a seed, at least one; of grouped examples, a share of the groups."""
    if share == 1:
        return examples
    if isinstance(examples, GroupedExamples):
        return GroupedExamples([examples.groups[row] for row in _rows(len(examples.groups), share, seed)])
    return [examples[row] for row in _rows(len(examples), share, seed)]


def _rows(count: int, share: float, seed: int) -> list[int]:
    """Draw a share of `count` rows; return them in ascending order."""
    drawn = np.random.default_rng([seed, count]).choice(count, max(1, round(share * count)), replace=False)
    return sorted(drawn.tolist())


def fingerprint(splits: Splits) -> str:
    """Return a hash of all examples, in order: every text, every gold answer, and the fields of subclasses."""
    digest = hashlib.sha256()
    for part, examples in splits.items():
        digest.update(f"{part} {len(examples)}\x1d".encode())
        for example in examples:
            texts = "\x1e".join("\x1f".join(text) for text in example.texts)
            others = "\x1d".join(repr(value) for name, value in vars(example).items() if name != "texts")
            if " at 0x" in others:  # an object without a repr of its own: its address is not its content
                others = _ADDRESS.sub("", others)
            digest.update(f"{texts}\x1d{others}\x1d".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]
