"""How often one user, or one address without a user, may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from cleveragents.server.middleware.wire import address_of, state_of

if TYPE_CHECKING:
    from cleveragents.server.buckets import Buckets

__all__ = ["RateGate"]


class RateGate:
    """Takes one from the bucket of who asks; `TooManyRequests`."""

    def __init__(self, app: ASGIApp, buckets: Buckets) -> None:
        self._app = app
        self._buckets = buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            user = state_of(scope).get("user")
            self._buckets.take(f"address {address_of(scope)}" if user is None else f"user {user.id}")
        await self._app(scope, receive, send)
