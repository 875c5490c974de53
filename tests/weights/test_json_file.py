"""JSON of untrusted files: one line for each way in which it can be wrong."""

from pathlib import Path

import pytest

from elmo.errors import WeightsError
from elmo.weights import json_file
from elmo.weights.json_file import read_json


def test_an_object_is_read_also_after_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for data in (b'{"a": [1, "\xc3\xa9"]}', b'\xef\xbb\xbf{"a": [1, "\xc3\xa9"]}'):
        path.write_bytes(data)
        assert read_json(path) == {"a": [1, "é"]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "expected a JSON object, found list"),
        (b"[" * 200_000, "is nested too deeply"),
    ],
)
def test_another_content_is_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=rf"^.*config\.json: {message}") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_BYTES", 10)
    path = tmp_path / "config.json"
    path.write_bytes(b'{"a": 123}')
    assert read_json(path) == {"a": 123}
    path.write_bytes(b'{"a": 1234}')
    with pytest.raises(WeightsError, match="has more than 10 bytes; expected the config or options of a model"):
        read_json(path)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(WeightsError, match=r"cannot be read \(.*\); expected a JSON file"):
            read_json(path)
