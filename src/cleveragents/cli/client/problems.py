"""What a server refuses, as the command line says it: in the server's words, with our exit codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cleveragents.cli.client.cli_words import in_words_of_the_cli, refused_fields
from cleveragents.core import errors
from cleveragents.core.errors import CleverAgentsError, NotAuthenticated, PlanFailed
from cleveragents.core.errors.families import code_of

if TYPE_CHECKING:
    import httpx

__all__ = ["BUSY", "ServerSaid", "not_there", "problem_of", "refused_job", "said_code"]

BUSY = (429, 502, 503, 504)
"""What HTTP says of a server that may answer in a moment."""

_EXIT_CODES = {404: 2, 409: 75, 422: 2, **dict.fromkeys(BUSY, 75)}


_THERE = re.compile(r"`agents (?=(?:action|actor|jobs|model|plan|project|resource|user|trust --resource) )")
"""A command about what the server has: without `--server` it would show what is here."""


class ServerSaid(click.ClickException):
    """The server did not do it: what it said, its own `code` for that, and HTTP's `status`."""

    def __init__(self, detail: str, *, code: str, status: int) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status


class _WrongRequest(ServerSaid):
    exit_code = 2


class _NeedsSomebody(ServerSaid):
    exit_code = 3


class _TryAgain(ServerSaid):
    exit_code = 75


_KINDS: Mapping[int, type[ServerSaid]] = {
    one.exit_code: one for one in (_WrongRequest, _NeedsSomebody, _TryAgain)
}


def problem_of(response: httpx.Response, url: str, prefix: str = "agents") -> CleverAgentsError | ServerSaid:
    """The error that an answer of 400 or more is. Its body has to be read already. What it says to do with
    what it has begins with `prefix`."""
    said = _body(response)
    status, code = response.status_code, str(said.get("code", ""))
    if status == 401:
        return NotAuthenticated(f"`agents login {url}` asks for one and keeps it")
    # Errors of ours are whole sentences, with one of their own where commands have other words than requests.
    fields = refused_fields(said.get("errors")) if code == "invalid-request" else None
    detail = fields or said.get("command_line") or said.get("detail")
    if not detail:
        detail = f"the server at {url} answered {status} {response.reason_phrase}"
    kind = _KINDS.get(_exit_code(status, code), ServerSaid)
    return kind(_there(in_words_of_the_cli(str(detail)), prefix), code=code, status=status)


def not_there(error: CleverAgentsError, prefix: str) -> ServerSaid:
    """The error for a name that no server has anything under, in the words of one that was asked."""
    kind = _KINDS.get(error.exit_code, ServerSaid)
    return kind(_there(str(error), prefix), code=code_of(error), status=404)


def _there(text: str, prefix: str) -> str:
    return _THERE.sub(lambda _: f"`{prefix} ", text)


def refused_job(plan_id: str, job: Mapping[str, Any], otherwise: str) -> CleverAgentsError | ServerSaid:
    """The error for a job of a plan that did not do it: what stands in the way ends the command as where no
    server is between, whatever else went wrong is a failure."""
    said, result = job["error"], job["result"]
    code = str(result.get("code", "")) if isinstance(result, Mapping) else ""
    kind = _KINDS.get(_exit_code(0, code))
    if said is not None and kind is not None:
        return kind(said, code=code, status=409)
    return PlanFailed(plan_id, (said or otherwise).removeprefix(f"plan {plan_id}: "))


def said_code(response: httpx.Response) -> str:
    """The server's code for what it refused; empty if it has none."""
    return str(_body(response).get("code", ""))


def _exit_code(status: int, code: str) -> int:
    """As the same error has it where no server is between: codes are the names of our errors."""
    name = "".join(word.capitalize() for word in code.split("-"))
    known = getattr(errors, name, None) if name else None
    if isinstance(known, type) and issubclass(known, CleverAgentsError):
        return known.exit_code
    return _EXIT_CODES.get(status, 1)


def _body(response: httpx.Response) -> Mapping[str, Any]:
    try:
        said = response.json()
    except ValueError:  # a proxy answered, or something that is no server of ours
        return {}
    return said if isinstance(said, dict) else {}
