"""Who asks, and how often: users are known by the token of a program or the cookie of a browser.

A token is never read from the address: those end up in logs, histories and `Referer`.

Rates are kept in token buckets of our own. `limits` has windows instead of buckets, takes no clock, and its
memory storage keeps every key of a window, so that requests from many addresses take memory without bound;
it also locks and runs a timer thread, and here everything is on one loop.
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
_REMEDY = "send one in the header Authorization, as Bearer, or log in at /login"
_UNKNOWN = "this one is unknown, expired or revoked; whoever runs the server can make another"


class Identity:
    """Puts the user and the token into `request.state`; None where nobody said who they are.

    A token that nobody knows is refused at once. A cookie that nobody knows any more is as good as none, so
    that its browser can log in again. Where the database does not say who it is, what is for anybody is still
    answered: the page, which can say so, and whether the process lives.
    """

    def __init__(self, app: ASGIApp, service: Service, strangers: TokenBuckets) -> None:
        self._app = app
        self._service = service
        self._strangers = strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._recognise(scope)
        with acting_as(_who_acts(scope)):  # guard: the log says who did what
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
                if not is_public_route(scope):  # guard: nobody is let in whom nobody could look up
                    raise
                return
        if found is not None:
            state["user"], state["token"] = found
            state["secret"] = offered
        elif program:
            remedy = _UNKNOWN if offered else _REMEDY
            refuse_stranger(self._strangers, address_of(scope), remedy)


def refuse_stranger(strangers: TokenBuckets, address: str, remedy: str = _UNKNOWN) -> NoReturn:
    """`NotAuthenticated`, by default for who sent a token; `TooManyRequests` for who tries again and again.

    Only who is wrong is held up: somebody with a good token at the same address is not.
    """
    strangers.take(address)  # guard: nobody tries one after the other
    raise NotAuthenticated(remedy)


def _who_acts(scope: Scope) -> str | None:
    """The user who changes something. What is found out while somebody looks is not their doing."""
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
    # Another server at this host can plant a second one; whose is whose cannot be told.
    return found[0] if len(found) == 1 else None


class RateLimit:
    """Takes one from the bucket of the user, or of the address without a user. `TooManyRequests`."""

    def __init__(self, app: ASGIApp, buckets: TokenBuckets) -> None:
        self._app = app
        self._buckets = buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            user = state_of(scope).get("user")
            self._buckets.take(f"address {address_of(scope)}" if user is None else f"user {user.id}")
        await self._app(scope, receive, send)


class TokenBuckets:
    """A token bucket for each who asks. At most `at_most` are kept; who asked longest ago is forgotten first.

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
        """Takes one; `TooManyRequests` says when there is one again."""
        now = self._clock()
        level, at = self._levels.pop(who, (self._size, now))
        level = min(self._size, level + max(0.0, now - at) * self._per_second)
        enough = level >= 1.0
        self._levels[who] = (level - 1.0 if enough else level, now)
        if len(self._levels) > self._at_most:  # guard: many who ask once each take no memory for ever
            self._levels.popitem(last=False)
        if not enough:  # guard: nobody asks more often than allowed
            raise TooManyRequests((1.0 - level) / self._per_second)

    def __len__(self) -> int:
        return len(self._levels)
