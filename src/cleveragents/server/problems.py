"""Errors as RFC 9457 problem details: our families are HTTP's statuses, our classes are its codes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, JsonValue
from starlette.exceptions import HTTPException
from starlette.routing import Match

from cleveragents.api.wording import shown_value
from cleveragents.core.errors import (
    ActionExists,
    AlreadyThere,
    CleverAgentsError,
    Conflict,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    DuplicateKey,
    Fault,
    IllegalPlanMove,
    InvalidRequest,
    NotAllowed,
    NotAuthenticated,
    OutcomeUnknown,
    PlanError,
    Remedy,
    StoreFull,
    TooManyRequests,
    Unavailable,
    remedies_to_json,
)
from cleveragents.core.errors.facts import facts_of
from cleveragents.core.errors.families import code_of
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.server.field_words import field_problem, in_a_sentence
from cleveragents.server.whereabouts import places_of

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
    """A gate lets a request no further, and it is not one of our errors: HTTP has a status for it."""

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
    return JSONResponse(shown_value(content), status_code=status, media_type=MEDIA_TYPE, headers=said)


def problem_of(error: CleverAgentsError | Refused, request: Request | None = None) -> JSONResponse:
    """What was refused on purpose; of a request that is named, with the fields that are to blame."""
    if isinstance(error, Refused):
        return problem(error.status, error.code, error.detail, headers=error.headers)
    headers: dict[str, str] = {}
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(max(1, math.ceil(error.seconds)))
    told = said_of(error)
    places = [] if request is None else places_of(error, request, redact_text(told))
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
    said = "; ".join(in_a_sentence(".".join(one["where"]), str(one["problem"])) for one in where)
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
