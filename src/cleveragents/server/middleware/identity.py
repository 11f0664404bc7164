"""Authentication and rate limits. Programs authenticate with a token, browsers with a cookie.

A token is never read from the address, because addresses end up in logs, histories and `Referer`.

The token buckets are our own code. The library `limits` has windows instead of buckets, accepts no clock, and
its memory storage keeps every key of a window, so that requests from many addresses take unbounded memory. It
also uses locks and a timer thread, which a single event loop does not need.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from cleveragents.access.model.user import TokenKind
from cleveragents.core.errors import (
    DatabaseFailed,
    DatabaseUnusable,
    NotAuthenticated,
    TooManyRequests,
    Unavailable,
)
from cleveragents.core.identifiers import acting_as
from cleveragents.server.middleware.wire import (
    SAFE_METHODS,
    address_of,
    header,
    is_public_route,
    state_of,
)

if TYPE_CHECKING:
    from cleveragents.server.service import Service

__all__ = ["COOKIE", "Identity", "RateLimit", "TokenBuckets", "refuse_stranger"]

COOKIE = "cleveragents_session"
_REMEDY = "send a token in the header Authorization as Bearer, or log in at /login"
_UNKNOWN = "this token is unknown, expired or revoked; ask an admin for a new one"


class Identity:
    """Puts the user and the token into `request.state`; None for a request without credentials.

    An unknown token is refused. An unknown cookie is ignored, so that the browser can log in again. If the
    database does not respond, only public addresses work: the page, which shows the error, and the health
    check.
    """

    def __init__(self, app: ASGIApp, service: Service, strangers: TokenBuckets) -> None:
        self._app = app
        self._service = service
        self._strangers = strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._recognise(scope)
        with acting_as(_who_acts(scope)):  # guard: the log names the acting user
            await self._app(scope, receive, send)

    async def _recognise(self, scope: Scope) -> None:
        state = state_of(scope)
        state["user"] = state["token"] = state["secret"] = None
        program = any(name == b"authorization" for name, _ in scope["headers"])
        offered = _bearer(scope) if program else _cookie(scope)
        kind = TokenKind.PROGRAM if program else TokenKind.BROWSER
        found = None
        if offered:
            container = self._service.container
            try:
                found = await run_in_threadpool(
                    lambda: container.users.known_by(offered, kind, now=container.clock.now())
                )
            except (Unavailable, DatabaseFailed, DatabaseUnusable):
                if not is_public_route(scope):  # guard: without a lookup there is no access
                    raise
                return
        if found is not None:
            state["user"], state["token"] = found
            state["secret"] = offered
        elif program:
            remedy = _UNKNOWN if offered else _REMEDY
            refuse_stranger(self._strangers, address_of(scope), remedy)


def refuse_stranger(strangers: TokenBuckets, address: str, remedy: str = _UNKNOWN) -> NoReturn:
    """Raise `NotAuthenticated`, or `TooManyRequests` after too many attempts.

    Only failures count: a valid token from the same address is not delayed.
    """
    strangers.take(address)  # guard: no guessing of tokens
    raise NotAuthenticated(remedy)


def _who_acts(scope: Scope) -> str | None:
    """Return the acting user of a request that changes something. Reads have no acting user."""
    user = state_of(scope).get("user") if scope["type"] == "http" else None
    return None if user is None or scope["method"] in SAFE_METHODS else user.name


def _bearer(scope: Scope) -> str | None:
    scheme, _, token = (header(scope, b"authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _cookie(scope: Scope) -> str | None:
    pairs = [
        pair.strip().partition("=")
        for key, value in scope["headers"]
        if key == b"cookie"
        for pair in value.decode("latin-1").split(";")
    ]
    found = [value.strip() for name, _, value in pairs if name == COOKIE]
    # Another server at this host can plant a second cookie; the two are indistinguishable.
    return found[0] if len(found) == 1 else None


class RateLimit:
    """Takes a token from the bucket of the user, or else of the address. Raises `TooManyRequests`."""

    def __init__(self, app: ASGIApp, buckets: TokenBuckets) -> None:
        self._app = app
        self._buckets = buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            user = state_of(scope).get("user")
            self._buckets.take(f"address {address_of(scope)}" if user is None else f"user {user.id}")
        await self._app(scope, receive, send)


class TokenBuckets:
    """A token bucket for each user or address. At most `at_most` buckets are kept; the least recently used
    is dropped first.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(
        self, per_minute: int, clock: Callable[[], float], *, burst: int | None = None, at_most: int = 10_000
    ) -> None:
        self._size = float(burst or per_minute)
        self._per_second = per_minute / 60.0
        self._clock = clock
        self._at_most = at_most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Take one token. Raises `TooManyRequests` with the time until the next token."""
        now = self._clock()
        level, at = self._levels.pop(who, (self._size, now))
        level = min(self._size, level + max(0.0, now - at) * self._per_second)
        enough = level >= 1.0
        self._levels[who] = (level - 1.0 if enough else level, now)
        if len(self._levels) > self._at_most:  # guard: many one-time callers must not fill the memory
            self._levels.popitem(last=False)
        if not enough:  # guard: the rate limit
            raise TooManyRequests((1.0 - level) / self._per_second)

    def __len__(self) -> int:
        return len(self._levels)
