"""Correlation of predicted and judged similarities, in percent: Spearman's, which chooses the model, and Pearson's."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def score(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Correlate judgements and predictions."""
    x, y = np.array(gold, dtype=np.float64), np.array(predicted, dtype=np.float64)
    return {"spearman": 100 * pearson(ranks(x), ranks(y)), "pearson": 100 * pearson(x, y)}


def pearson(x: Numbers, y: Numbers) -> float:
    """Return the correlation of two samples; 0 if one of them is constant."""
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale > 0 else 0.0


def ranks(values: Numbers) -> Numbers:
    """Return the rank of every value; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Numbers = (ends - (counts - 1) / 2)[places]
    return shared
