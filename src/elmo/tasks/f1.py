"""F1, precision and recall from counts: the metric of tasks that find spans."""


def f1_score(correct: int, predicted: int, gold: int) -> tuple[float, float, float]:
    """Return F1, precision and recall, in per cent; zero where nothing is predicted, or nothing is gold."""
    precision, recall = (100 * correct / count if count else 0.0 for count in (predicted, gold))
    return (2 * precision * recall / (precision + recall) if correct else 0.0), precision, recall
