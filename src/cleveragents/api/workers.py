"""Workers, the processes that run jobs on all machines, and the isolation of commands, as views show it."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol

from cleveragents.api.format import timestamp
from cleveragents.api.views import Page, page_of, shown, view, view_of
from cleveragents.core.policy import Isolation

if TYPE_CHECKING:
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.errors import Remedy
    from cleveragents.core.json_value import JsonValue
    from cleveragents.jobs.ports import WorkerRecord
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "HttpWorkers",
    "LocalWorkers",
    "WorkerView",
    "Workers",
    "has_worker_for",
    "isolation_of",
    "isolation_text",
    "missing_worker",
    "unisolated_workers",
    "waits_for_worker",
    "worker_state",
]


_SILENT = timedelta(minutes=1)
"""A worker reports every few seconds. One that has been silent for this long is lost."""
_OVER = ("lost", "gone")

_WORDS = {
    Isolation.NONE.value: "none: commands run with all rights of the worker's user",
}


@view
class WorkerView:
    """A worker, as it last reported."""

    id: str = shown(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1D"])
    name: str = shown(examples=["worker-1"])
    host: str = shown(examples=["build-3"])
    pid: int = shown(examples=[4711])
    engine: str = shown(examples=["embedded"])
    queue: str = shown(examples=["plans"])
    concurrency: int = shown("how many jobs the worker runs in parallel", examples=[4])
    running: int = shown("how many jobs the worker runs now", examples=[2])
    state: Literal["working", "idle", "draining", "gone", "lost"] = shown(
        "idle: the worker has no job; lost: its process is gone, or it has not reported for a minute",
        examples=["working"],
    )
    started: datetime = shown(examples=["2026-11-15T12:00:00Z"])
    seen: datetime = shown("when the worker last reported", examples=["2026-11-15T12:03:00Z"])
    isolation: Literal["bubblewrap", "none"] | None = shown(
        "the isolation of the commands that the worker runs; null if unknown", examples=["bubblewrap"]
    )


class Workers(Protocol):
    """The workers on all machines that share the database."""

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[WorkerView]:
        """Return one page of the workers of the last day, by id, including those that have left."""


class LocalWorkers:
    """Workers in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._container = access.container

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[WorkerView]:
        now, home = self._container.clock.now(), self._container.home
        known = [_worker_view(one, now=now, home=home) for one in self._container.worker_registry.list()]
        return page_of(sorted(known, key=_id), _id, limit, after)


class HttpWorkers:
    """Workers of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(self, *, limit: int = 100, after: str | None = None) -> Page[WorkerView]:
        return self._http.page(WorkerView, "/workers", limit, after)


def _id(worker: WorkerView) -> str:
    return worker.id


def _is_silent(worker: WorkerRecord, *, now: datetime) -> bool:
    """Return whether the worker has been silent for longer than any live worker."""
    return now - worker.seen_at > _SILENT


def _is_dead(worker: WorkerRecord, home: str) -> bool:
    """Return whether the worker used the state directory `home` of this machine and its process is gone."""
    if (worker.home, worker.host) != (home, socket.gethostname()):
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # the process of another user
    return False


def worker_state(worker: WorkerRecord, *, now: datetime, home: str) -> str:
    """Return the state of the worker: `lost` if it is silent or its process is gone, `idle` if it has no
    jobs, otherwise the state that it last reported.
    """
    if worker.state != "gone" and (_is_silent(worker, now=now) or _is_dead(worker, home)):
        return "lost"
    return "idle" if worker.state == "working" and not worker.running else worker.state


def _worker_view(worker: WorkerRecord, *, now: datetime, home: str) -> WorkerView:
    state = worker_state(worker, now=now, home=home)
    fields: dict[str, JsonValue] = {
        "id": worker.id,
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "engine": worker.engine,
        "queue": worker.queue,
        "concurrency": worker.concurrency,
        "running": 0 if state in _OVER else worker.running,
        "state": state,
        "started": timestamp(worker.started_at),
        "seen": timestamp(worker.seen_at),
        "isolation": worker.isolation,
    }
    return view_of(WorkerView, fields)


def waits_for_worker(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the plan is queued for workers, so that it continues without a resume."""
    from cleveragents.jobs.model.job import JobState
    from cleveragents.plans.jobs.names import should_run

    if not should_run(plan) or not _queue_of(parts, plan):
        return False
    job = parts.lifecycle.queueing.job_of(plan)
    return job is not None and job.state is JobState.QUEUED


def missing_worker(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the remedy that starts the missing worker; empty while a worker runs."""
    from cleveragents.core.errors import Remedy
    from cleveragents.plans.jobs.names import SHARED_QUEUE
    from cleveragents.plans.model.plan import PlanState

    if plan.state is not PlanState.QUEUED and not waits_for_worker(parts, plan):
        return []
    queue = _queue_of(parts, plan)
    if not queue or has_worker_for(parts, queue):
        return []
    where = "" if queue == SHARED_QUEUE else f", on the machine where {plan.resource} is"
    return [Remedy("worker", text=f"runs the plan{where}; no worker is running")]


def _queue_of(parts: PlanParts, plan: Plan) -> str:
    from cleveragents.plans.jobs.names import queue_of

    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    return queue_of(root.request)


def has_worker_for(parts: PlanParts, queue: str) -> bool:
    """Return whether a worker of this queue has reported recently and is not known to be dead."""
    now = parts.lifecycle.clock.now()
    living = [
        one
        for one in parts.workers.list()
        if worker_state(one, now=now, home=parts.home) in ("working", "idle")
    ]
    return any(queue in one.queue.split(",") for one in living)


def isolation_of(parts: PlanParts, plan: Plan) -> str | None:
    """Return the isolation of the plan's commands: the weakest isolation of all its runs; before its first
    run, the isolation of this process.

    None for a plan of an older version that did not record the isolation.
    """
    if plan.isolation is not None:
        return plan.isolation.value
    return parts.isolation.value if plan.strategy is None and not plan.state.ended else None


def isolation_text(isolation: str | None) -> str | None:
    """Return the isolation as text, with a warning if there is none."""
    return None if isolation is None else _WORDS.get(isolation, isolation)


def unisolated_workers(container: Container) -> list[str]:
    """Return the names of running workers that do not isolate commands."""
    now = container.clock.now()
    return [
        worker.name
        for worker in container.worker_registry.list()
        if worker.isolation == Isolation.NONE.value
        and worker_state(worker, now=now, home=container.home) not in _OVER
    ]
