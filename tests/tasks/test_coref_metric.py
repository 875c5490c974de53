"""Coreference scores: the test cases of the CoNLL scorer with its published numbers, and brute force."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from elmo.tasks.coref import metric
from elmo.tasks.coref.document import Clusters, Span

KEY = "a bc def"
MENTIONS = "abcdefxyzB123456789ACDEFGHIJ"


def clusters(text: str) -> Clusters:
    """Entities separated by spaces, each letter a mention."""
    return tuple(tuple(Span(MENTIONS.index(m), MENTIONS.index(m) + 1) for m in entity) for entity in text.split())


def of(name: str, key: str, response: str) -> tuple[float, float]:
    """Recall and precision."""
    scores = metric.score([clusters(key)], [clusters(response)])
    return scores[f"{name}_recall"] / 100, scores[f"{name}_precision"] / 100


# The scorer's own test suite (test/TestCases.README and test/CorefMetricTestConfig.pm in its repository): recall and
# precision of the metrics that it states. In A5 and A6, B is a mention that overlaps b; in A7 to A9, b is repeated.
CASES: dict[str, tuple[str, str, dict[str, tuple[float, float]]]] = {
    "A1 perfect": (KEY, "a bc def", dict.fromkeys(("muc", "b3", "ceaf", "lea"), (1, 1))),
    "A2 missing mentions": (
        KEY, "a de",
        {"muc": (1 / 3, 1), "b3": (7 / 18, 1), "ceaf": (0.6, 0.9), "lea": (1 / 3, 1)},
    ),
    "A3 invented mentions": (
        KEY, "a bcx defy z",
        {"muc": (1, 3 / 5), "b3": (1, 55 / 108), "ceaf": (93 / 105, 93 / 140), "lea": (1, 4 / 9)},
    ),
    "A4 both": (
        KEY, "a bcx dy z",
        {"muc": (1 / 3, 1 / 3), "b3": (5 / 9, 17 / 42), "ceaf": (11 / 15, 0.55), "lea": (0.5, 2 / 7)},
    ),
    "A5 an overlapping mention in the aligned entity": (
        KEY, "a bcxB dy z",
        {"muc": (1 / 3, 1 / 4), "b3": (5 / 9, 5 / 16), "ceaf": (31 / 45, 31 / 60),
         "lea": (0.5, 5 / 24)},
    ),
    "A6 an overlapping mention in another entity": (
        KEY, "a bcx dy Bz",
        {"muc": (1 / 3, 1 / 4), "b3": (5 / 9, 17 / 48), "ceaf": (11 / 15, 0.55), "lea": (0.5, 1 / 4)},
    ),
    "A7 repeated in the same entity": (
        KEY, "a bcxb dy z",
        {"muc": (1 / 3, 1 / 3), "b3": (5 / 9, 17 / 42), "ceaf": (11 / 15, 0.55), "lea": (0.5, 2 / 7)},
    ),
    "A8 repeated in another entity": (
        KEY, "a bcx dy bz",
        {"muc": (1 / 3, 1 / 3), "b3": (5 / 9, 17 / 42), "ceaf": (11 / 15, 0.55), "lea": (0.5, 2 / 7)},
    ),
    "A9 repeated ten times": (
        KEY, "a bcx dy bbbbbbbbbbz",
        {"muc": (1 / 3, 1 / 3), "b3": (5 / 9, 17 / 42), "ceaf": (11 / 15, 0.55), "lea": (0.5, 2 / 7)},
    ),
    "A10 only singletons": (KEY, "a b c d e f", {"muc": (0, 0), "b3": (0.5, 1), "lea": (1 / 6, 1 / 6)}),
    "A11 one entity": (KEY, "abcdef", {"muc": (1, 3 / 5), "b3": (1, 7 / 18), "lea": (5 / 6, 4 / 15)}),
    "A12 only singletons, other mentions": (
        KEY, "a x y c d e z", {"muc": (0, 0), "b3": (13 / 36, 4 / 7), "lea": (1 / 6, 1 / 7)},
    ),
    "A13 one entity, other mentions": (
        KEY, "axycdez", {"muc": (1 / 3, 1 / 6), "b3": (17 / 36, 6 / 49), "lea": (1 / 6, 1 / 21)},
    ),
    "B1": ("ab cde", "bcx de", {"lea": (1 / 5, 2 / 5)}),
    "C1": ("ab cde fy", "bcx de fy", {"lea": (3 / 7, 4 / 7)}),
    "D1 a small entity merged": (
        "12345 67 89ABC", "12345 6789ABC", {"muc": (1, 9 / 10), "b3": (1, 16 / 21), "lea": (1, 26 / 36)},
    ),
    "E1 a large entity merged": (
        "12345 67 89ABC", "1234589ABC 67", {"muc": (1, 9 / 10), "b3": (1, 7 / 12), "lea": (1, 58 / 108)},
    ),
    "F1 an entity split": ("ABCD", "AB CD", {"muc": (2 / 3, 1), "lea": (1 / 3, 1)}),
    "G1 entities merged": ("AB CD", "ABCD", {"muc": (1, 2 / 3), "lea": (1, 1 / 3)}),
    "J1": ("ABC", "AC", {"muc": (0.5, 1), "lea": (1 / 3, 1)}),
    "K1": ("BCDEGHJ", "ABC DEF GHI", {"muc": (0.5, 0.5), "lea": (1 / 7, 1 / 3)}),
    "L1": ("ABC DEFG", "AB CD FGH", {"muc": (0.4, 0.5), "lea": (5 / 21, 3 / 7)}),
    "M1 one entity": ("abcdef", "abcdef", dict.fromkeys(("muc", "b3", "ceaf", "lea"), (1, 1))),
    "M2": ("abcdef", "a b c d e f", {"muc": (0, 0), "lea": (0, 0)}),
    "M3": ("abcdef", "ab cde f", {"lea": (4 / 15, 5 / 6)}),
    "M4": ("abcdef", "abcxyz", {"lea": (0.2, 0.2)}),
    "M6": ("abcdef", "ab cxy z", {"lea": (1 / 15, 1 / 3)}),
    "N1 only singletons": ("a b c d e f", "a b c d e f", {"muc": (0, 0), "b3": (1, 1), "ceaf": (1, 1), "lea": (1, 1)}),
    "N2": ("a b c d e f", "abcdef", {"lea": (0, 0)}),
    "N3": ("a b c d e f", "ab cde f", {"lea": (1 / 6, 1 / 6)}),
    "N4": ("a b c d e f", "a b c x y z", {"muc": (0, 0), "lea": (0.5, 0.5)}),
    "N6": ("a b c d e f", "ab cxy z", {"lea": (0, 0)}),
    "empty response": (KEY, "", dict.fromkeys(("muc", "b3", "ceaf", "lea", "mention"), (0, 0))),
    "empty key": ("", KEY, dict.fromkeys(("muc", "b3", "ceaf", "lea", "mention"), (0, 0))),
    "both empty": ("", "", dict.fromkeys(("muc", "b3", "ceaf", "lea", "mention"), (0, 0))),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "name"), [(case, name) for case, (_, _, expected) in CASES.items() for name in expected]
)
def test_the_cases_of_the_conll_scorer(case: str, name: str) -> None:
    key, response, expected = CASES[case]
    assert of(name, key, response) == pytest.approx(expected[name])


def test_repeated_mentions_that_are_not_in_the_key_count_as_errors_each() -> None:
    """The scorer removes a repeated mention only if it is in the key: {b c x x} has three links and four mentions."""
    assert of("muc", "bc", "bcxx") == (1, pytest.approx(1 / 3))
    assert of("b3", "bc", "bcxx") == (1, pytest.approx(1 / 4))
    assert of("ceaf", "bc", "bcxx") == (pytest.approx(4 / 6), pytest.approx(4 / 6))


def test_a_key_mention_in_two_entities() -> None:
    """It is looked up in the later one, and counts in both: key {a b} {b c}, response {a b} {c}.

    MUC: b and c are of one key entity, a and b are not: 0 of 2 links. B³: a has 2 of the 2 mentions of {a b}; b is
    looked up in {b c}, which shares b with the response's {a b}; c shares itself. CEAF: {a b} with {a b}, {b c} with
    {c}.
    """
    assert of("muc", "ab bc", "ab c") == (0, 0)
    assert of("b3", "ab bc", "ab c") == (pytest.approx((1 + 1 / 2 + 1 / 2) / 4), pytest.approx((1 + 1 / 2 + 1) / 3))
    assert of("ceaf", "ab bc", "ab c") == (pytest.approx((1 + 2 / 3) / 2), pytest.approx((1 + 2 / 3) / 2))
    assert of("mention", "ab bc", "ab c") == (1, 1)


def random_partition(rng: np.random.Generator) -> str:
    names = list("abcdefgh".replace("g", "x").replace("h", "y"))
    rng.shuffle(names)
    entities: list[str] = [""] * int(rng.integers(1, 5))
    for name in names[: int(rng.integers(1, 9))]:
        entities[int(rng.integers(len(entities)))] += name
    return " ".join(entity for entity in entities if entity)


def links(entity: Any) -> set[frozenset[Span]]:
    return {frozenset(pair) for pair in itertools.combinations(entity, 2)} or {frozenset(entity)}


def by_definition(key: Clusters, response: Clusters) -> dict[str, tuple[float, float]]:
    """Recall and precision from the papers' definitions, with sets; mentions are in one entity each."""
    sides = ([set(e) for e in key], [set(e) for e in response])

    def muc(of: list[Any], other: list[Any]) -> float:
        """Vilain et al.: |S| − the number of parts into which the other side divides S; unknown mentions are parts."""
        right = sum(
            len(s) - len([o for o in other if o & s]) - len([m for m in s if not any(m in o for o in other)])
            for s in of
        )
        total = sum(len(s) - 1 for s in of)
        return right / total if total else 0.0

    def b3(of: list[Any], other: list[Any]) -> float:
        """Bagga and Baldwin: the mean over mentions of |own ∩ other| / |own|."""
        each = [len(s & next((o for o in other if m in o), set())) / len(s) for s in of for m in s]
        return sum(each) / len(each)

    def ceaf(of: list[Any], other: list[Any]) -> float:
        """Luo: the best of all one-to-one alignments."""
        short, long = sorted((of, other), key=len)
        best = max(
            sum(2 * len(a & b) / (len(a) + len(b)) for a, b in zip(short, some, strict=True))
            for some in itertools.permutations(long, len(short))
        )
        return best / len(of)

    def lea(of: list[Any], other: list[Any]) -> float:
        """Moosavi and Strube: Σ |e| · resolution(e) / Σ |e|."""
        resolved = [len(s) * sum(len(links(s) & links(o)) for o in other) / len(links(s)) for s in of]
        return sum(resolved) / sum(map(len, of))

    return {f.__name__: (f(*sides), f(*sides[::-1])) for f in (muc, b3, ceaf, lea)}


@pytest.mark.parametrize("seed", range(40))
def test_random_clusters_by_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    key, response = random_partition(rng), random_partition(rng)
    for name, expected in by_definition(clusters(key), clusters(response)).items():
        assert of(name, key, response) == pytest.approx(expected), (name, key, response)


def test_documents_are_summed_and_the_mean_is_of_three() -> None:
    """Numerators and denominators are added over documents; the mean of documents would be another number."""
    keys, responses = [clusters("ab cde"), clusters("ab")], [clusters("ab cd e"), clusters("ac")]
    scores = metric.score(keys, responses)
    assert scores["muc_recall"] == pytest.approx(100 * 2 / 4)  # 2 of 3, and 0 of 1
    assert scores["muc_precision"] == pytest.approx(100 * 2 / 3)
    assert scores["b3_recall"] == pytest.approx(100 * (2 + 2 * 2 / 3 + 1 / 3 + 1 / 2) / 7)
    assert scores["b3_precision"] == pytest.approx(100 * (2 + 2 + 1 + 1 / 2) / 7)
    assert scores["ceaf_recall"] == pytest.approx(100 * (1 + 4 / 5 + 1 / 2) / 3)
    assert scores["ceaf_precision"] == pytest.approx(100 * (1 + 4 / 5 + 1 / 2) / 4)
    f1 = [
        2 * scores[f"{n}_recall"] * scores[f"{n}_precision"] / (scores[f"{n}_recall"] + scores[f"{n}_precision"])
        for n in ("muc", "b3", "ceaf")
    ]
    assert next(iter(scores)) == "f1"
    assert scores["f1"] == pytest.approx(sum(f1) / 3)


def test_without_singletons_both_sides_lose_them() -> None:
    scores = metric.score([clusters("ab c d")], [clusters("ab x")])
    assert scores["b3_recall"] == pytest.approx(50) and scores["ceaf_recall"] == pytest.approx(100 / 3)
    names = ("f1", "muc_f1", "b3_f1", "ceaf_f1", "lea_f1")
    assert [scores[f"{name}_without_singletons"] for name in names] == [pytest.approx(100)] * 5
    assert scores["mention_f1_without_singletons"] == pytest.approx(100)


def test_scores_are_plain_numbers() -> None:
    assert all(type(value) is float and math.isfinite(value) for value in metric.score([()], [clusters("ab")]).values())


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    with pytest.raises(
        metric.ElmoError, match=r"^the scores of coreference need SciPy: pip install 'elmo-torch\[coref\]'$"
    ):
        metric.score([clusters("ab")], [clusters("ab")])
