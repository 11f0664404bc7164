"""Transports of the command line: of clients, and of commands that still read the server's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cleveragents.api.transport import BUSY, HttpTransport, problem_in
from cleveragents.cli.client.problems import ServerSaid, problem_of, refused_fields
from cleveragents.cli.output import progress

if TYPE_CHECKING:
    import httpx

__all__ = ["CommandTransport", "ServerClient"]


class CommandTransport(HttpTransport):
    """A transport that names options of the command line where the server names fields of a request."""

    def problem_of(self, response: httpx.Response) -> Exception:
        said = problem_in(response)
        told = refused_fields(said.get("errors")) if said.get("code") == "invalid-request" else None
        return super().problem_of(response) if told is None else click.UsageError(told)


class ServerClient(HttpTransport):
    """A transport whose errors end a command. `prefix` begins a command that goes to the same server."""

    def __init__(self, url: str, token: str | None, *, prefix: str = "agents", **more: Any) -> None:
        super().__init__(url, token, tell=progress, **more)
        self.prefix = prefix

    def problem_of(self, response: httpx.Response) -> Exception:
        return problem_of(response, self.url)

    def is_missing(self, error: Exception) -> bool:
        return isinstance(error, ServerSaid) and error.status == 404

    def is_busy(self, error: Exception) -> bool:
        return isinstance(error, ServerSaid) and error.status in BUSY
