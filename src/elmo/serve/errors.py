"""ANSWERS AND REFUSALS ─▶ JSON: every answer that is not 200 has one form, which OpenAI's clients read as well.

    {"error": {"message": "…", "type": "too_many_tokens", "param": null, "code": null}}
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic_core import to_json
from starlette.responses import Response

TYPES = {
    400: "malformed_body",
    401: "wrong_key",
    404: "not_found",
    405: "method_not_allowed",
    408: "slow_body",
    413: "body_too_large",
    415: "wrong_content_type",
    422: "invalid_request",
    429: "too_many_requests",
    500: "internal_error",
    503: "unavailable",
}

AT_ONCE = 1 << 16  # numbers that are written without a pause: it takes a few milliseconds


class RefusedError(Exception):
    """A request that gets no answer: the HTTP status and one line that says why."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers

    def response(self) -> Response:
        """Return the HTTP response."""
        return error_response(self.status, self.message, self.headers)


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of the form above."""
    error = {"message": message, "type": TYPES.get(status, "error"), "param": None, "code": None}
    return json_response({"error": error}, status, headers)


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; numbers are written exactly. Bytes are JSON already."""
    body = content if isinstance(content, bytes) else to_json(content)
    return Response(body, status, dict(headers) if headers else None, media_type="application/json")


def json_of(content: Any) -> bytes:
    """Write JSON in pieces of at most `AT_ONCE` numbers, between which other threads run. Arrays become lists."""
    if isinstance(content, dict):
        return b"{" + b",".join(to_json(name) + b":" + json_of(value) for name, value in content.items()) + b"}"
    if isinstance(content, list) or (isinstance(content, np.ndarray) and content.ndim > 1 and content.size > AT_ONCE):
        return b"[" + b",".join(map(json_of, content)) + b"]"
    return to_json(content.tolist() if isinstance(content, np.ndarray) else content)


def validation_message(errors: Sequence[Any]) -> str:
    """Return one line for what pydantic found wrong: the place and the reason of the first three errors."""
    if errors and errors[0]["type"] == "json_invalid":
        return f"the body is not JSON: {errors[0]['ctx']['error']} at character {errors[0]['loc'][-1]}"
    shown = []
    for error in errors[:3]:
        place = ".".join(str(part) for part in error["loc"] if part != "body")
        reason = error["msg"][:1].lower() + error["msg"][1:]
        shown.append(f"{place}: {reason}" if place else reason)
    more = len(errors) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
