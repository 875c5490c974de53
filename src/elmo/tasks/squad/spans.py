"""GOLD ANSWERS ─▶ PLACES OF STARTS AND ENDS; scores of starts and ends ─▶ THE BEST SPAN ─▶ AN ANSWER.

scores (2, R, P): of each token as the start and as the end, −∞ where there is none. Each of the R rows is a question
and a window of its paragraph.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmo.tasks.squad.data import Answer, Questions
from elmo.tasks.squad.paragraph import Paragraph


class BestSpan(NamedTuple):
    """The best span of a row, and the logarithms of the sums of exp(score) over its starts and over its ends."""

    score: float  # of the start and the end together
    first: int  # in the window
    last: int
    log_starts: float
    log_ends: float


def gold_places(examples: Sequence[Questions], n_windows: int, n_tokens: int) -> npt.NDArray[np.bool_]:
    """Mark the gold starts and ends of questions in their windows side by side: (2, B, n_windows · n_tokens).

    A span counts in every window that contains all of it.
    """
    places = np.zeros((2, len(examples), n_windows, n_tokens), dtype=np.bool_)
    for row, example in enumerate(examples):
        for k, window in enumerate(example.paragraph.windows):
            for first, last in example.gold.spans:
                if first in window and last in window:
                    places[0, row, k, first - window.start] = True
                    places[1, row, k, last - window.start] = True
    return places.reshape(2, len(examples), -1)


def best_spans(scores: Tensor, longest: int) -> list[BestSpan]:
    """Find the span of at most `longest` tokens with the highest sum of scores, in each row."""
    starts, ends = scores
    ends_from = nn.functional.pad(ends, (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)  # (R, P, longest)
    best, place = (starts[..., None] + ends_from).flatten(1).max(dim=1)
    columns = [best, place, starts.logsumexp(dim=1), ends.logsumexp(dim=1)]
    found = torch.stack([column.double() for column in columns], dim=1).tolist()  # one copy from the device
    return [
        BestSpan(score, int(place) // longest, int(place) // longest + int(place) % longest, of_starts, of_ends)
        for score, place, of_starts, of_ends in found
    ]


def answer(paragraph: Paragraph, found: Sequence[BestSpan]) -> Answer:
    """Return the best of the spans of the windows of a paragraph; its probability is that among all windows.

    Scores of different windows are compared as they are, without a softmax in each (Clark & Gardner 2017, section 3).
    """
    if not found:
        return Answer("")
    k = max(range(len(found)), key=lambda row: found[row].score)
    first = paragraph.windows[k].start
    start, end = paragraph.characters((first + found[k].first, first + found[k].last))
    log_starts = np.logaddexp.reduce([one.log_starts for one in found])
    log_ends = np.logaddexp.reduce([one.log_ends for one in found])
    return Answer(paragraph.text[start:end], start, end, float(np.exp(found[k].score - log_starts - log_ends)))
