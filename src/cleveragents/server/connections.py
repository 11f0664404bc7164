"""Limits on the number of open connections, and on the time that a peer may take.

uvicorn closes idle keep-alive connections and limits the size of request headers. It has no deadline for
headers, for a body that no route reads, or for a peer that does not read its response. Its
`limit_concurrency` counts requests, not connections. This module adds the missing limits. The deadline for
bodies that a route reads is in `middleware.body`, which can answer with a problem and a request id.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cleveragents.server.middleware.wire import address_of
from cleveragents.server.problems import problem

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse
    from uvicorn.server import ServerState

    from cleveragents.config.service_settings import ServerSettings

__all__ = ["Connections", "HttpConnection", "ServingConfig"]

_TRUSTED_PROXIES = ("127.0.0.1", "::1")
_GRACE_SECONDS = 10
_DISCARD_SECONDS = 5.0
_CHECK_SECONDS = 1.0
_CHECKS_PER_DEADLINE = 5

Stage = Literal["headers", "discard", "response", "route"]
"""The stages of a connection: waiting for request headers, for the end of an unread body, for a peer that
reads its response, or for a route.
"""


class ServingConfig(uvicorn.Config):
    """The configuration of uvicorn for our application, with limits on connections."""

    def __init__(
        self, app: FastAPI, settings: ServerSettings, *, lifespan: Literal["on", "off"] = "on"
    ) -> None:
        self.connections = Connections(settings, app.state.meters.connection_closed)
        super().__init__(
            app,
            http=HttpConnection,
            access_log=False,
            log_config=None,
            server_header=False,
            ws="none",
            lifespan=lifespan,
            # A proxy on this machine names the client, and whether it uses https.
            proxy_headers=True,
            forwarded_allow_ips=",".join(_TRUSTED_PROXIES),
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )


class HttpConnection(H11Protocol):
    """An HTTP/1.1 connection that is closed when its peer is too slow.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(
        self,
        config: ServingConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._open = config.connections
        self._begun = False
        self._since = self.loop.time()
        self._seen: tuple[Stage, object, bool] | None = None
        self._unsent = 0

    @property
    def address(self) -> str | None:
        """The peer's address; None for a proxy on this machine, which forwards requests of many clients."""
        if self.client is not None and self.client[0] in _TRUSTED_PROXIES:
            return None
        return address_of({"client": self.client})

    @property
    def is_authenticated(self) -> bool:
        """Whether a request of an authenticated user is in progress."""
        return self._is_answering() and self.cycle.scope["state"].get("user") is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self._open.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._begun = True
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._begun = False
        self._open.renew(self)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer 400 to input that is not HTTP/1.1, or has headers over 16 KiB."""
        self.refuse(
            problem(400, "invalid-request", "invalid request: not HTTP/1.1, or headers that are too long")
        )

    def refuse(self, answer: JSONResponse) -> None:
        """Send `answer` instead of the application's response, unless that response has begun, and
        disconnect.
        """
        if self.cycle is not None:
            # The route of a request in progress must send nothing more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [*self.server_state.default_headers, *answer.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=answer.status_code, headers=headers),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def check(self, now: float, seconds: dict[Stage, float]) -> Stage | None:
        """Close the connection if its peer is too slow. Return the stage of the closed
        connection, or None.
        """
        unsent = self.transport.get_write_buffer_size()
        seen = self._stage(unsent)
        if seen != self._seen or unsent < self._unsent:
            self._since = now
        self._seen, self._unsent = seen, unsent
        stage = seen[0]
        if now - self._since < seconds.get(stage, float("inf")):
            return None
        if stage == "headers" and self._begun:
            detail = f"the request headers did not arrive within {seconds[stage]:g} s; send the request again"
            self.refuse(problem(408, "request-timeout", detail))
        elif stage == "response":
            self.transport.abort()  # guard: closing would wait until the peer has read everything
        else:
            self.transport.close()
        return stage

    def _is_answering(self) -> bool:
        if self.cycle is None:
            return False
        return not self.cycle.response_complete

    def _stage(self, unsent: int) -> tuple[Stage, object, bool]:
        if unsent:
            return "response", None, False
        if self._is_answering():
            return "route", self.cycle, False
        if self.conn.their_state is h11.SEND_BODY:
            return "discard", self.cycle, False
        return "headers", self.cycle, self._begun


class Connections:
    """The open connections of a server.

    At a limit, a new connection replaces the connection that has been idle the longest. If every connection
    serves a request of an authenticated user, the new connection is refused. So a flood of connections
    without a token cannot lock users out.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(self, settings: ServerSettings, on_close: Callable[[str], None]) -> None:
        self._most = min(settings.connections, _descriptors() // 2)
        self._most_of_address = settings.connections_per_address
        self._seconds: dict[Stage, float] = {
            "headers": settings.header_seconds,
            "discard": min(_DISCARD_SECONDS, settings.body_seconds),
            "response": settings.stalled_seconds,
        }
        shortest = min(self._seconds.values())
        self._check_seconds = min(_CHECK_SECONDS, shortest / _CHECKS_PER_DEADLINE)
        self._on_close = on_close
        # Both are in the order of the last request: a dict keeps it.
        self._all: dict[HttpConnection, None] = {}
        self._of_address: dict[str, dict[HttpConnection, None]] = {}
        self._checking = False

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, connection: HttpConnection) -> None:
        """Count a new connection; at a limit, close another connection or the new one."""
        address = connection.address
        full = len(self._all) >= self._most and not self._evict(self._all)
        if address is not None:
            theirs = self._of_address.get(address, {})
            full = full or (len(theirs) >= self._most_of_address and not self._evict(theirs))
        if full:
            self._close(connection, "refused")
            return
        self._add(connection, address)
        if not self._checking:
            self._checking = True
            connection.loop.call_later(self._check_seconds, self._check, connection.loop)

    def renew(self, connection: HttpConnection) -> None:
        """Note that a request was answered."""
        if connection in self._all:
            self.forget(connection)
            self._add(connection, connection.address)

    def forget(self, connection: HttpConnection) -> None:
        """Stop counting a connection. A second call is harmless."""
        self._all.pop(connection, None)
        address = connection.address
        if address in self._of_address:
            self._of_address[address].pop(connection, None)
            if not self._of_address[address]:
                del self._of_address[address]

    def _add(self, connection: HttpConnection, address: str | None) -> None:
        self._all[connection] = None
        if address is not None:
            self._of_address.setdefault(address, {})[connection] = None

    def _evict(self, group: dict[HttpConnection, None]) -> bool:
        """Close the connection that has been idle the longest.

        Return False if all connections serve requests of authenticated users.
        """
        found = next((one for one in group if not one.is_authenticated), None)
        if found is None:
            return False
        self.forget(found)
        self._close(found, "evicted")
        return True

    def _close(self, connection: HttpConnection, reason: str) -> None:
        detail = "too many connections; try again in a few seconds"
        connection.refuse(problem(503, "too-many-connections", detail, headers={"Retry-After": "5"}))
        connection.transport.abort()  # guard: a peer that reads nothing must not keep it open
        self._on_close(reason)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self._all):
            stage = connection.check(now, self._seconds)
            if stage is not None:
                self._on_close(f"{stage}-timeout")
        self._checking = bool(self._all)
        if self._checking:
            loop.call_later(self._check_seconds, self._check, loop)


def _descriptors() -> int:
    """Return the maximum number of open files and connections of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft
