"""Numbers with their unit."""

import pytest

from elmo.messages import counted


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 tokens"), (1, "1 token"), (2, "2 tokens"), (1_234_567, "1,234,567 tokens")]
)
def test_only_one_is_singular(count: int, shown: str) -> None:
    assert counted(count, "token") == shown
