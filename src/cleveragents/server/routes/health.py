"""Routes of the server itself: version, health, readiness and metrics.

Load balancers request health and readiness without a token, and get no other information. The readiness test
runs a small query, and checks the worker's last heartbeat and the audit log.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from cleveragents import __version__
from cleveragents.api.workers import unisolated_workers
from cleveragents.core.errors import CleverAgentsError
from cleveragents.server.access import AnyUser
from cleveragents.server.metrics import ServerMetrics
from cleveragents.server.problems import problem, public_message
from cleveragents.server.service import Here
from cleveragents.server.streams.hub import EventHub

if TYPE_CHECKING:
    from cleveragents.app.container import Container

__all__ = ["root", "router"]

root = APIRouter(tags=["health"])
router = APIRouter(prefix="/api", tags=["about"])

_SILENT = timedelta(seconds=60)
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_EXPOSED: dict[str, Any] = {
    "description": "Prometheus text",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


class ServerInfo(BaseModel):
    """Version and defaults of the server."""

    name: str = Field(examples=["CleverAgents"])
    version: str = Field(examples=["1.0.0"])
    engine: Literal["embedded", "temporal"] = Field(description="the job engine", examples=["embedded"])
    database: Literal["sqlite", "postgresql"] = Field(examples=["sqlite"])
    default_model: str | None = Field(
        description="the default model of plans", examples=["anthropic/claude-sonnet-4-5"]
    )
    default_profile: str = Field(description="the default profile of plans", examples=["supervised"])
    unisolated_workers: list[str] = Field(
        description="running workers that do not isolate commands", examples=[[]]
    )
    context_budget: int = Field(description="default token limit of an answer", examples=[8000])
    context_deadline: float = Field(description="default time limit in seconds", examples=[10.0])


class Liveness(BaseModel):
    """The process responds."""

    status: Literal["ok"] = Field(examples=["ok"])


class Readiness(BaseModel):
    """The server can work."""

    status: Literal["ready"] = Field(examples=["ready"])
    checks: dict[str, Literal["ok"]] = Field(
        examples=[{"database": "ok", "schema": "ok", "worker": "ok", "audit-log": "ok"}]
    )


@router.get("/about", operation_id="getAbout")
def get_about(here: Here, access: AnyUser) -> ServerInfo:
    """Show the version of the server and its defaults."""
    container = here.container
    settings = container.settings
    return ServerInfo(
        name="CleverAgents",
        version=__version__,
        engine=settings.jobs.engine,
        database="sqlite" if container.database.dialect == "sqlite" else "postgresql",
        default_model=settings.models.default or None,
        default_profile=settings.plan.profile,
        unisolated_workers=unisolated_workers(container),
        context_budget=settings.context.budget_tokens,
        context_deadline=settings.context.deadline_seconds,
    )


@root.get("/healthz", operation_id="getHealth")
async def get_health() -> Liveness:
    """Report that the process responds. Tests nothing else."""
    return Liveness(status="ok")


@root.get("/readyz", operation_id="getReadiness", response_model=Readiness)
def get_readiness(here: Here) -> Readiness | JSONResponse:
    """Test the database, its schema, the server's worker and the audit log. 503 names the failures."""
    checks = _checked(here.container)
    wrong = [f"{name}: {why}" for name, why in checks.items() if why is not None]
    if wrong:
        told = {name: "ok" if why is None else "failed" for name, why in checks.items()}
        return problem(503, "not-ready", "; ".join(wrong), checks=told)
    return Readiness(status="ready", checks=dict.fromkeys(checks, "ok"))


@root.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=Response,
    responses={200: _EXPOSED},
    openapi_extra={"security": [{"token": []}, {"browser": []}]},
)
async def get_metrics(request: Request, access: AnyUser, here: Here) -> Response:
    """Return metrics in Prometheus format.

    They cover the plans, jobs and model calls of your projects; for a server admin, those of all projects and
    of the server.
    """
    meters: ServerMetrics = request.app.state.meters
    hub: EventHub | None = getattr(request.app.state, "hub", None)
    streams = None if hub is None else hub.statistics()
    metrics = await run_in_threadpool(meters.exposition, here.container, streams, access.scope)
    return Response(metrics, media_type=_METRICS)


def _checked(container: Container) -> Mapping[str, str | None]:
    """Return each test with its failure, or None. If the database fails, the other tests are skipped."""
    found = {"database": _tried(_database, container)}
    if found["database"] is None:
        more = {"schema": _schema, "worker": _worker, "audit-log": _audit}
        found |= {name: _tried(check, container) for name, check in more.items()}
    return found


def _tried(check: Callable[[Container], str | None], container: Container) -> str | None:
    try:
        return check(container)
    except CleverAgentsError as error:
        return public_message(error)


def _database(container: Container) -> str | None:
    from sqlalchemy import text

    with container.database.read() as connection:
        connection.execute(text("SELECT 1"))
    return None


def _schema(container: Container) -> str | None:
    from sqlalchemy import text

    from cleveragents.storage.database import HEAD

    with container.database.read() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if found == HEAD:
        return None
    return f"the database is at revision {found}, but this version needs {HEAD}; restart the server"


def _worker(container: Container) -> str | None:
    """Return the failure of this process's workers, or None. A server without workers is fine."""
    own = [
        worker
        for worker in container.worker_registry.list()
        if worker.pid == os.getpid() and worker.host == socket.gethostname() and worker.state != "gone"
    ]
    now = container.clock.now()
    silent = [worker.name for worker in own if now - worker.seen_at > _SILENT]
    if not silent:
        return None
    return f"worker {silent[0]} of this server was last seen over a minute ago; restart the server"


def _audit(container: Container) -> str | None:
    container.audit.sequence_pending()
    return None
