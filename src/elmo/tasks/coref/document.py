"""A DOCUMENT: sentences, the speaker of each token, a genre, and clusters of mentions.

Offsets count the tokens of the whole document from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from elmo.tasks.examples import Example


class Span(NamedTuple):
    """A mention: the tokens from `start` up to and without `end`."""

    start: int
    end: int


Clusters = tuple[tuple[Span, ...], ...]
"""The entities of a document, each the mentions that refer to it."""


@dataclass(frozen=True)
class Document(Example):
    """A document: `texts` are its sentences, `gold` are its clusters."""

    name: str = ""
    part: str = ""  # large documents are divided into parts, with clusters of their own
    genre: str = ""  # "" if unknown
    speakers: tuple[str, ...] = ()  # of each token; "" if unknown

    @property
    def tokens(self) -> list[str]:
        """The tokens of all sentences."""
        return [token for text in self.texts for token in text]

    def cut(self, first: int, count: int) -> "Document":
        """Return `count` sentences beginning with number `first`, with the mentions that lie inside them."""
        ends = [0, *accumulate(map(len, self.texts))]
        start, end = ends[first], ends[min(first + count, len(self.texts))]
        inside = (
            tuple(Span(a - start, b - start) for a, b in cluster if start <= a and b <= end) for cluster in self.gold
        )
        return replace(
            self,
            texts=self.texts[first : first + count],
            gold=tuple(cluster for cluster in inside if cluster),
            speakers=self.speakers[start:end],
        )


def in_order(clusters: Sequence[Sequence[Span]]) -> Clusters:
    """Sort the mentions of each cluster, and the clusters by their first mention."""
    return tuple(sorted(tuple(sorted(cluster)) for cluster in clusters))
