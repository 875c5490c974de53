"""A WORD IN CONTEXT ─▶ ITS NEAREST USES in the sentences of uses.txt, which have ambiguous words in several senses."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.selection import Array
from elmo.text.tokens import words

FILE = Path(__file__).parent / "uses.txt"


@dataclass(frozen=True)
class Use:
    """A word of a sentence, and its cosine similarity to the word that was asked for."""

    tokens: list[str]
    index: int
    similarity: float


@cache
def sentences() -> list[list[str]]:
    """Return the tokens of all sentences."""
    return [words(line) for line in FILE.read_text(encoding="utf-8").splitlines() if line]


class Uses:
    """The vectors of every word of the sentences, computed once for a model."""

    def __init__(self, embedder: Embedder) -> None:
        self.places = [(row, index) for row, tokens in enumerate(sentences()) for index in range(len(tokens))]
        self.vectors = np.concatenate(list(embedder.embed(sentences())), axis=1)  # (L+1, N, 2D)

    def nearest(self, vectors: Array, weights: Sequence[float], n: int = 10) -> list[Use]:
        """Return the n nearest uses of a word by the cosine of mixed layers; `vectors` are its layers, (L+1, 2D).

        Punctuation is not among them.
        """
        mixed = np.tensordot(np.asarray(weights, dtype=np.float32), self.vectors, 1)  # (N, 2D)
        wanted = np.tensordot(np.asarray(weights, dtype=np.float32), vectors, 1)
        similarity = cosine(mixed, wanted)
        found: list[Use] = []
        for place in np.argsort(-similarity, kind="stable"):
            row, index = self.places[place]
            tokens = sentences()[row]
            if any(map(str.isalnum, tokens[index])):
                found.append(Use(tokens, index, float(similarity[place])))
            if len(found) == n:
                break
        return found


def cosine(rows: Array, vector: Array) -> Any:
    """Return the cosine of each row with a vector; 0 where one of them is zero."""
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    return (rows @ vector) / np.where(norms > 0, norms, 1)
