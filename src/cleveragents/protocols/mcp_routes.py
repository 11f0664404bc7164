"""The MCP endpoint of a server, over streamable HTTP, for users with a token.

There are no sessions: nothing is lost when the server restarts, and any server of the same database can
answer each request. The tools act with the rights of the user who sent the request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cleveragents.core.errors import NotAuthenticated
from cleveragents.protocols.agent_requests import log_through_ours
from cleveragents.server.access import client_now
from cleveragents.server.middleware.idempotency import REFUSED
from cleveragents.server.problems import code_of, problem, status_of

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from cleveragents.api.client import Client, LocalClient

__all__ = ["PATH", "McpEndpoint", "is_installed", "routes"]

PATH = "/mcp"
"""The path of the endpoint."""

_REMEDY = "send the token as `Authorization: Bearer …`"
_USER: ContextVar[Callable[[], LocalClient | None]] = ContextVar("user of the MCP request")


def is_installed() -> bool:
    """Return whether the extra `mcp` is installed."""
    return find_spec("mcp") is not None


def routes() -> list[BaseRoute]:
    """Return the route of the endpoint. A client that asks for a stream of its own (GET) gets status 405, as
    the protocol specifies for servers without such streams.
    """
    from starlette.routing import Route

    @cache
    def server() -> MCPServer:  # at the first request: the SDK takes a second to load
        from cleveragents.protocols.mcp_server import McpServerOptions, server_for

        log_through_ours("mcp")
        with _kept_root_logger():
            return server_for(_client, McpServerOptions())

    return [Route(PATH, McpEndpoint(server), methods=["POST"])]


class McpEndpoint:
    """An ASGI application that answers the requests of users with a token. Stateless: any number of requests
    may run in parallel. `server` returns the MCP server, on the first request.
    """

    def __init__(self, server: Callable[[], MCPServer]) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        request = Request(scope)
        if getattr(request.state, "user", None) is None:  # guard: plans need a user
            error = NotAuthenticated(_REMEDY)
            await problem(status_of(error), code_of(error), str(error))(scope, receive, send)
            return
        setattr(request.state, REFUSED, True)  # the protocol has no idempotency keys: no answer is stored
        _USER.set(partial(client_now, request))
        server = self._server()
        # A manager serves one `run`, so each request makes its own: the tasks of a request end with it.
        # HostCheck and OriginCheck guard every route, so the SDK checks neither.
        server.streamable_http_app(stateless_http=True, host="")
        manager = server.session_manager
        async with manager.run():
            await manager.handle_request(scope, receive, send)


@contextmanager
def _kept_root_logger() -> Iterator[None]:
    """Undo the SDK's changes to the root logger, which belongs to the server."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _client() -> Client:
    """Return a client with the current rights of the user who sent this request."""
    client = _USER.get()()
    if client is None:  # guard: an invalid token shows nothing more
        raise NotAuthenticated("the token has expired or was revoked; use another")
    return client
