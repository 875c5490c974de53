"""F1 of arguments, by the rules of the CoNLL-2005 scorer (srl-eval.pl).

An argument is correct if its role and all of its pieces are. A span C-X is a further piece of the last X before it, or
an X of its own if there is none. R-X is a role like any other. The predicate's own span, V, is not counted.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from elmo.tasks.f1 import f1_score
from elmo.tasks.srl.data import PREDICATE, Answer, Span

CONTINUES = "C-"


class Argument(NamedTuple):
    """A role, and the (start, end) of the pieces that play it."""

    role: str
    pieces: tuple[tuple[int, int], ...]


def score(gold: Sequence[Answer], predicted: Sequence[Answer]) -> dict[str, float]:
    """Return F1, precision and recall of all arguments, in per cent, then further scores.

    perfect is the share of propositions without an error; predicates_f1 says how well predicates were found, where they
    were not given; f1_ROLE is F1 of a role.
    """
    correct: Counter[str] = Counter()
    n_predicted: Counter[str] = Counter()
    n_gold: Counter[str] = Counter()
    found = wanted = both = perfect = propositions = 0
    for right, given in zip(gold, predicted, strict=True):
        for one, other in zip(right.propositions, given.propositions, strict=True):
            a, b = arguments(one.spans), arguments(other.spans)
            n_gold.update(argument.role for argument in a)
            n_predicted.update(argument.role for argument in b)
            correct.update(argument.role for argument in a & b)
            perfect += a == b
            propositions += 1
        if right.predicates is not None and given.predicates is not None:
            found, wanted = found + len(given.predicates), wanted + len(right.predicates)
            both += len({*right.predicates} & {*given.predicates})
    f1, precision, recall = f1_score(correct.total(), n_predicted.total(), n_gold.total())
    return {
        "f1": f1,
        "precision": precision,
        "recall": recall,
        "perfect": 100 * perfect / propositions if propositions else 0.0,
        "predicates_f1": f1_score(both, found, wanted)[0],
        **{f"f1_{role}": f1_score(correct[role], n_predicted[role], n_gold[role])[0] for role in sorted(n_gold)},
    }


def arguments(spans: Sequence[Span]) -> set[Argument]:
    """Join the pieces of each argument; leave out the predicate."""
    pieces: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}  # of each role, the pieces of its last argument
    for start, end, role in sorted(spans):
        name = role.removeprefix(CONTINUES)
        if name == role or name not in last:
            last[name] = []
            pieces.append((name, last[name]))
        last[name].append((start, end))
    return {Argument(role, tuple(some)) for role, some in pieces if role != PREDICATE}
