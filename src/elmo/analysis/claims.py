"""DOES A CLAIM OF THE PAPER HOLD HERE? The verdict and the numbers behind it."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not testable here"


@dataclass(frozen=True)
class Claim:
    """A qualitative claim of the paper, the verdict, and the numbers behind it."""

    text: str
    verdict: str
    evidence: str


def higher(text: str, better: Sequence[float], worse: Sequence[float], names: tuple[str, str]) -> Claim:
    """Judge a claim that one score is higher than another, each measured with several seeds.

    It holds if the difference of the means is more than twice its standard error (with one seed: more than zero).
    """
    if not better or not worse:
        missing = names[0] if not better else names[1]
        return Claim(text, UNTESTED, f"{missing} was not measured")
    one, other = statistics.fmean(better), statistics.fmean(worse)
    error = standard_error(better, worse)
    spread = f" ± {error:.2f}" if error is not None else ""
    close = ", too close to tell" if error is not None and abs(one - other) <= 2 * error else ""
    evidence = f"{names[0]} {one:.2f}, {names[1]} {other:.2f}: {one - other:+.2f}{spread}{close}"
    return Claim(text, HOLDS if one - other > 2 * (error or 0.0) else FAILS, evidence)


def standard_error(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the standard error of the difference of two means; None if one of them is of a single value."""
    if len(one) < 2 or len(other) < 2:
        return None
    return math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))


def together(text: str, parts: Sequence[Claim]) -> Claim:
    """Join the verdicts of several tasks: the claim holds if it holds wherever it was tested."""
    tested = [part for part in parts if part.verdict != UNTESTED]
    evidence = "; ".join(f"{part.text}: {part.evidence} ({part.verdict})" for part in tested)
    if not tested:
        return Claim(text, UNTESTED, "; ".join(part.evidence for part in parts) or "no task was measured")
    return Claim(text, HOLDS if all(part.verdict == HOLDS for part in tested) else FAILS, evidence)
