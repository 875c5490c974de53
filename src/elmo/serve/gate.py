"""EVERY REQUEST passes here first: its key, the size of its body and the time it takes to arrive; it is counted.

An ASGI application around another one, so that nothing of a request that is refused here is parsed.
"""

import asyncio
import hmac
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmo.serve.errors import RefusedError
from elmo.serve.limits import Limits
from elmo.serve.metrics import Metrics

OPEN = ("/", "/health", "/page")  # need no key: they tell nothing that is secret


class Gate:
    """Checks and counts the requests of an app."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, key: str | None) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics
        self.key = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: by a refusal, or through the app."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin = time.perf_counter()
        status = 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._check_key(scope)
            body = await self._body(scope, receive)
        except RefusedError as refused:
            await refused.response()(scope, receive, counted)
        else:
            await self.app(scope, _replay(body, receive), counted)
        finally:
            path = getattr(scope.get("route"), "path", "other")  # not the path itself: it may be anything
            self.metrics.answered(path, status, time.perf_counter() - begin)

    def _check_key(self, scope: Scope) -> None:
        path: str = scope["path"]
        if self.key is None or path in OPEN or path.startswith("/page/"):
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, self.key):
            expected = "expected the header Authorization: Bearer KEY with the key of this server"
            found = "the key is wrong" if given else "there is no key"
            raise RefusedError(401, f"{found}; {expected}", {"WWW-Authenticate": "Bearer"})

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the body, but never more of it than is allowed."""
        length = dict(scope["headers"]).get(b"content-length", b"0")
        most = self.limits.body_bytes
        if not length.isdigit() or int(length) > most:
            raise _too_large(most)
        chunks, size = [], 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                more = True
                while more:
                    message: Any = await receive()
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    if size > most:
                        raise _too_large(most)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RefusedError(408, f"the body did not arrive within {self.limits.seconds:g} s") from None
        return b"".join(chunks)


def _too_large(most: int) -> RefusedError:
    return RefusedError(413, f"the body has more than {most:,} bytes; send less text in one request")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once, and then what comes after it: that the client has gone."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
