"""Idempotency keys: a repeated POST gets the stored response and has no second effect.

Only successful responses are stored. A refusal changed nothing, so the same request may succeed later.

A killed server or a broken database connection leaves a key without a response. Routes that create something
(a plan, a token, a correction) pass the claim on the key to the store, which stores the created object
together with the key. So a retry finds the object immediately, and nothing is created twice, even if the
first attempt was only slow. For all other requests, the progress of the first attempt is unknown: a retry
waits until the store considers that attempt dead, then runs. This is safe, because these requests create no
object: a second attempt is refused or has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cleveragents.server.middleware.wire import header, state_of
from cleveragents.server.problems import UNSURE, Refused, problem
from cleveragents.storage.idempotency import IdempotencyClaim, StoredResponse

if TYPE_CHECKING:
    from cleveragents.access.model.user import User
    from cleveragents.server.service import Service

__all__ = ["REFUSED", "Claimed", "Idempotency", "claim_of", "shown_once"]

REFUSED = "refused"
"""Set in `request.state` by a route whose response is a refusal despite its status."""

_CLAIM = "claim"
_KEEP_NO_ANSWER = "keep_no_answer"
_SECRET = (
    409,
    "answered-once",
    "already done: the response contained a secret, which is sent once and never stored; if you did not "
    "receive it, revoke the token that was created, and repeat the request with another key",
)
_KEY = re.compile(r"[!-~]{1,200}")
_LARGEST = 1_000_000
_REPLAYED = "Idempotent-Replayed"


def claim_of(request: Request) -> IdempotencyClaim | None:
    """Return the claim of the request, for routes that create something; None for a request without a key."""
    claim: IdempotencyClaim | None = getattr(request.state, _CLAIM, None)
    return claim


Claimed = Annotated[IdempotencyClaim | None, Depends(claim_of)]


def shown_once(request: Request) -> IdempotencyClaim | None:
    """Return the claim of a request whose response contains a secret. The secret is sent once and not stored.

    Raises `Refused` if an earlier attempt created the secret, which cannot be recovered.
    """
    setattr(request.state, _KEEP_NO_ANSWER, True)
    claim = claim_of(request)
    if claim is not None and claim.made is not None:  # guard: nothing is created twice
        raise Refused(*_SECRET)
    return claim


class Idempotency:
    """Looks up the key before the route runs, and stores the response."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = state_of(scope).get("user") if scope["type"] == "http" else None
        named = user is not None and any(name == b"idempotency-key" for name, _ in scope["headers"])
        if user is None or not named or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        key = header(scope, b"idempotency-key") or ""
        if not _KEY.fullmatch(key):
            raise Refused(
                422, "invalid-request", "invalid Idempotency-Key: use 1 to 200 visible ASCII characters"
            )
        body = await _read(receive)
        container = self._service.container
        store, request = container.answers, _fingerprint(scope, user, body)
        begun = await run_in_threadpool(lambda: store.begin(user.id, key, request, now=container.clock.now()))
        if isinstance(begun, StoredResponse):
            headers = {_REPLAYED: "true", **({"Location": begun.location} if begun.location else {})}
            again = Response(begun.body, begun.status, headers, begun.media_type)
            await again(scope, receive, send)
            return
        state_of(scope)[_CLAIM] = begun
        await self._carry_out(scope, _Replayed(body, receive), send, begun)

    async def _carry_out(self, scope: Scope, receive: Receive, send: Send, claim: IdempotencyClaim) -> None:
        store = self._service.container.answers
        recording = _Recorded(send)
        try:
            await self._app(scope, receive, recording)
        except Exception:
            await run_in_threadpool(store.release, claim)
            raise
        answer = None if state_of(scope).get(REFUSED) else recording.answer()
        if answer is None:
            if not state_of(scope).get(UNSURE):  # guard: a request that may have taken effect is not repeated
                await run_in_threadpool(store.release, claim)
        else:
            if state_of(scope).get(_KEEP_NO_ANSWER):
                answer = _secret_answer()
            await run_in_threadpool(store.finish, claim, answer)
        await recording.complete()


class _Recorded:
    """Forwards a response and keeps a copy if it may be stored. The end of the response is sent only after
    the response is stored, so that a client which received it completely can rely on the stored copy.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._status = 0
        self._media_type = ""
        self._location: str | None = None
        self._body = bytearray()
        self._keeps = False
        self._last: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            self._start(int(message["status"]), headers)
        elif message["type"] == "http.response.body":
            self._add(message.get("body", b""))
            if self._keeps and not message.get("more_body", False):
                self._last = message
                return
        await self._send(message)

    def _start(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status
        self._media_type = headers.get(b"content-type", b"").decode("latin-1")
        place = headers.get(b"location")
        self._location = None if place is None else place.decode("latin-1")
        streams = self._media_type.startswith("text/event-stream")
        self._keeps = True
        if status >= 400 or streams:  # guard: a refused request may be tried again
            self._keeps = False

    def _add(self, body: bytes) -> None:
        if not self._keeps:
            return
        self._body += body
        if len(self._body) > _LARGEST:
            self._keeps = False
            self._body.clear()

    def answer(self) -> StoredResponse | None:
        """Return the response to store, or None."""
        if self._last is None:
            return None
        return StoredResponse(self._status, self._media_type, bytes(self._body), self._location)

    async def complete(self) -> None:
        """Send the end of the response."""
        if self._last is not None:
            await self._send(self._last)


class _Replayed:
    """A `receive` that returns the body that was already read, then further messages."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _secret_answer() -> StoredResponse:
    response = problem(*_SECRET)
    return StoredResponse(response.status_code, str(response.media_type), bytes(response.body))


def _fingerprint(scope: Scope, user: User, body: bytes) -> str:
    """Return a fingerprint of the request. The fingerprint includes the roles of the user, so that a stored
    response is not repeated after a change of role.
    """
    roles = (f"{project}={role.value}" for project, role in sorted(user.projects.items()))
    asked = (scope["method"], scope["path"], user.role.value, *roles)
    digest = sha256()
    for part in (*(text.encode() for text in asked), scope.get("query_string", b""), body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "cut-off", "the request ended too early")
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)
