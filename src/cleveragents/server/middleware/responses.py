"""Parts of every response: a request id, security headers, a log line, and a problem on failure.

The log line has the path without its query, which may contain private data, and no headers.
"""

from __future__ import annotations

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cleveragents.core.clock import Clock
from cleveragents.core.errors import CleverAgentsError, Fault
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.server.middleware.wire import address_of, is_api, state_of
from cleveragents.server.problems import Refused, internal_problem, problem_of

__all__ = ["CONTENT_SECURITY_POLICY", "RequestLog", "SecurityHeaders"]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ALWAYS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class RequestLog:
    """Assigns request ids, turns errors into problems, and logs one line per request.

    A response reveals nothing about the implementation: an unexpected error shows only the request id, and
    the traceback is in the log.
    """

    def __init__(self, app: ASGIApp, clock: Clock, identifiers: IdentifierSource) -> None:
        self._app = app
        self._clock = clock
        self._identifiers = identifiers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock.monotonic()
        request_id = self._identifiers.new()
        state_of(scope)["request_id"] = request_id
        sending = _Numbered(send, request_id)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._answered(scope, receive, sending)
            finally:
                _log(scope, sending.status, self._clock.monotonic() - began)

    async def _answered(self, scope: Scope, receive: Receive, sending: _Numbered) -> None:
        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            meant = isinstance(error, (CleverAgentsError, Refused)) and not isinstance(error, Fault)
            if not meant:
                structlog.get_logger().exception("server.failed")
            if sending.status is not None:
                # Part of the response was sent: cut the connection, so that it does not pass for a whole one.
                raise
            answer = internal_problem(sending.request_id, error)
            if isinstance(error, (CleverAgentsError, Refused)) and meant:
                answer = problem_of(error)
            await answer(scope, receive, sending)


class _Numbered:
    """Forwards a response with the request id, and remembers its status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            number = (b"x-request-id", self.request_id.encode())
            message = {**message, "headers": [*message.get("headers", ()), number]}
        await self._send(message)


def _log(scope: Scope, status: int | None, seconds: float) -> None:
    user = state_of(scope).get("user")
    parts = scope.get("path_params") or {}
    structlog.get_logger().info(
        "server.request",
        method=scope["method"],
        path=scope["path"],
        status=status,
        milliseconds=round(seconds * 1000, 1),
        user=None if user is None else user.name,
        address=address_of(scope),
        **{name: parts[name] for name in ("plan_id", "job_id") if name in parts},
    )


class SecurityHeaders:
    """Tells browsers to run only our scripts, to refuse foreign frames, and not to guess types.

    Caches do not store responses of the API unless the route allows it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers[name] = value
                if is_api(scope):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, answer)
