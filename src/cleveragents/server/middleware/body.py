"""Limits on the size and the arrival time of request bodies.

The body of a turn may be larger by its attachments. This middleware runs after `identity`. The framework
reads a body before the route checks the token, so the body of a request without a token is limited to the
size of a login request.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cleveragents.models.model.attachment import MOST_ATTACHED_BYTES
from cleveragents.server.middleware.wire import header, state_of
from cleveragents.server.problems import Refused

if TYPE_CHECKING:
    from cleveragents.access.model.user import User

__all__ = ["MOST_ATTACHED_CHARACTERS", "UNAUTHENTICATED_BYTES", "BodyLimits"]

UNAUTHENTICATED_BYTES = 16 * 1024
"""The largest body of a request without a token or cookie."""

MOST_ATTACHED_CHARACTERS = -(-MOST_ATTACHED_BYTES // 3) * 4
"""The most characters of attachments, as base64."""

_TURN = re.compile(r"/api/conversations/[^/]+/turns")
_BEARABLE = 8
_BYTES_PER_SECOND = 1024
_DISCARD_SECONDS = 5.0
_CLOSE = {"Connection": "close"}
_UPLOADS = 2
_AGAIN_SECONDS = 5


class BodyLimits:
    """Refuses a body that is too large (413), too large for a request without a user (401), or that arrives
    too slowly (408). A user sends at most two large bodies with attachments at once (429).

    Not thread-safe: used on the server's loop.
    """

    def __init__(self, app: ASGIApp, limit: int, *, seconds: float) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds
        self._uploads: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        user: User | None = state_of(scope).get("user")
        too_large = self._too_large(scope, known=user is not None)
        said = header(scope, b"content-length") or "0"
        if not said.isdecimal() or int(said) > too_large.limit:  # guard: nothing of it is read
            raise too_large
        declared = int(said) or too_large.limit  # a chunked body declares no size
        if user is None or min(declared, too_large.limit) <= self._limit:
            await self._limited(scope, receive, send, too_large)
        else:
            with self._upload(user.id):
                await self._limited(scope, receive, send, too_large)

    @contextmanager
    def _upload(self, user_id: str) -> Iterator[None]:
        if self._uploads[user_id] >= _UPLOADS:  # guard: bounded memory, whatever one user sends
            detail = f"too many uploads: at most {_UPLOADS} at once; try again in {_AGAIN_SECONDS} s"
            raise Refused(429, "too-many-at-once", detail, {"Retry-After": str(_AGAIN_SECONDS), **_CLOSE})
        self._uploads[user_id] += 1
        try:
            yield
        finally:
            self._uploads -= Counter((user_id,))  # forgets a user without uploads

    async def _limited(self, scope: Scope, receive: Receive, send: Send, too_large: _TooLarge) -> None:
        body = _Body(receive, send, too_large, self._seconds)
        try:
            await self._app(scope, body.receive, body.send)
        except Exception:
            if body.refusal is None:
                raise
        if body.refusal is not None and not body.started:
            raise body.refusal

    def _too_large(self, scope: Scope, *, known: bool) -> _TooLarge:
        if known:
            is_turn = scope["method"] == "POST" and _TURN.fullmatch(scope["path"])
            attached = MOST_ATTACHED_CHARACTERS if is_turn else 0
            beside = f" and {attached:,} bytes of attachments" if attached else ""
            detail = f"the request body is larger than {self._limit:,} bytes (setting server.body_bytes)"
            return _TooLarge(413, "body-too-large", f"{detail}{beside}", self._limit + attached, known=True)
        limit = min(self._limit, UNAUTHENTICATED_BYTES)
        detail = (
            f"the request body is larger than {limit:,} bytes without a token; send a token in the header "
            "Authorization as Bearer, or log in at /login"
        )
        return _TooLarge(401, "not-authenticated", detail, limit, known=False)


class _TooLarge(Refused):
    def __init__(self, status: int, code: str, detail: str, limit: int, *, known: bool) -> None:
        super().__init__(status, code, detail, _CLOSE)
        self.limit = limit
        self.known = known


class _Stopped(Exception):
    """Ends the code that reads a refused body."""


class _Body:
    """The body of one request, and its response.

    After a refusal, the application can no longer send a response, because it would report the interrupted
    body as malformed.
    """

    def __init__(self, receive: Receive, send: Send, too_large: _TooLarge, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._too_large = too_large
        self._seconds = seconds
        self._deadline: float | None = None
        self._received = 0
        self._complete = False
        self.refusal: Refused | None = None
        self.started = False

    async def receive(self) -> Message:
        message = await self._next()
        if self._received > self._too_large.limit:  # guard: a chunked body declares no size
            self.refusal = self._too_large
            await self._discard()
            raise _Stopped
        return message

    async def _next(self) -> Message:
        """Return the next chunk. After the last chunk, wait for the client to disconnect."""
        if self._complete:
            return await self._receive()
        if self._deadline is None:
            self._deadline = _now() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self.refusal = self.refusal or self._too_slow()
            raise _Stopped from None
        size = len(message.get("body", b""))
        self._received += size
        if self._too_large.known:  # guard: a slow body without a token gets no extra time
            self._deadline += size / _BYTES_PER_SECOND
        self._complete = not message.get("more_body", False)
        return message

    async def _discard(self) -> None:
        """Read and drop the rest of the body for a while. If the connection were closed while the client
        sends, the client would lose the response.
        """
        bearable = self._too_large.limit * (1 + _BEARABLE)
        self._deadline = _now() + min(_DISCARD_SECONDS, self._seconds)
        while not self._complete and self._received < bearable:
            await self._next()

    def _too_slow(self) -> Refused:
        detail = (
            f"the request body did not arrive in time: got {self._received:,} bytes; send it again over a "
            "faster connection, or ask an admin to raise the setting server.body_seconds"
        )
        return Refused(408, "request-timeout", detail, _CLOSE)

    async def send(self, message: Message) -> None:
        if self.refusal is not None and not self.started:
            return
        self.started = True
        await self._send(message)


def _now() -> float:
    return asyncio.get_running_loop().time()
