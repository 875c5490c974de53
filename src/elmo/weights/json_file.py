"""A CONFIG OR OPTIONS FILE ─▶ A DICTIONARY. Untrusted files are safe to read: size and depth are limited."""

import json
from pathlib import Path
from typing import Any

from elmo.errors import WeightsError

MAX_BYTES = 4 << 20  # a model's config has a few hundred bytes
LONGEST_NAME = 255  # bytes of the name of another file in it; systems raise an error for a longer one


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # st_size says nothing about a device
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror}); expected a JSON file") from None
    if len(data) > MAX_BYTES:
        raise WeightsError(f"{path}: has more than {MAX_BYTES:,} bytes; expected the config or options of a model")
    try:
        values = json.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise WeightsError(f"{path}: is nested too deeply; expected the config or options of a model") from None
    except ValueError as error:
        raise WeightsError(f"{path}: not JSON ({error})") from None
    if not isinstance(values, dict):
        raise WeightsError(f"{path}: expected a JSON object, found {type(values).__name__}")
    return values
