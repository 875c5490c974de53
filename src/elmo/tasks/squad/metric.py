"""EXACT MATCH AND F1, by the rules of SQuAD's official script (evaluate-v1.1.py), in per cent.

Answers are compared in lower case, without ASCII punctuation, without the articles a, an and the, and with single
spaces; of several gold answers, the one that gives the best score counts. F1 is that of the two bags of words. Two
answers of which no word is left match exactly and have an F1 of 0, as in the official script.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from elmo.tasks.squad.data import Answer, Gold

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def score(gold: Sequence[Gold], predicted: Sequence[Answer | None]) -> dict[str, float]:
    """Compute the means of F1 and exact match over all questions; None is a question without a prediction, scored 0."""
    pairs = list(zip(gold, predicted, strict=True))
    answered = [(wanted.texts, given.text) for wanted, given in pairs if given is not None]
    count = max(1, len(pairs))
    return {
        "f1": 100 * sum(max(f1(text, given) for text in texts) for texts, given in answered) / count,
        "em": 100 * sum(any(exact_match(text, given) for text in texts) for texts, given in answered) / count,
    }


def normalized(text: str) -> str:
    """Return what is compared of an answer."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> bool:
    """Whether two answers are the same after normalization."""
    return normalized(gold) == normalized(predicted)


def f1(gold: str, predicted: str) -> float:
    """Compute the F1 of the words of two answers, in [0, 1]."""
    wanted, given = normalized(gold).split(), normalized(predicted).split()
    common = (Counter(wanted) & Counter(given)).total()
    return 2 * common / (len(wanted) + len(given)) if common else 0.0
