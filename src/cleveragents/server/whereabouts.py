"""Where in a request something is wrong, as far as an error of ours tells: by its class, or by what it says.

Errors do not know who asked, and how: what a command has as an option is a field of a body here. So it is
found out at the border, in one place, and said as the validation of bodies says it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleveragents.api.server_requests import SOURCE
from cleveragents.core.errors import (
    ActionExists,
    AlreadyThere,
    AmbiguousPlan,
    CleverAgentsError,
    ConfigurationError,
    InvalidAction,
    InvalidActor,
    InvalidArguments,
    InvalidGoals,
    InvalidName,
    InvalidResource,
    PriceUnknown,
    RequestRefused,
    SpendingUncounted,
    UnknownAction,
    UnknownActor,
    UnknownCheckpoint,
    UnknownDecision,
    UnknownFile,
    UnknownJob,
    UnknownModel,
    UnknownPlan,
    UnknownProject,
    UnknownResource,
    UnknownUser,
)
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from fastapi import Request

__all__ = ["places_of"]

_FIELDS: Mapping[type[CleverAgentsError], str] = {
    ActionExists: "yaml",
    AlreadyThere: "name",
    AmbiguousPlan: "plan_id",
    InvalidAction: "yaml",
    InvalidGoals: "goals",
    PriceUnknown: "limits.usd",
    SpendingUncounted: "limits",
    UnknownAction: "action",
    UnknownActor: "actor",
    UnknownCheckpoint: "checkpoint",
    UnknownDecision: "number",
    UnknownFile: "path",
    UnknownJob: "job_id",
    UnknownModel: "model",
    UnknownPlan: "plan_id",
    UnknownProject: "project",
    UnknownResource: "resource",
    UnknownUser: "name",
}
_NAMED = {"branch": "branch", "remote": "remote", "token": "token"}
"""What cannot be one, and has a field of that name; anything else is the name of what is to be made."""

_SOURCES = {"models.default": "model", "profile": "profile", "--commit": "commit"}
_ARGUMENT = re.compile(r"(\w+)(?: \(\w+\))? (?=is missing|should be |is given twice)")
_BODIES = ("POST", "PUT", "PATCH")


def places_of(error: CleverAgentsError, request: Request, said: str) -> list[dict[str, object]]:
    """What is wrong, field by field: `where` and `problem`, which is what was `said` unless more is known.
    Empty where no field is to blame."""
    if isinstance(error, InvalidArguments):
        return _arguments(error)
    field = _field_of(error)
    if field is None:
        return []
    where = _named_second(error, request) or _where(field, request)
    return [] if where is None else [{"where": where, "problem": said}]


def _field_of(error: CleverAgentsError) -> str | None:
    if isinstance(error, RequestRefused):
        return error.where
    if isinstance(error, InvalidActor):
        return "actor_yaml" if error.source == SOURCE else "actor"
    if isinstance(error, InvalidResource):
        return "branch" if error.what == "remote" else None  # it answers, and lacks that
    if isinstance(error, InvalidName):
        return _NAMED.get(error.what, "name")
    if isinstance(error, ConfigurationError):
        return next((field for source, field in _SOURCES.items() if error.source.startswith(source)), None)
    return _FIELDS.get(type(error))


def _named_second(error: CleverAgentsError, request: Request) -> Sequence[str] | None:
    """Of two plans that are compared, the `other`, if that is the one."""
    if not isinstance(error, (AmbiguousPlan, UnknownPlan)):
        return None
    named = request.path_params.get("plan_id"), request.query_params.get("other")
    return ["query", "other"] if error.plan_id != named[0] and error.plan_id == named[1] else None


def _arguments(error: InvalidArguments) -> list[dict[str, object]]:
    """One for each argument that is named; else the arguments as a whole."""
    problems: list[str] = []
    for piece in error.problem.split("; "):
        if problems and _ARGUMENT.match(piece) is None:
            problems[-1] += f"; {piece}"
        else:
            problems.append(piece)
    return [
        {"where": ["body", "arguments", *_name_in(problem)], "problem": redact_text(problem)}
        for problem in problems
    ]


def _name_in(problem: str) -> list[str]:
    named = _ARGUMENT.match(problem)
    return [] if named is None else [named[1]]


def _where(field: str, request: Request) -> Sequence[str] | None:
    if field == "branch" and request.url.path.startswith("/api/plans"):
        field = "to_branch"  # the one that a plan asks for
    if field in request.path_params:
        return ["path", field]
    if field in request.query_params:
        return ["query", field]
    if request.method in _BODIES and request.url.path.endswith("/budget"):
        return ["body", *field.split(".")[1:]]  # a body of limits alone
    if request.method in _BODIES:
        return ["body", *field.split(".")]
    # It is what the address is of: that of a resource ends with its name.
    return ["path", list(request.path_params)[-1]] if request.path_params else None
