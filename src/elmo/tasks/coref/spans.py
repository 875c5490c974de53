"""SPANS AS A GRID: row t and column w are the span of w + 1 tokens that begins at token t. W is the longest width.

within_sentences    which places of the grid are spans of one sentence, (T, W)
prune               scores (T, W) ─▶ the places of the spans that are kept (Lee et al. 2017, section 5)
groups              sentences ─▶ batches of sentences whose padded size is limited
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]  # in the flattened grid: start · W + width − 1


def within_sentences(lengths: Sequence[int], max_width: int) -> npt.NDArray[np.bool_]:
    """Return which spans end in the sentence in which they begin, (T, W)."""
    ends = np.repeat(np.cumsum(lengths), lengths)  # of the sentence of each token
    return np.arange(len(ends))[:, None] + np.arange(max_width) < ends[:, None]


def prune(scores: npt.NDArray[np.float32], count: int) -> Places:
    """Keep the `count` spans with the highest scores, none of which cross; return their places in order.

    From the highest score to the lowest, a span is skipped if it overlaps one that was kept before without either
    containing the other. A span that is kept marks the places of the spans that it crosses, so a span is checked by one
    lookup. Scores of −inf are no spans. NaN counts as the lowest score, so that the loss will show it.
    """
    scores = np.where(np.isnan(scores), np.finfo(np.float32).min, scores)
    n_tokens, max_width = scores.shape
    margin = max_width * max_width  # of places before the first token and after the last one
    blocked = np.zeros((n_tokens + 2 * max_width) * max_width, dtype=bool)
    crossing = _crossing(max_width)
    n_spans = int((scores > -np.inf).sum())
    kept: list[int] = []
    for place in np.argsort(-scores, axis=None, kind="stable")[:n_spans].tolist():
        if blocked[margin + place]:
            continue
        kept.append(place)
        if len(kept) == count:
            break
        if offsets := crossing[place % max_width]:
            blocked[[margin + place + offset for offset in offsets]] = True
    return np.sort(np.array(kept, dtype=np.int64))


@lru_cache
def _crossing(max_width: int) -> list[list[int]]:
    """Return, for each width, how far away the places of the spans are that cross a span of this width."""
    crossing: list[list[int]] = [[] for _ in range(max_width)]
    for width in range(max_width):
        for other in range(max_width):
            after = range(max(1, width - other + 1), width + 1)  # begins inside, and ends behind
            before = range(-other, min(-1, width - other - 1) + 1)  # begins before, and ends inside
            crossing[width] += [shift * max_width + other - width for shift in (*before, *after)]
    return crossing


def groups(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Divide sentences into groups, longest first: padded to its first sentence, a group has at most `budget` tokens.

    A sentence longer than that is a group of its own.
    """
    divided: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not divided or (len(divided[-1]) + 1) * longest > budget:
            divided.append([])
            longest = lengths[row]
        divided[-1].append(row)
    return divided
