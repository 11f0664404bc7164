"""Errors as RFC 9457 problem details: error families become HTTP statuses, error classes become codes.

A problem names the invalid fields of the request. For invalid bodies, the framework knows the fields; its
messages show regular expressions, so they are replaced. Our own errors do not name fields of the request, so
`_places_of` finds the fields by the class of the error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, JsonValue
from starlette.exceptions import HTTPException
from starlette.routing import Match

from cleveragents.api.format import printable_value
from cleveragents.api.server_requests import SOURCE
from cleveragents.core.errors import (
    ActionExists,
    AlreadyThere,
    AmbiguousPlan,
    CleverAgentsError,
    ConfigurationError,
    Conflict,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    DuplicateKey,
    Fault,
    IllegalPlanMove,
    InvalidAction,
    InvalidActor,
    InvalidArguments,
    InvalidGoals,
    InvalidName,
    InvalidRequest,
    InvalidResource,
    NotAllowed,
    NotAuthenticated,
    OutcomeUnknown,
    PlanError,
    PriceUnknown,
    Remedy,
    RequestRefused,
    SpendingUncounted,
    StoreFull,
    TooManyRequests,
    Unavailable,
    UnknownAction,
    UnknownActor,
    UnknownCheckpoint,
    UnknownComment,
    UnknownConversation,
    UnknownDecision,
    UnknownFile,
    UnknownJob,
    UnknownModel,
    UnknownPlan,
    UnknownProject,
    UnknownResource,
    UnknownRule,
    UnknownUser,
    remedies_to_json,
)
from cleveragents.core.errors.facts import facts_of
from cleveragents.core.errors.families import code_of
from cleveragents.core.text.field_problems import field_problem, fields_text
from cleveragents.core.text.redaction import redact, redact_text

__all__ = [
    "MEDIA_TYPE",
    "UNSURE",
    "FieldProblem",
    "Problem",
    "Refused",
    "code_of",
    "install",
    "internal_problem",
    "problem",
    "problem_of",
    "public_message",
    "status_of",
]


MEDIA_TYPE = "application/problem+json"

UNSURE = "unsure"
"""Set in `request.state` if it is unknown whether the request took effect."""

_OF_THE_DATABASE: dict[type[CleverAgentsError], str] = {
    DatabaseUnreachable: "the server cannot reach its database; try again, or ask an "
    "admin to read the server's log",
    OutcomeUnknown: "the connection to the database broke during a write: the change may be stored or not; "
    "check before you try again",
    StoreFull: "the server's database has no space left; nothing was written; ask an admin to free space",
    DatabaseUnusable: "the server cannot use its database; ask an admin to read the server's log",
    DatabaseFailed: "the server's database failed; ask an admin to read the server's log",
}
"""Messages without the address and user of the database: requests without a token get them too."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_HTTP_CODES = {
    400: "invalid-request",
    404: "not-found",
    405: "method-not-allowed",
    415: "unsupported-media-type",
}

_HTTP_REMEDIES = {
    "There was an error parsing the body": "cannot read the body; it should be JSON in UTF-8",
    "Not Found": "no such address; see /api/openapi.json",
    "Method Not Allowed": "method not supported; the header Allow lists the supported methods",
}
"""Details of the framework, and the messages that replace them."""


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
    UnknownComment: "number",
    UnknownConversation: "conversation_id",
    UnknownDecision: "number",
    UnknownFile: "path",
    UnknownJob: "job_id",
    UnknownModel: "model",
    UnknownPlan: "plan_id",
    UnknownProject: "project",
    UnknownResource: "resource",
    UnknownRule: "rule_id",
    UnknownUser: "name",
}

_NAMED = {"branch": "branch", "remote": "remote", "token": "token"}
"""Objects whose name is a field of the request; any other name is that of the object to create."""
_SOURCES = {"models.default": "model", "profile": "profile", "--commit": "commit"}
_ARGUMENT = re.compile(r"(\w+)(?: \(\w+\))? (?=is missing|should be |is given twice)")
_BODIES = ("POST", "PUT", "PATCH")


class FieldProblem(BaseModel):
    """The problem of one field."""

    where: list[str] = Field(
        description="`body`, `query` or `path`, then the names that lead to the field",
        examples=[["body", "limits", "usd"]],
    )
    problem: str


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str = Field(examples=["/problems/unknown-plan"])
    title: str = Field(examples=["unknown plan"])
    status: int = Field(examples=[404])
    code: str = Field(description="stable identifier of the problem, for programs", examples=["unknown-plan"])
    detail: str = Field(description="what happened", examples=["there is no plan '7QX2'"])
    remedies: list[Remedy] = Field(
        default=[],
        description="next steps for a person: `action` is the operation, `plan` its plan, "
        "`options` are fields of its request (null: to choose), `text` explains it",
        examples=[[{"action": "plan.list", "plan": None, "options": {}, "text": "List the plans"}]],
    )
    errors: list[FieldProblem] | None = Field(default=None, description="the invalid fields, if any")
    facts: dict[str, JsonValue] | None = Field(
        default=None, description="the fields of the error, for clients that rebuild it", examples=[None]
    )


class Refused(Exception):
    """A refusal by middleware with an HTTP status that no error class has."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers


def status_of(error: CleverAgentsError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, NotAuthenticated):
        return 401
    if isinstance(error, NotAllowed):
        return 403
    if isinstance(error, TooManyRequests):
        return 429
    if isinstance(error, (PlanError, IllegalPlanMove, AlreadyThere, ActionExists, DuplicateKey)):
        return 409  # the request was valid for another state; another user may have been faster
    if isinstance(error, InvalidRequest):
        return 404 if type(error).__name__.startswith("Unknown") else 422
    if isinstance(error, Conflict):
        return 409
    return 503 if isinstance(error, Unavailable) else 500


def public_message(error: CleverAgentsError) -> str:
    """Return the message of an error for clients. Details for the operator are only in the log."""
    words = _OF_THE_DATABASE.get(type(error))
    if words is None:
        return str(error)
    structlog.get_logger().warning("server.database_unavailable", error=redact_text(str(error)))
    return words


def problem(
    status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: object
) -> JSONResponse:
    """Return a problem response. Its text is masked: it may quote the request."""
    body = {"type": f"/problems/{code}", "title": code.replace("-", " "), "status": status, "code": code}
    content = {**body, "detail": redact_text(detail), **more}
    said = {**({"WWW-Authenticate": "Bearer"} if status == 401 else {}), **(headers or {})}
    return JSONResponse(printable_value(content), status_code=status, media_type=MEDIA_TYPE, headers=said)


def problem_of(error: CleverAgentsError | Refused, request: Request | None = None) -> JSONResponse:
    """Return the problem response for an expected error. If the request is passed, the response names its
    invalid fields.
    """
    if isinstance(error, Refused):
        return problem(error.status, error.code, error.detail, headers=error.headers)
    headers: dict[str, str] = {}
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(max(1, math.ceil(error.seconds)))
    told = public_message(error)
    places = [] if request is None else _places_of(error, request, redact_text(told))
    more: dict[str, object] = {"errors": places} if places else {}
    if error.remedies:
        more["remedies"] = redact(remedies_to_json(error.remedies))
    if told == str(error):  # guard: the facts of a rephrased error are not for clients
        facts = facts_of(error)
        more |= {} if facts is None else {"facts": redact(facts)}
    return problem(status_of(error), code_of(error), told, headers=headers, **more)


def internal_problem(request_id: str, error: Exception) -> JSONResponse:
    """Return the problem response for an unexpected error. Details of the server are only in the log."""
    code = code_of(error) if isinstance(error, Fault) else "internal-error"
    known = f"internal error; the server's log has the details of {request_id}"
    detail = str(error) if isinstance(error, Fault) else known
    if isinstance(error, DatabaseFailed):  # guard: our SQL is not for clients
        detail = known
    return problem(500, code, detail, request_id=request_id)


def install(app: FastAPI) -> None:
    """Install the error handlers."""
    app.add_exception_handler(CleverAgentsError, _ours)
    app.add_exception_handler(Refused, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, (CleverAgentsError, Refused))
    if isinstance(error, Fault):  # guard: a fault that no caller can fix goes to the log
        raise error
    if isinstance(error, (DatabaseUnreachable, OutcomeUnknown)):
        setattr(request.state, UNSURE, True)  # guard: the request may have taken effect
    return problem_of(error, request)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if found and found[0]["type"] == "json_invalid":
        place, why = found[0]["loc"][-1], str(found[0].get("ctx", {}).get("error", ""))
        said = f"the body is not JSON: at character {place}, {why[:1].lower()}{why[1:]}"
        return problem(400, "invalid-request", said, errors=[{"where": ["body"], "problem": said}])
    where = [
        {"where": [redact_text(str(step)) for step in one["loc"]], "problem": field_problem(one)}
        for one in found
    ]
    return problem(422, "invalid-request", fields_text(found), errors=where)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "refused")
    said = _HTTP_REMEDIES.get(str(error.detail), str(error.detail))
    headers = error.headers
    if error.status_code == 405:
        headers = {"Allow": ", ".join(_allowed(request))}
    return problem(error.status_code, code, said, headers=headers)


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes at the address. The framework lists only the methods of the first
    route.
    """
    scope = {"type": "http", "path": request.scope["path"], "root_path": "", "headers": []}
    routes = request.app.router.routes
    return [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def _places_of(error: CleverAgentsError, request: Request, said: str) -> list[dict[str, object]]:
    """Return the invalid fields as `where` and `problem`; empty if no field is concerned. `said` is the
    default problem.
    """
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
        return "branch" if error.what == "remote" else None  # the remote responds, but lacks the branch
    if isinstance(error, InvalidName):
        return _NAMED.get(error.what, "name")
    if isinstance(error, ConfigurationError):
        return next((field for source, field in _SOURCES.items() if error.source.startswith(source)), None)
    return _FIELDS.get(type(error))


def _named_second(error: CleverAgentsError, request: Request) -> Sequence[str] | None:
    """Return the field `other` if the error is about the other plan of a comparison, else None."""
    if not isinstance(error, (AmbiguousPlan, UnknownPlan)):
        return None
    named = request.path_params.get("plan_id"), request.query_params.get("other")
    return ["query", "other"] if error.plan_id != named[0] and error.plan_id == named[1] else None


def _arguments(error: InvalidArguments) -> list[dict[str, object]]:
    """Return a problem for each named argument, or one for all arguments."""
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
        field = "to_branch"  # the branch that a plan asks for
    if field in request.path_params:
        return ["path", field]
    if field in request.query_params:
        return ["query", field]
    if request.method in _BODIES and request.url.path.endswith("/budget"):
        return ["body", *field.split(".")[1:]]  # a body of limits alone
    if request.method in _BODIES:
        return ["body", *field.split(".")]
    # The object of the address: that of a resource ends with its name.
    return ["path", list(request.path_params)[-1]] if request.path_params else None
