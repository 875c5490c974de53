"""The length of messages."""

import pytest

from elmo.errors import LONGEST, DataError, ElmoError


def test_a_short_message_is_kept() -> None:
    assert str(DataError("x" * LONGEST)) == "x" * LONGEST
    assert str(ElmoError()) == ""


@pytest.mark.parametrize("size", [LONGEST + 1, 10**6])
def test_the_middle_of_a_long_message_is_left_out(size: int) -> None:
    message = str(DataError(f"file.txt:3: found {'9' * size}; expected a number"))
    assert len(message) == LONGEST
    assert message.startswith("file.txt:3: found 999")
    assert "9 … 9" in message
    assert message.endswith("999; expected a number")
