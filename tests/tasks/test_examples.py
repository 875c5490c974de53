"""Examples: a fraction of them, in whole groups where they are grouped, and the fingerprint of data."""

from dataclasses import dataclass, replace

import pytest

from elmo.tasks.examples import Example, GroupedExamples, fingerprint, fraction
from tasks.small_ner import splits


def test_a_fraction_of_the_data() -> None:
    examples = [Example(((str(n),),)) for n in range(1000)]
    some = fraction(examples, 0.1, seed=0)
    assert len(set(some)) == 100
    assert some == fraction(examples, 0.1, seed=0) != fraction(examples, 0.1, seed=1)
    assert fraction(examples, 1.0, seed=0) == examples
    assert len(fraction(examples, 1e-9, seed=0)) == 1


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_fraction_of_grouped_examples_is_a_fraction_of_the_groups(share: float) -> None:
    """Every group is drawn with all its examples, also those that it shares with groups that are not drawn."""
    shared = Example((("a",),), "shared")
    groups = [[Example(((str(n),),), "own"), shared, Example((("all", str(n)),), "whole")] for n in range(50)]
    grouped = GroupedExamples(groups)
    assert list(grouped) == list(dict.fromkeys(example for group in groups for example in group))
    drawn = fraction(grouped, share, seed=3)
    numbers = {example.texts[0][0] for example in drawn if example.gold == "own"}
    assert len(numbers) == round(share * 50)
    assert set(drawn) == {example for group in groups if group[0].texts[0][0] in numbers for example in group}
    assert len(drawn) == 2 * len(numbers) + 1
    assert list(drawn) == list(fraction(grouped, share, seed=3)) != list(fraction(grouped, share, seed=4))
    assert fraction(grouped, 1.0, seed=3) is grouped


def test_data_have_a_fingerprint() -> None:
    parts = splits()
    example = parts["train"][0]
    others = [
        {**parts, "train": parts["train"][:-1]},
        {**parts, "train": [replace(example, gold=()), *parts["train"][1:]]},
        {**parts, "train": [replace(example, texts=(("Anna",),)), *parts["train"][1:]]},
        {**parts, "train": [replace(example, texts=(*example.texts, ("Anna",))), *parts["train"][1:]]},
        {**parts, "train": parts["train"][::-1]},
        {**parts, "dev": parts["test"], "test": parts["dev"]},
    ]
    assert len({fingerprint(some) for some in (parts, *others)}) == len(others) + 1
    assert fingerprint(parts) == fingerprint({name: list(examples) for name, examples in parts.items()})
    one, other = ({"train": [Example((("a",),), object())]} for _ in range(2))
    assert fingerprint(one) == fingerprint(other)  # an address is no content


@dataclass(frozen=True)
class WithPredicate(Example):
    predicate: int = 0


def test_the_fields_of_a_subclass_are_part_of_the_fingerprint() -> None:
    some = [{"train": [WithPredicate((("a", "b"),), "x", predicate)]} for predicate in (0, 1, 1)]
    found = [fingerprint(one) for one in some]
    assert found[0] != found[1] == found[2]
