"""Exact match and F1 of answers: cases computed by hand, the official rules written out again, the score of people."""

import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.squad.data import Answer, Gold
from elmo.tasks.squad.metric import exact_match, f1, normalized, score
from reference_files import needs_shared, unpacked


@pytest.mark.parametrize(
    ("gold", "predicted", "match", "words"),
    [
        ("Denver Broncos", "Denver Broncos", True, 1),
        ("the Denver Broncos", "DENVER broncos", True, 1),
        ("Santa Clara, California.", "santa clara california", True, 1),
        ("an apple a day", "the apple day", True, 1),
        ("“gold”", '"gold"', False, 0),  # curly quotes are not ASCII punctuation, and stay
        ("U.S.", "us", True, 1),
        ("U. S.", "US", False, 0),
        ("A-levels", "levels", False, 0),  # punctuation goes first: "alevels" has no article
        ("'A' side", "side", True, 1),
        ("theory", "the ory", False, 0),
        ("$1,000", "1000", True, 1),
        ("1990–2000", "1990 2000", False, 0),  # an en dash is not ASCII punctuation
        ("one\u00a0two\n three", "one two three", True, 1),
        ("the", "a", True, 0),  # nothing is left of either: equal, but without a common word
        ("", "", True, 0),
        ("red", "", False, 0),
        ("red blue red", "red red green", False, 2 / 3),  # two common words of three and three
        ("the River Wey", "on the River Wey in Surrey", False, 2 * 2 / (2 + 5)),
        ("in 1712", "1712", False, 2 / 3),
    ],
)
def test_two_answers(gold: str, predicted: str, match: bool, words: float) -> None:
    assert exact_match(gold, predicted) is match
    assert f1(gold, predicted) == pytest.approx(words)
    assert f1(predicted, gold) == pytest.approx(words)


@given(*[st.text("aA thenTHE,.-'\"bXé–\u00a0\n\t", max_size=25)] * 2)
def test_the_rules_written_out(gold: str, predicted: str) -> None:
    """Character by character, then precision and recall."""

    def rules(text: str) -> list[str]:
        kept = "".join(c for c in text.lower() if c not in string.punctuation)
        return [word for word in re.split(r"\s+", re.sub(r"\b(a|an|the)\b", " ", kept)) if word]

    wanted, given_words = rules(gold), rules(predicted)
    assert normalized(gold) == " ".join(wanted)
    assert exact_match(gold, predicted) == (wanted == given_words)
    common = sum(min(wanted.count(word), given_words.count(word)) for word in set(wanted))
    expected = 0.0
    if common:
        precision, recall = common / len(given_words), common / len(wanted)
        expected = 2 * precision * recall / (precision + recall)
    assert f1(gold, predicted) == pytest.approx(expected)


def test_the_best_gold_answer_counts_and_a_missing_prediction_is_wrong() -> None:
    gold = [Gold(texts, ()) for texts in (("in 1712", "1712"), ("Ada Flint", "Mrs. Flint"), ("Rain",), ("a",))]
    predicted = [Answer("1712."), Answer("Ada"), None, Answer("the")]
    # EM: 1, 0, 0, 1; F1: 1, 2/3, 0, 0
    assert score(gold, predicted) == pytest.approx({"f1": 100 * (1 + 2 / 3) / 4, "em": 50.0})
    assert list(score(gold, predicted)) == ["f1", "em"]  # F1 chooses the epoch
    assert score([], []) == {"f1": 0.0, "em": 0.0}


@needs_shared
def test_the_score_of_people_is_the_published_one(tmp_path: Path) -> None:
    """Rajpurkar et al. (2016), section 5: the second of three answers against the others: dev EM 80.3, F1 90.5.

    The dev file has changed a little since: version 1.0 was measured there.
    """
    content = json.loads((unpacked("squad", tmp_path) / "dev-v1.1.json").read_text(encoding="utf-8"))
    questions = [qa for article in content["data"] for part in article["paragraphs"] for qa in part["qas"]]
    three = [[answer["text"] for answer in qa["answers"][:3]] for qa in questions if len(qa["answers"]) > 1]
    found = score([Gold((one, *rest), ()) for one, _, *rest in three], [Answer(two) for _, two, *_ in three])
    assert found["em"] == pytest.approx(80.3, abs=0.05)
    assert found["f1"] == pytest.approx(90.5, abs=0.15)
