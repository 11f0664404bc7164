"""Errors as RFC 9457 problem details: our families are HTTP's statuses, our classes are its codes.

A problem names the fields of the request that are to blame. For invalid bodies the framework tells; its
messages show regular expressions, so they are put into words. Our own errors do not know how somebody asked
(an option of a command is a field of a body here), so their fields are found by class, in `_places_of`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

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
    UnknownDecision,
    UnknownFile,
    UnknownJob,
    UnknownModel,
    UnknownPlan,
    UnknownProject,
    UnknownResource,
    UnknownUser,
    remedies_to_json,
)
from cleveragents.core.errors.facts import facts_of
from cleveragents.core.errors.families import code_of
from cleveragents.core.text.redaction import redact, redact_text

__all__ = [
    "MEDIA_TYPE",
    "UNSURE",
    "FieldProblem",
    "Problem",
    "Refused",
    "code_of",
    "field_problem",
    "install",
    "internal_problem",
    "problem",
    "problem_of",
    "said_of",
    "status_of",
]


MEDIA_TYPE = "application/problem+json"

UNSURE = "unsure"
"""Set in `request.state` where nobody knows whether what was asked for has been done, or how much of it."""

_OF_THE_DATABASE: dict[type[CleverAgentsError], str] = {
    DatabaseUnreachable: "the server cannot reach its database now; try again, and if it stays so, tell "
    "whoever runs the server: its log says why",
    OutcomeUnknown: "the server's database broke off while it wrote: that may have been kept or not, look "
    "before you try again",
    StoreFull: "the server's database has no space left; nothing was written, tell whoever runs the server",
    DatabaseUnusable: "the server cannot use its database; tell whoever runs the server: its log says why",
    DatabaseFailed: "the server's database failed; tell whoever runs the server: its log says why",
}
"""Where the database is, and as whom one logs in there, is in the log: strangers are told this, too."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_HTTP_CODES = {
    400: "invalid-request",
    404: "not-found",
    405: "method-not-allowed",
    415: "unsupported-media-type",
}

_HTTP_REMEDIES = {
    "There was an error parsing the body": "the body cannot be read; it should be JSON in UTF-8",
    "Not Found": "there is nothing at this address; /api/openapi.json says what there is",
    "Method Not Allowed": "this address does not support that method; the header Allow lists those it does",
}
"""What the framework says in words of its own, and what to do about it."""

_PATTERNS: Mapping[str, str] = {
    r"\S": "should not be empty",
    r"^[a-z0-9][a-z0-9._-]*$": "should be letters, digits and ._-, in lower case; "
    "the first is a letter or a digit",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "should be letters, digits and -, in lower case; "
    "the first and the last are letters or digits",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "should be as in namespace/name: "
    "letters, digits and -, in lower case",
    r"^[A-Za-z0-9_][A-Za-z0-9._+/^~-]*$": "should name a commit, as HEAD~1 or a branch does",
    r"^[0-9A-Za-z]+$": "should be letters and digits",
    r"^[0-9A-Z]+$": "should be digits and letters, in upper case",
    r"^[0-9]+$": "should be a whole number",
    r"^[0-9a-f]{64}$": "should be 64 digits of a hexadecimal number, in lower case",
}
_KIND = re.compile(r"^[A-Z][a-z]+ (?=should )")

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


class FieldProblem(BaseModel):
    """What is wrong in one place of a request."""

    where: list[str] = Field(
        description="`body`, `query` or `path`, then the names that lead to the field",
        examples=[["body", "limits", "usd"]],
    )
    problem: str


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=["/problems/unknown-plan"])
    title: str = Field(examples=["unknown plan"])
    status: int = Field(examples=[404])
    code: str = Field(description="for programs to compare", examples=["unknown-plan"])
    detail: str = Field(description="what happened", examples=["there is no plan '7QX2'"])
    remedies: list[Remedy] = Field(
        default=[],
        description="what a person can do about it: `action` names the operation, `plan` what it acts on, "
        "`options` are fields of its request (null: the person chooses), `text` says what it is for",
        examples=[[{"action": "plan.list", "plan": None, "options": {}, "text": "List the plans"}]],
    )
    errors: list[FieldProblem] | None = Field(
        default=None, description="which fields are to blame, if any is"
    )
    facts: dict[str, JsonValue] | None = Field(
        default=None, description="the fields of the error, from which clients rebuild it", examples=[None]
    )


class Refused(Exception):
    """A request that middleware refuses with a status of HTTP; none of our errors says it."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers


def status_of(error: CleverAgentsError) -> int:
    """The status that says what the caller can do next."""
    if isinstance(error, NotAuthenticated):
        return 401
    if isinstance(error, NotAllowed):
        return 403
    if isinstance(error, TooManyRequests):
        return 429
    if isinstance(error, (PlanError, IllegalPlanMove, AlreadyThere, ActionExists, DuplicateKey)):
        return 409  # it is right for another state of things, and somebody may have been faster
    if isinstance(error, InvalidRequest):
        return 404 if type(error).__name__.startswith("Unknown") else 422
    if isinstance(error, Conflict):
        return 409
    return 503 if isinstance(error, Unavailable) else 500


def said_of(error: CleverAgentsError) -> str:
    """What clients are told; the rest is logged."""
    words = _OF_THE_DATABASE.get(type(error))
    if words is None:
        return str(error)
    structlog.get_logger().warning("server.database_unavailable", error=redact_text(str(error)))
    return words


def problem(
    status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: object
) -> JSONResponse:
    """One problem. What it says is masked: it may quote what somebody typed."""
    body = {"type": f"/problems/{code}", "title": code.replace("-", " "), "status": status, "code": code}
    content = {**body, "detail": redact_text(detail), **more}
    said = {**({"WWW-Authenticate": "Bearer"} if status == 401 else {}), **(headers or {})}
    return JSONResponse(printable_value(content), status_code=status, media_type=MEDIA_TYPE, headers=said)


def problem_of(error: CleverAgentsError | Refused, request: Request | None = None) -> JSONResponse:
    """What was refused on purpose; of a request that is named, with the fields that are to blame."""
    if isinstance(error, Refused):
        return problem(error.status, error.code, error.detail, headers=error.headers)
    headers: dict[str, str] = {}
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(max(1, math.ceil(error.seconds)))
    told = said_of(error)
    places = [] if request is None else _places_of(error, request, redact_text(told))
    more: dict[str, object] = {"errors": places} if places else {}
    if error.remedies:
        more["remedies"] = redact(remedies_to_json(error.remedies))
    if told == str(error):  # guard: the facts of a rephrased error are not for clients
        facts = facts_of(error)
        more |= {} if facts is None else {"facts": redact(facts)}
    return problem(status_of(error), code_of(error), told, headers=headers, **more)


def internal_problem(request_id: str, error: Exception) -> JSONResponse:
    """What should not have happened: the details are in the log, and there alone if they are the server's."""
    code = code_of(error) if isinstance(error, Fault) else "internal-error"
    known = f"something went wrong that should not have; the server's log has the details of {request_id}"
    detail = str(error) if isinstance(error, Fault) else known
    if isinstance(error, DatabaseFailed):  # guard: no statement of ours
        detail = known
    return problem(500, code, detail, request_id=request_id)


def install(app: FastAPI) -> None:
    """Has every error of the app answered so."""
    app.add_exception_handler(CleverAgentsError, _ours)
    app.add_exception_handler(Refused, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, (CleverAgentsError, Refused))
    if isinstance(error, Fault):  # guard: what no caller can mend is in the log, where somebody can
        raise error
    if isinstance(error, (DatabaseUnreachable, OutcomeUnknown)):
        setattr(request.state, UNSURE, True)  # guard: some of it may have been done
    return problem_of(error, request)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if found and found[0]["type"] == "json_invalid":
        place, why = found[0]["loc"][-1], str(found[0].get("ctx", {}).get("error", ""))
        said = f"the body is no JSON: at character {place}, {why[:1].lower()}{why[1:]}"
        return problem(400, "invalid-request", said, errors=[{"where": ["body"], "problem": said}])
    where = [
        {"where": [redact_text(str(step)) for step in one["loc"]], "problem": field_problem(one)}
        for one in found
    ]
    said = "; ".join(_in_a_sentence(".".join(one["where"]), str(one["problem"])) for one in where)
    return problem(422, "invalid-request", said, errors=where)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "refused")
    said = _HTTP_REMEDIES.get(str(error.detail), str(error.detail))
    headers = error.headers
    if error.status_code == 405:
        headers = {"Allow": ", ".join(_allowed(request))}
    return problem(error.status_code, code, said, headers=headers)


def _allowed(request: Request) -> list[str]:
    """The methods of all routes at the address; the framework names those of the first one only."""
    scope = {"type": "http", "path": request.scope["path"], "root_path": "", "headers": []}
    routes = request.app.router.routes
    return [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def field_problem(one: Mapping[str, Any]) -> str:
    """One finding of the validation. Nothing that was sent is in it, unless it is no secret."""
    if one["type"] == "missing":
        return "is missing"
    if one["type"] == "string_pattern_mismatch":
        return _PATTERNS.get(str(one["ctx"]["pattern"]), "is not written as such a thing is")
    return redact_text(_KIND.sub("", str(one["msg"])).removeprefix("Value error, "))


def _in_a_sentence(where: str, said: str) -> str:
    """The place and what is wrong there. Never as `place: words`, which for a place called `token` looks like
    a token, so that the words are masked."""
    if said.startswith(("is ", "should ")):
        return f"{where} {said}"
    return f"{said[:1].lower()}{said[1:]} ({where})"


def _places_of(error: CleverAgentsError, request: Request, said: str) -> list[dict[str, object]]:
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
