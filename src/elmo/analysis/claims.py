"""DOES A CLAIM OF THE PAPER HOLD HERE? The verdict and the numbers behind it.

Scores of several seeds are compared by the difference of their means and its standard error, that of independent runs.
One seed says nothing about the error: then the claim is not testable.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not testable here"


@dataclass(frozen=True)
class Claim:
    """A qualitative claim of the paper, the verdict, and the numbers behind it."""

    text: str
    verdict: str
    evidence: str  # a line, or one for every task


Judge = Callable[[str, Sequence[float], Sequence[float], tuple[str, str]], Claim]  # such as `higher`


def higher(text: str, better: Sequence[float], worse: Sequence[float], names: tuple[str, str]) -> Claim:
    """Judge a claim that one score is higher than another: by more than twice the standard error of the difference."""
    return _judged(text, better, worse, names, lambda difference, error: difference > 2 * error)


def no_lower(text: str, one: Sequence[float], other: Sequence[float], names: tuple[str, str]) -> Claim:
    """Judge a claim that one score reaches another: it is lower by twice the standard error at most, or higher."""
    return _judged(text, one, other, names, lambda difference, error: difference >= -2 * error)


def alike(text: str, one: Sequence[float], other: Sequence[float], names: tuple[str, str]) -> Claim:
    """Judge a claim that two scores are the same: they differ by twice the standard error at most."""
    return _judged(text, one, other, names, lambda difference, error: abs(difference) <= 2 * error)


def _judged(
    text: str,
    one: Sequence[float],
    other: Sequence[float],
    names: tuple[str, str],
    holds: Callable[[float, float], bool],
) -> Claim:
    if not one or not other:
        missing = names[0] if not one else names[1]
        return Claim(text, UNTESTED, f"{missing} was not measured")
    means = statistics.fmean(one), statistics.fmean(other)
    difference, error = means[0] - means[1], standard_error(one, other)
    shown = f"{names[0]} {means[0]:.2f}, {names[1]} {means[1]:.2f}: {difference:+.2f}"
    if error is None:
        return Claim(text, UNTESTED, f"{shown}, of one seed")
    if holds(difference, error):
        return Claim(text, HOLDS, f"{shown} ± {error:.2f}")
    close = ", too close to tell" if abs(difference) <= 2 * error else ""
    return Claim(text, FAILS, f"{shown} ± {error:.2f}{close}")


def standard_error(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the standard error of the difference of two means; None if one of them is of a single value."""
    if len(one) < 2 or len(other) < 2:
        return None
    return math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))


def together(text: str, parts: Sequence[Claim]) -> Claim:
    """Join the verdicts of several tasks: the claim holds if it holds wherever it was tested."""
    tested = {part.verdict for part in parts} - {UNTESTED}
    verdict = UNTESTED if not tested else FAILS if FAILS in tested else HOLDS
    evidence = "\n".join(f"{part.text}: {part.evidence} ({part.verdict})" for part in parts)
    return Claim(text, verdict, evidence or "no task was measured")
