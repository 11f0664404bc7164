"""For those who look after the server: whether it lives, whether it can work, and figures.

Whether it lives and can work is asked by load balancers, which have no token; they learn nothing else.
Figures need the token of a viewer.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from cleveragents.server.access import AnyUser
from cleveragents.server.meters import Meters
from cleveragents.server.problems import problem
from cleveragents.server.readiness import readiness
from cleveragents.server.service import Here
from cleveragents.server.streams.hub import EventHub

__all__ = ["root"]

root = APIRouter(tags=["health"])

_FIGURES = "text/plain; version=0.0.4; charset=utf-8"
_EXPOSED: dict[str, Any] = {
    "description": "Prometheus text",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = Field(examples=["ok"])


class Ready(BaseModel):
    """The server can work."""

    status: Literal["ready"] = Field(examples=["ready"])
    checks: dict[str, Literal["ok"]] = Field(
        examples=[{"database": "ok", "schema": "ok", "worker": "ok", "audit-log": "ok"}]
    )


@root.get("/healthz", operation_id="getHealth")
async def get_health() -> Alive:
    """Says that the process lives, and tries nothing."""
    return Alive(status="ok")


@root.get("/readyz", operation_id="getReadiness", response_model=Ready)
def get_readiness(here: Here) -> Ready | JSONResponse:
    """Tries the database, its schema, this server's worker and the audit log; 503 says what is wrong."""
    checks = readiness(here.container)
    wrong = [check for check in checks if not check.ok]
    if wrong:
        told = {check.name: "ok" if check.ok else "failed" for check in checks}
        said = "; ".join(f"{check.name}: {check.problem}" for check in wrong)
        return problem(503, "not-ready", said, checks=told)
    return Ready(status="ready", checks={check.name: "ok" for check in checks})


@root.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=Response,
    responses={200: _EXPOSED},
    openapi_extra={"security": [{"token": []}, {"browser": []}]},
)
async def get_metrics(request: Request, access: AnyUser, here: Here) -> Response:
    """Figures as Prometheus reads them: the plans, jobs and model calls of your projects; for a server admin
    those of all projects, and of the server itself."""
    meters: Meters = request.app.state.meters
    hub: EventHub | None = getattr(request.app.state, "hub", None)
    streams = None if hub is None else hub.statistics()
    figures = await run_in_threadpool(meters.exposition, here.container, streams, access.scope)
    return Response(figures, media_type=_FIGURES)
