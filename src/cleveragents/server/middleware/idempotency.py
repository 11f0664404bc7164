"""A POST that is sent again, because its answer was lost, is answered again and not carried out again.

Only what was done is kept. A refusal changed nothing, so the same request may succeed later.

A server that is killed in the middle leaves a key without an answer, and so does a database that breaks off
in the middle. Routes that make something (a plan, a token, a correction) hand the claim on to the store,
which keeps what was made together with the key: the next to ask finds that at once, and nothing is there
twice, also if the first try was only slow. Of all other requests nobody knows how far they came: they are
under way for everybody until the store takes them for dead, and are then carried out on what is there by
then. They add nothing to it: what was done already is refused, or done to no effect.
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
"""A route sets this in `request.state` if its answer is a refusal that its status does not tell."""

_CLAIM = "claim"
_KEEP_NO_ANSWER = "keep_no_answer"
_SECRET = (
    409,
    "answered-once",
    "this was done before; its answer held a secret, which is told once and not kept: if it never came, "
    "revoke what was made, and ask with another key",
)
_KEY = re.compile(r"[!-~]{1,200}")
_LARGEST = 1_000_000
_REPLAYED = "Idempotent-Replayed"


def claim_of(request: Request) -> IdempotencyClaim | None:
    """The claim under which the request is carried out, for whoever makes something for it; None for a
    request without a key."""
    claim: IdempotencyClaim | None = getattr(request.state, _CLAIM, None)
    return claim


Claimed = Annotated[IdempotencyClaim | None, Depends(claim_of)]


def shown_once(request: Request) -> IdempotencyClaim | None:
    """As `claim_of`, for a route whose answer holds a secret: it is given once, and not kept. `Refused` where
    the secret was made before: it was told then, or nobody can learn it any more."""
    setattr(request.state, _KEEP_NO_ANSWER, True)
    claim = claim_of(request)
    if claim is not None and claim.made is not None:  # guard: what was made is not made again
        raise Refused(*_SECRET)
    return claim


class Idempotency:
    """Looks the key up before the route runs, and keeps what the route answered."""

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
            raise Refused(422, "invalid-request", "an Idempotency-Key has 1 to 200 visible characters")
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
            if not state_of(scope).get(UNSURE):  # guard: what may have been done is not done again at once
                await run_in_threadpool(store.release, claim)
        else:
            if state_of(scope).get(_KEEP_NO_ANSWER):
                answer = _secret_answer()
            await run_in_threadpool(store.finish, claim, answer)
        await recording.complete()


class _Recorded:
    """Sends on what is answered, and keeps a copy as long as it may be one to keep. The end is held back
    until it is: who has the whole answer can rely on it."""

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
        if status >= 400 or streams:  # guard: what was refused may be tried again
            self._keeps = False

    def _add(self, body: bytes) -> None:
        if not self._keeps:
            return
        self._body += body
        if len(self._body) > _LARGEST:
            self._keeps = False
            self._body.clear()

    def answer(self) -> StoredResponse | None:
        """What is to be kept; None if nothing is."""
        if self._last is None:
            return None
        return StoredResponse(self._status, self._media_type, bytes(self._body), self._location)

    async def complete(self) -> None:
        """Sends what was held back."""
        if self._last is not None:
            await self._send(self._last)


class _Replayed:
    """Gives the body that was read already, then whatever comes."""

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
    """Tells requests apart. With another role in any project it is another request: what was answered before
    is not shown again."""
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
            raise Refused(400, "cut-off", "the request ended before all of it had come")
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)
