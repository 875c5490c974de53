"""Verdicts on the claims of the paper, with differences and standard errors computed by hand."""

from collections.abc import Sequence
from typing import Any

import pytest

from elmo.analysis import (
    fine_tuning,
    layer_weighting,
    layer_weights,
    neighbours,
    placement,
    pos,
    sample_efficiency,
    senses,
    state,
)
from elmo.analysis.claims import FAILS, HOLDS, UNTESTED, Claim, alike, higher, no_lower, together

NAMES = ("one", "other")
Results = dict[str, Any]


def cells(**scores: Sequence[float]) -> Results:
    """Cells of these dev scores; in a name, "__" is "/"."""
    return {name.replace("__", "/"): {"dev": list(values)} for name, values in scores.items()}


def verdicts(found: Sequence[Claim]) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in found}


def test_a_claim_needs_twice_the_standard_error() -> None:
    # Variances 1 and 1 of three values each: the standard error is sqrt(2 / 3) = 0.816.
    claim = higher("c", [12.0, 13.0, 14.0], [10.0, 11.0, 12.0], NAMES)
    assert claim == Claim("c", HOLDS, "one 13.00, other 11.00: +2.00 ± 0.82")
    close = higher("c", [11.5, 12.5, 13.5], [10.0, 11.0, 12.0], NAMES)
    assert close == Claim("c", FAILS, "one 12.50, other 11.00: +1.50 ± 0.82, too close to tell")
    lower = higher("c", [1.0, 2.0, 3.0], [10.0, 11.0, 12.0], NAMES)
    assert lower == Claim("c", FAILS, "one 2.00, other 11.00: -9.00 ± 0.82")


@pytest.mark.parametrize(
    ("one", "same", "reaches"),
    [([12.0, 13.0, 14.0], FAILS, HOLDS), ([11.5, 12.5, 13.5], HOLDS, HOLDS), ([8.0, 9.0, 10.0], FAILS, FAILS)],
)
def test_scores_that_are_alike_and_scores_that_are_reached(one: list[float], same: str, reaches: str) -> None:
    other = [10.0, 11.0, 12.0]  # the differences are 2, 1.5 and −2; twice the standard error is 1.63
    assert alike("c", one, other, NAMES).verdict == same
    assert no_lower("c", one, other, NAMES).verdict == reaches


@pytest.mark.parametrize("judge", [higher, alike, no_lower])
def test_one_seed_proves_nothing(judge: Any) -> None:
    assert judge("c", [2.0], [1.0], NAMES) == Claim("c", UNTESTED, "one 2.00, other 1.00: +1.00, of one seed")
    assert judge("c", [2.0, 2.1], [1.0], NAMES).verdict == UNTESTED
    assert judge("c", [], [1.0], NAMES) == Claim("c", UNTESTED, "one was not measured")


def test_a_claim_about_several_tasks_shows_all_of_them() -> None:
    holds, fails, untested = Claim("a", HOLDS, "1"), Claim("b", FAILS, "2"), Claim("c", UNTESTED, "3")
    assert together("t", [holds, untested]) == Claim("t", HOLDS, "a: 1 (holds)\nc: 3 (not testable here)")
    assert together("t", [holds, fails, untested]).verdict == FAILS
    assert together("t", [untested]) == Claim("t", UNTESTED, "c: 3 (not testable here)")
    assert together("t", []) == Claim("t", UNTESTED, "no task was measured")


UP, DOWN, NOISE = [11.0, 11.2, 11.4], [10.0, 10.2, 10.4], [10.1, 10.3, 10.5]  # twice the standard errors: 0.33


def test_a_small_penalty_helps_other_tasks_than_named_entities() -> None:
    """The paper: "for NER … the results are insensitive to λ"."""

    def found(ner: Sequence[float]) -> dict[str, str]:
        names = ("without ELMo", "last layer", "all layers, λ = 1")
        rest = {f"{task}/{name}": DOWN for task in ("SNLI", "NER") for name in names}
        free = {"SNLI/all layers, λ = 0.001": UP, "NER/all layers, λ = 0.001": ner}
        both = {name: {"dev": values} for name, values in {**rest, **free}.items()}
        return verdicts(layer_weighting.claims({"tasks": {"SNLI": "snli", "NER": "ner"}, "cells": both}))

    assert list(found(NOISE).values()) == [FAILS, FAILS, HOLDS, HOLDS]
    assert list(found(UP).values()) == [HOLDS, HOLDS, HOLDS, FAILS]


def test_both_places_for_attention_and_the_input_for_roles() -> None:
    scores = {
        f"{task}/{name}": {"dev": values}
        for task, each in {"Q": (DOWN, UP, DOWN), "R": (UP, DOWN, DOWN)}.items()
        for name, values in zip(placement.PLACEMENTS, each, strict=True)
    }
    found = placement.claims({"tasks": {"Q": "squad", "R": "srl"}, "cells": scores})
    assert [claim.verdict for claim in found] == [HOLDS, HOLDS, HOLDS]


def test_fine_tuning_changes_entailment_and_not_sentiment() -> None:
    """The paper: dev accuracy of SNLI rises, that of SST-5 is about the same."""
    before_and_after = {"before": {"mean": 72.1}, "after": {"mean": 16.8}}
    results = {
        "domains": {"SNLI": before_and_after},
        "tasks": {"SNLI": "snli", "SST-5": "sst"},
        "cells": {
            "SNLI/before": {"dev": DOWN}, "SNLI/after": {"dev": UP},
            "SST-5/before": {"dev": DOWN}, "SST-5/after": {"dev": NOISE},
        },
    }  # fmt: skip
    assert [claim.verdict for claim in fine_tuning.claims(results)] == [HOLDS, HOLDS, HOLDS]
    results["cells"]["SST-5/after"]["dev"] = UP
    assert [claim.verdict for claim in fine_tuning.claims(results)] == [HOLDS, HOLDS, FAILS]
    nothing: Results = {"domains": {}, "tasks": {}, "cells": {}}
    assert [claim.verdict for claim in fine_tuning.claims(nothing)] == [UNTESTED] * 3


def test_the_state_makes_a_difference_or_none() -> None:
    def verdict(warm: Sequence[float], fresh: Sequence[float]) -> str:
        scores = cells(NER__fresh=fresh, NER__warm=warm, NER__carried=fresh)
        (claim,) = state.claims({"tasks": ["NER"], "cells": scores})
        return claim.verdict

    assert verdict(NOISE, DOWN) == HOLDS
    assert verdict(UP, DOWN) == FAILS
    assert verdict(UP[:1], DOWN[:1]) == UNTESTED


def mixes(task: str, place: str, *each: Sequence[float]) -> Results:
    mean = [sum(column) / len(each) for column in zip(*each, strict=True)]
    return {"task": task, "place": place, "weights": mean, "each": [{"weights": list(one)} for one in each]}


def test_mixes_favour_a_layer_if_those_of_all_seeds_do() -> None:
    clear, noisy = ((0.2, 0.6, 0.2), (0.3, 0.5, 0.2)), ((0.3, 0.4, 0.3), (0.34, 0.33, 0.33))
    even = (0.33, 0.34, 0.33)
    rows = [mixes("a", "input", *clear), mixes("b", "input", *noisy), mixes("a", "output", even, even)]
    first, second = layer_weights.claims({"rows": rows})
    assert first.verdict == FAILS  # one of two is not most
    assert "in 1 of 2 tasks; its mean weight: a 0.55, b 0.36" in first.evidence
    assert (second.verdict, second.evidence) == (HOLDS, "a: largest − smallest 0.01, input 0.35")
    first, second = layer_weights.claims({"rows": [rows[0], mixes("c", "output", even)]})
    assert (first.verdict, second.verdict) == (HOLDS, UNTESTED)
    assert [claim.verdict for claim in layer_weights.claims({"rows": [rows[2]]})] == [UNTESTED, UNTESTED]


def test_few_examples() -> None:
    scores = {
        "with ELMo": {0.01: [70.0, 70.2], 0.1: [80.0, 80.2], 1.0: [85.0, 85.2]},
        "without ELMo": {0.01: [50.0, 50.2], 0.1: [70.0, 70.2], 1.0: [82.0, 82.2]},
    }
    results: Results = {
        "tasks": {"SRL": "srl"},
        "fractions": [0.01, 0.1, 1.0],
        "cells": {f"SRL/{kind}/{share}": {"dev": dev} for kind, some in scores.items() for share, dev in some.items()},
        "passed": {"SRL": {"goal": 82.1, "with ELMo": [50, 60], "without ELMo": [400, 500]}},
    }
    more, enough, fewer = sample_efficiency.claims(results)
    assert [more.verdict, enough.verdict, fewer.verdict] == [HOLDS, HOLDS, HOLDS]
    assert "the gain with 10 % 10.00, with 100 % 3.00: +7.00 ± 0.00" in more.evidence
    assert "1 % with ELMo 70.10, 10 % without 70.10: +0.00 ± 0.14" in enough.evidence
    results["cells"]["SRL/with ELMo/0.01"]["dev"] = [69.0, 69.2]
    results["passed"]["SRL"]["with ELMo"] = [50, None]
    more, enough, fewer = sample_efficiency.claims(results)
    assert [more.verdict, enough.verdict, fewer.verdict] == [HOLDS, FAILS, FAILS]
    assert "1 of 2 runs with ELMo never reach the score" in fewer.evidence
    without_a_tenth = {**results, "fractions": [0.1, 1.0]}
    assert sample_efficiency.claims(without_a_tenth)[1].verdict == UNTESTED


def test_layers_are_compared_if_there_are_two() -> None:
    accuracies = [{"dev": [], "test": scores} for scores in (DOWN, UP, DOWN)]
    assert [claim.verdict for claim in pos.claims({"layers": accuracies})] == [HOLDS]
    assert [claim.verdict for claim in pos.claims({"layers": accuracies[:2]})] == [UNTESTED]

    def found(methods: list[str], right: list[int]) -> list[Claim]:
        # Two methods differ as little as they can: in as many answers as one has more right ones.
        counts = {"count": 1000, "unseen": 0, "right": right, "differ": [[abs(a - b) for b in right] for a in right]}
        return senses.claims({"methods": methods, "sets": {"senseval2": counts}})

    claims = found(["first sense", "layer 0", "layer 1", "layer 2"], [650, 500, 630, 670])
    assert [claim.verdict for claim in claims] == [HOLDS, HOLDS, HOLDS]
    assert claims[0].evidence == "layer 2 67.0, layer 1 63.0: +4.00 ± 0.63"  # sqrt(40) / 1000
    assert found(["first sense", "layer 0", "layer 1"], [650, 500, 630])[0].verdict == UNTESTED
    methods = ["first sense", *(f"layer {layer}" for layer in range(12))]
    assert "layer 11 65.0, layer 1 63.0" in found(methods, [640, 500, 630, *[640] * 9, 650])[0].evidence


def test_a_word_of_one_sense_is_no_test() -> None:
    def verdict(senses_of_uses: dict[str, int]) -> str:
        uses = {"senses": senses_of_uses, "nearest": [0.4, 1.0], "most frequent": 0.7}
        (claim,) = neighbours.claims({"word": "play", "uses": uses})
        return claim.verdict

    assert verdict({"play%1:10:01::": 7, "play%1:04:00::": 3}) == HOLDS
    assert verdict({"play%1:10:01::": 10}) == UNTESTED
    assert neighbours.claims({"word": "play", "uses": None})[0].verdict == UNTESTED
