"""Errors as RFC 9457 problem details: our families are HTTP's statuses, our classes are its codes."""

from __future__ import annotations

import re

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cleveragents.domain.redaction import redact_text
from cleveragents.errors import (
    CleverAgentsError,
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotAuthenticated,
    TooManyRequests,
    Unavailable,
)

__all__ = ["MEDIA_TYPE", "code_of", "install", "problem", "status_of"]

MEDIA_TYPE = "application/problem+json"

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


def status_of(error: CleverAgentsError) -> int:
    """The status that says what the caller can do next."""
    if isinstance(error, NotAuthenticated):
        return 401
    if isinstance(error, NotAllowed):
        return 403
    if isinstance(error, TooManyRequests):
        return 429
    if isinstance(error, InvalidRequest):
        return 404 if type(error).__name__.startswith("Unknown") else 422
    if isinstance(error, Conflict):
        return 409
    return 503 if isinstance(error, Unavailable) else 500


def code_of(error: CleverAgentsError) -> str:
    """The class's name as programs compare it: `stale-plan`."""
    return _WORD.sub("-", type(error).__name__).lower()


def problem(status: int, code: str, detail: str, **more: object) -> JSONResponse:
    """One problem. What it says is masked: it may quote what somebody typed."""
    body = {"type": f"/problems/{code}", "title": code.replace("-", " "), "status": status, "code": code}
    content = {**body, "detail": redact_text(detail), **more}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(content, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def install(app: FastAPI) -> None:
    """Has every error of the app answered so."""
    app.add_exception_handler(CleverAgentsError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, CleverAgentsError)
    return problem(status_of(error), code_of(error), str(error))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    where = [
        {"where": [str(step) for step in one["loc"]], "problem": str(one["msg"])} for one in error.errors()
    ]
    said = "; ".join(f"{'.'.join(one['where'])}: {one['problem']}" for one in where)
    return problem(422, "invalid-request", said, errors=where)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "refused")
    return problem(error.status_code, code, str(error.detail))
