"""F1 of arguments: cases counted on paper, and the procedure of srl-eval.pl written down a second time."""

from itertools import pairwise

import numpy as np
import pytest

from elmo.tasks.srl.data import Answer, Proposition, Span
from elmo.tasks.srl.metric import Argument, arguments, score


def answer(*spans: tuple[int, int, str], predicates: tuple[int, ...] | None = None) -> Answer:
    return Answer((Proposition(2, tuple(Span(*span) for span in spans)),), predicates)


def counts(gold: Answer, predicted: Answer) -> tuple[int, int, int]:
    """Correct, predicted and gold arguments of one proposition."""
    a, b = (arguments(one.propositions[0].spans) for one in (gold, predicted))
    return len(a & b), len(b), len(a)


GOLD = answer((0, 2, "ARG1"), (2, 3, "V"), (3, 5, "C-ARG1"), (6, 7, "ARG0"), (8, 9, "R-ARG0"))


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        (GOLD, (3, 3, 3)),  # ARG1 in two pieces, ARG0, R-ARG0; not V
        (answer((0, 2, "ARG1"), (3, 5, "C-ARG1"), (6, 8, "ARG0"), (8, 9, "R-ARG0")), (2, 3, 3)),  # ARG0 is too long
        (answer((0, 2, "ARG1"), (6, 7, "ARG0"), (8, 9, "R-ARG0")), (2, 3, 3)),  # a piece is missing: all of ARG1 wrong
        (answer((0, 2, "ARG1"), (3, 5, "ARG1"), (6, 7, "ARG0")), (1, 3, 3)),  # two ARG1 instead of one in two pieces
        (answer((0, 5, "ARG1"), (6, 7, "ARG0")), (1, 2, 3)),  # one piece with the same start and end as the two
        (answer((0, 2, "C-ARG1"), (3, 5, "C-ARG1"), (6, 7, "ARG0")), (2, 2, 3)),  # C- without a beginning begins one
        (answer((0, 2, "ARG1"), (3, 4, "C-ARG1"), (4, 5, "C-ARG1")), (0, 1, 3)),  # three pieces instead of two
        (answer((6, 7, "R-ARG0"), (8, 9, "ARG0")), (0, 2, 3)),  # the right spans with each other's roles
        (answer((0, 1, "V"), (4, 5, "C-V")), (0, 0, 3)),  # a wrong predicate is not counted, in pieces either
        (answer(), (0, 0, 3)),
    ],
)
def test_counts_made_on_paper(predicted: Answer, expected: tuple[int, int, int]) -> None:
    assert counts(GOLD, predicted) == expected


def test_a_piece_continues_the_last_argument_of_its_role() -> None:
    spans = [Span(0, 1, "ARGM-TMP"), Span(2, 3, "ARGM-TMP"), Span(4, 5, "C-ARGM-TMP"), Span(6, 7, "C-R-ARG1")]
    spans += [Span(8, 9, "C-R-ARG1")]
    assert arguments(spans[::-1]) == {
        Argument("ARGM-TMP", ((0, 1),)),
        Argument("ARGM-TMP", ((2, 3), (4, 5))),
        Argument("R-ARG1", ((6, 7), (8, 9))),
    }


def test_all_scores() -> None:
    """Three propositions of two sentences: 3 of 5 predicted arguments are correct, of 6; one proposition is perfect."""
    gold = [
        answer((0, 2, "ARG0"), (2, 3, "V"), (3, 6, "ARG1"), (6, 8, "ARGM-TMP"), predicates=(2, 5)),
        answer((0, 2, "ARG0"), (5, 6, "V"), (6, 8, "ARG1")),
        answer((1, 2, "V"), (2, 4, "ARG1"), predicates=(1,)),
        Answer((), ()),
    ]
    predicted = [
        answer((0, 2, "ARG0"), (2, 3, "V"), (3, 6, "ARG1"), (6, 7, "ARGM-TMP"), predicates=(2, 7)),
        answer((6, 8, "ARG0"), predicates=(2, 7)),
        answer((0, 2, "V"), (2, 4, "ARG1"), predicates=(1,)),
        Answer((), (0,)),
    ]
    found = score(gold, predicted)
    assert found == pytest.approx(
        {
            "f1": 200 * 3 / (5 + 6),
            "precision": 100 * 3 / 5,
            "recall": 100 * 3 / 6,
            "perfect": 100 / 3,
            "predicates_f1": 200 * 2 / (4 + 3),  # 2, 7, 1, 0 were found; 2, 5, 1 are
            "f1_ARG0": 200 * 1 / (2 + 2),
            "f1_ARG1": 200 * 2 / (2 + 3),
            "f1_ARGM-TMP": 0.0,
        }
    )
    assert next(iter(found)) == "f1"


def test_nothing_at_all() -> None:
    assert score([], [])["f1"] == score([answer()], [answer()])["f1"] == 0.0


def by_the_scripts_procedure(gold: list[Span], predicted: list[Span]) -> tuple[int, int, int]:
    """Arguments in a table by their first and last token; roles and pieces are compared when both are the same."""

    def table(spans: list[Span]) -> dict[tuple[int, int], tuple[str, list[tuple[int, int]]]]:
        found: list[list[object]] = []  # role, first token, end, pieces
        of_role: dict[str, list[object]] = {}
        for span in sorted(spans):
            role = span.role[2:] if span.role.startswith("C-") else span.role
            if span.role.startswith("C-") and role in of_role:
                of_role[role][2] = span.end
                of_role[role][3].append((span.start, span.end))  # type: ignore[attr-defined]
            else:
                of_role[role] = [role, span.start, span.end, [(span.start, span.end)]]
                found.append(of_role[role])
        return {(start, end): (role, pieces) for role, start, end, pieces in found}  # type: ignore[misc]

    a, b = table(gold), table(predicted)
    correct = sum(a.get(key) == value for key, value in b.items() if value[0] != "V")
    return correct, *(sum(role != "V" for role, _ in one.values()) for one in (b, a))  # type: ignore[return-value]


def test_random_propositions_against_the_scripts_procedure() -> None:
    rng = np.random.default_rng(0)
    roles = ["V", "C-V", "ARG0", "C-ARG0", "ARG1", "C-ARG1", "R-ARG0"]

    def some() -> list[Span]:
        cuts = sorted(rng.choice(9, size=int(rng.integers(2, 7)), replace=False).tolist())
        return [Span(a, b, roles[int(rng.integers(len(roles)))]) for a, b in pairwise(cuts) if rng.random() < 0.8]

    seen = set()
    for _ in range(500):
        gold = some()
        predicted = [span for span in gold if rng.random() < 0.8] if rng.random() < 0.7 else some()
        expected = by_the_scripts_procedure(gold, predicted)
        assert counts(answer(*gold), answer(*predicted)) == expected
        seen.add(expected)
    assert len(seen) > 15
