"""Metrics for Prometheus. Requests are counted when they end; all other metrics are read from the database.

Names of plans, users and paths are never labels, because each label value creates a time series.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cleveragents.api.events import end_of_log
from cleveragents.api.workers import worker_state
from cleveragents.events.request_telemetry import AnsweredRequest
from cleveragents.server.middleware.wire import is_api

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

    from cleveragents.access.model.user import ProjectScope
    from cleveragents.app.container import Container
    from cleveragents.server.streams.hub import HubStatistics

__all__ = ["RequestMeter", "ServerMetrics"]

_UNKNOWN = "unknown"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Counts = tuple[tuple[tuple[str, ...], float], ...]
"""Label values and their counts."""


class ServerMetrics:
    """The metrics of one application, in their own registry. Any thread may use it."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "cleveragents_http_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "cleveragents_http_request_seconds",
            "Response times, without streams.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._closed = Counter(
            "cleveragents_http_connections_closed",
            "Connections closed because of a limit.",
            ("reason",),
            registry=self._registry,
        )

    def connection_closed(self, reason: str) -> None:
        """Count a connection that was closed because of a limit."""
        self._closed.labels(reason).inc()

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count a response, and its duration if it is not a stream."""
        self._requests.labels(method, route, str(status)).inc()
        if seconds is not None:
            self._seconds.labels(route).observe(seconds)

    def exposition(
        self, container: Container, streams: HubStatistics | None, scope: ProjectScope = None
    ) -> bytes:
        """Return the metrics of the projects in `scope` in Prometheus format. The metrics of the server are
        included only if the scope is all projects.
        """
        now = CollectorRegistry()
        now.register(_SnapshotCollector(_snapshot_of(container, scope), streams, whole=scope is None))
        shared = generate_latest(self._registry) if scope is None else b""
        return shared + generate_latest(now)


class RequestMeter:
    """Counts the requests of an application by route, method and status."""

    def __init__(self, app: ASGIApp, meters: ServerMetrics, container: Container) -> None:
        self._app = app
        self._meters = meters
        self._clock = container.clock
        self._telemetry = container.telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, started_at = self._clock.monotonic(), self._clock.now()
        answer = _Answer(send)
        try:
            await self._app(scope, receive, answer)
        finally:
            took = None if answer.streams else self._clock.monotonic() - began
            method = scope["method"] if scope["method"] in _METHODS else _UNKNOWN
            self._meters.answered(method, _route(scope), answer.status, took)
            if took is not None and self._telemetry is not None:
                ended_at = started_at + timedelta(seconds=took)
                told = AnsweredRequest(method, _route(scope), answer.status, started_at, ended_at)
                self._telemetry.answered(told)


class _Answer:
    """Forwards a response and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 500
        self.streams = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            self.streams = any(
                name == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in message.get("headers", ())
            )
        await self._send(message)


class _SnapshotCollector:
    """A Prometheus collector of one snapshot."""

    def __init__(self, snapshot: _Snapshot, streams: HubStatistics | None, *, whole: bool) -> None:
        self._snapshot = snapshot
        self._streams = streams
        self._whole = whole

    def collect(self) -> Iterable[Metric]:
        snapshot = self._snapshot
        yield _gauge("plans", "Plans by phase and state.", ("phase", "state"), snapshot.plans)
        yield _gauge("jobs", "Jobs by state.", ("state",), snapshot.jobs)
        yield _gauge("model_calls", "Model calls of stored plans.", ("state",), snapshot.calls)
        yield _gauge("model_tokens", "Tokens of these model calls.", ("kind",), snapshot.tokens)
        oldest = "Waiting time of the oldest job that is ready to run."
        cost = "Cost of these model calls, as far as prices are known."
        yield GaugeMetricFamily("cleveragents_queue_oldest_seconds", oldest, value=snapshot.oldest_seconds)
        yield GaugeMetricFamily("cleveragents_model_cost_dollars", cost, value=snapshot.dollars)
        if not self._whole:  # guard: metrics of the whole server reveal all projects
            return
        yield from self._of_server()

    def _of_server(self) -> Iterable[Metric]:
        snapshot = self._snapshot
        yield _gauge(
            "workers",
            "Workers of the last day by state.",
            ("state",),
            snapshot.workers,
        )
        single = {
            "events_position": ("The last position of the audit log.", snapshot.position),
            "events_waiting": ("Events without a position yet.", snapshot.unplaced),
            "stream_clients": ("Open event streams.", self._streams.clients if self._streams else 0),
            "stream_slowest_lag_events": (
                "Events that the slowest stream lags behind.",
                self._streams.slowest_lag if self._streams else 0,
            ),
        }
        for name, (meaning, value) in single.items():
            yield GaugeMetricFamily(f"cleveragents_{name}", meaning, value=value)


def _gauge(
    name: str, meaning: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]
) -> Metric:
    family = GaugeMetricFamily(f"cleveragents_{name}", meaning, labels=labels)
    for texts, value in values:
        family.add_metric(texts, value)
    return family


def _route(scope: Scope) -> str:
    """Return the template of the route, to limit the number of labels."""
    path: str | None = getattr(scope.get("route"), "path", None)
    if path is None:
        return _UNKNOWN
    # An included router does not know its prefix.
    return f"/api{path}" if is_api(scope) and not path.startswith("/api/") else path


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Plans, jobs, workers, model calls and events, counted at one moment."""

    plans: Counts
    jobs: Counts
    workers: Counts
    calls: Counts
    tokens: Counts
    dollars: float
    oldest_seconds: float
    position: int
    unplaced: int


def _snapshot_of(container: Container, scope: ProjectScope) -> _Snapshot:
    """Count the rows of these projects. Reads every plan and job, so call this at most every few seconds."""
    from sqlalchemy import case, func, select, true

    from cleveragents.access.store.sql_project_store import project_of_job
    from cleveragents.models.model.budget import PICODOLLARS
    from cleveragents.storage.actor_tables import model_calls
    from cleveragents.storage.columns import microseconds
    from cleveragents.storage.tables import jobs, outbox, plans

    of_plans: ColumnElement[bool] = true()
    of_jobs: ColumnElement[bool] = true()
    of_calls: ColumnElement[bool] = true()
    if scope is not None:
        of_plans = plans.c.project.in_(scope)
        of_jobs = project_of_job(container.database.dialect).in_(scope)
        of_calls = model_calls.c.plan_id.in_(select(plans.c.id).where(of_plans))
    now = container.clock.now()
    known = [worker_state(one, now=now, home=container.home) for one in container.worker_registry.list()]
    with container.database.read() as connection:
        sums = [
            func.coalesce(func.sum(column), 0)
            for column in (
                model_calls.c.input_tokens,
                model_calls.c.output_tokens,
                model_calls.c.cached_tokens,
                model_calls.c.picodollars,
            )
        ]
        read, written, cached, picodollars = connection.execute(select(*sums).where(of_calls)).one()
        could_run = (jobs.c.state == "queued", jobs.c.not_before <= microseconds(now), of_jobs)
        begins = case((jobs.c.not_before > jobs.c.created_at, jobs.c.not_before), else_=jobs.c.created_at)
        since = connection.execute(select(func.min(begins)).where(*could_run)).scalar()
        waits = 0 if since is None else microseconds(now) - since
        return _Snapshot(
            plans=_counted(connection, plans, of_plans, plans.c.phase, plans.c.state),
            jobs=_counted(connection, jobs, of_jobs, jobs.c.state),
            workers=tuple(((state,), number) for state, number in sorted(collections.Counter(known).items())),
            calls=_counted(connection, model_calls, of_calls, model_calls.c.state),
            tokens=((("input",), int(read)), (("output",), int(written)), (("cached",), int(cached))),
            dollars=float(picodollars) / PICODOLLARS,
            oldest_seconds=max(0, waits) / 1_000_000,
            position=end_of_log(container.database),
            unplaced=connection.execute(select(func.count()).select_from(outbox)).scalar() or 0,
        )


def _counted(connection: Connection, table: Table, which: ColumnElement[bool], *columns: Any) -> Counts:
    from sqlalchemy import func, select

    query = select(*columns, func.count()).select_from(table).where(which).group_by(*columns)
    query = query.order_by(*columns)
    return tuple((tuple(map(str, row[:-1])), int(row[-1])) for row in connection.execute(query))
