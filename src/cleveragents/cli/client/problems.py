"""What a server refuses, as the command line says it: in the server's words, with our exit codes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cleveragents.core import errors
from cleveragents.core.errors import (
    CleverAgentsError,
    NotAuthenticated,
    PlanFailed,
    Remedy,
    remedies_from_json,
)
from cleveragents.core.errors.families import code_of

if TYPE_CHECKING:
    import httpx

__all__ = ["BUSY", "ServerSaid", "not_there", "problem_of", "refused_fields", "refused_job", "said_code"]

BUSY = (429, 502, 503, 504)
"""What HTTP says of a server that may answer in a moment."""

_EXIT_CODES = {404: 2, 409: 75, 422: 2, **dict.fromkeys(BUSY, 75)}


_FIELDS = {
    "model": "--model",
    "limits.tokens": "--max-tokens",
    "limits.usd": "--max-usd",
    "limits.steps": "--max-steps",
    "limits.seconds": "--timeout",
    "limits": "--max-…",
    "commit": "--commit",
    "replace": "--replace",
    "force": "--yes",
    "discard": "--yes",
    "plan_id": "PLAN",
    "job_id": "JOB",
    "resource": "--resource",
    "goal": "the goal",
    "goals": "the file",
    "action": "--action",
    "arguments": "--arg",
    "actor": "--actor",
    "actor_yaml": "--actor",
    "profile": "--profile",
    "checks": "--check",
    "invariants": "--invariant",
    "max_parallel": "--parallel",
    "to_branch": "--to-branch",
    "reason": "--reason",
    "text": "the answer",
    "guidance": "--guidance",
    "decision": "DECISION",
    "call": "NUMBER",
    "path": "PATH",
    "accept": "PATHS",
    "reject": "PATHS",
    "accept_changesets": "--changeset",
    "reject_changesets": "--changeset",
    "question": "the question",
    "prompt": "--prompt",
    "at": "--at",
    "budget": "--budget",
    "deadline": "--deadline",
    "name": "NAME",
    "project": "--project",
    "remote": "--remote",
    "branch": "--branch",
    "label": "--label",
    "days": "--days",
    "yaml": "the file",
    "after": "--after",
    "limit": "--limit",
    "type": "--type",
    "state": "--state",
}
"""Fields of requests, as the command line calls them."""

_PLACES = ("body", "query", "path", "header")
_KIND = re.compile(r"^(Input|String|List|Dictionary) should ")
_PATTERN = re.compile(r"String should match pattern '.*'", re.DOTALL)


class ServerSaid(click.ClickException):
    """The server did not do it: what it said, its own `code` for that, HTTP's `status`, and what to do."""

    def __init__(self, detail: str, *, code: str, status: int, remedies: Sequence[Remedy] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status
        self.remedies = tuple(remedies)


class _WrongRequest(ServerSaid):
    exit_code = 2


class _NeedsSomebody(ServerSaid):
    exit_code = 3


class _TryAgain(ServerSaid):
    exit_code = 75


_KINDS: Mapping[int, type[ServerSaid]] = {
    one.exit_code: one for one in (_WrongRequest, _NeedsSomebody, _TryAgain)
}


def problem_of(response: httpx.Response, url: str) -> CleverAgentsError | ServerSaid:
    """The error that an answer of 400 or more is. Its body has to be read already."""
    said = _body(response)
    status, code = response.status_code, str(said.get("code", ""))
    if status == 401:
        login = Remedy("login", options={"url": url}, text="Log in")
        return NotAuthenticated(f"log in to {url}", (login,))
    fields = refused_fields(said.get("errors")) if code == "invalid-request" else None
    detail = fields or said.get("detail")
    if not detail:
        detail = f"the server at {url} answered {status} {response.reason_phrase}"
    kind = _KINDS.get(_exit_code(status, code), ServerSaid)
    remedies = remedies_from_json(said.get("remedies", ()))
    return kind(str(detail), code=code, status=status, remedies=remedies)


def not_there(error: CleverAgentsError) -> ServerSaid:
    """The error for a name that no server has anything under, as one that was asked reports it."""
    kind = _KINDS.get(error.exit_code, ServerSaid)
    return kind(str(error), code=code_of(error), status=404, remedies=error.remedies)


def refused_job(plan_id: str, job: Mapping[str, Any], otherwise: str) -> CleverAgentsError | ServerSaid:
    """The error for a job of a plan that did not do it: what stands in the way ends the command as where no
    server is between, whatever else went wrong is a failure."""
    said, result = job["error"], job["result"]
    code = str(result.get("code", "")) if isinstance(result, Mapping) else ""
    kind = _KINDS.get(_exit_code(0, code))
    if said is not None and kind is not None:
        remedies = remedies_from_json(result.get("remedies", ()))
        return kind(said, code=code, status=409, remedies=remedies)
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


def refused_fields(errors: Any) -> str | None:
    """What is wrong with a request, option by option; None if that is not said."""
    if not isinstance(errors, Sequence) or isinstance(errors, str) or not errors:
        return None
    return "; ".join(_told(one) for one in errors if isinstance(one, Mapping)) or None


def _told(one: Mapping[str, Any]) -> str:
    steps = [str(step) for step in one.get("where", ())]
    inner = steps[1:] if steps and steps[0] in _PLACES else steps
    while inner and inner[-1].isdecimal():  # the place in a list
        inner = inner[:-1]
    path = ".".join(inner)
    field = _FIELDS.get(path) or _FIELDS.get(inner[-1] if inner else "") or path or "the request"
    said = _PATTERN.sub("is not written as such a thing is", str(one.get("problem", "")))
    problem = _KIND.sub("should ", said).removeprefix("Value error, ")
    return f"{field}: {problem[:1].lower()}{problem[1:]}"


def _body(response: httpx.Response) -> Mapping[str, Any]:
    try:
        said = response.json()
    except ValueError:  # a proxy answered, or something that is no server of ours
        return {}
    return said if isinstance(said, dict) else {}
