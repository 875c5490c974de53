"""THE BEST SCORE SO FAR, AND EARLY STOPPING."""

from dataclasses import dataclass


@dataclass
class Best:
    """The best score of a run, the step that reached it, and the number of evaluations since."""

    best: float | None = None
    best_step: int | None = None
    worse: int = 0

    def count(self, score: float, step: int, *, lower_is_better: bool = False) -> bool:
        """Count one evaluation; returns whether its score is the best so far."""
        better = self.best is None or (score < self.best if lower_is_better else score > self.best)
        if better:
            self.best, self.best_step, self.worse = score, step, 0
        else:
            self.worse += 1
        return better

    def exhausted(self, patience: int | None) -> bool:
        """Return whether the last `patience` evaluations were not better than the best."""
        return patience is not None and self.worse >= patience
