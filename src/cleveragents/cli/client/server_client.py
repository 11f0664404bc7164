"""Transports of the command line: of clients, and of commands that still read the server's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cleveragents.api.transport import BUSY, HttpTransport, problem_in
from cleveragents.cli.client.cli_words import refused_fields
from cleveragents.cli.client.problems import ServerSaid, problem_of
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
    """A transport whose answers are in the words of the command line.

    `prefix` is how a command begins that goes to the same server.
    """

    def __init__(self, url: str, token: str | None, *, prefix: str = "agents", **more: Any) -> None:
        super().__init__(url, token, tell=progress, **more)
        self.prefix = prefix

    def get(self, path: str, /, **query: Any) -> Any:
        return _in_words_of_commands(super().get(path, **query))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return _in_words_of_commands(super().post(path, body))

    def problem_of(self, response: httpx.Response) -> Exception:
        return problem_of(response, self.url, self.prefix)

    def is_missing(self, error: Exception) -> bool:
        return isinstance(error, ServerSaid) and error.status == 404

    def is_busy(self, error: Exception) -> bool:
        return isinstance(error, ServerSaid) and error.status in BUSY


def _in_words_of_commands(answer: Any) -> Any:
    """What the server says in words of requests, and the command line has words of its own for, in those."""
    if not isinstance(answer, dict):
        return answer
    # A job says why it was refused once more, as requests are refused.
    twice = ("command_line", "problem") if "payload" in answer else ("command_line",)
    told = {name: value for name, value in answer.items() if name not in twice}
    words = answer.get("command_line")
    told |= words if isinstance(words, dict) else {}
    for name in ("items", "sub_plans"):
        if isinstance(told.get(name), list):
            told[name] = [_in_words_of_commands(one) for one in told[name]]
    return told
