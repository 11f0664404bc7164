"""Figures for Prometheus: requests are counted as they end, the rest is looked up when somebody asks.

Names of plans, users or paths are never labels: there would be one time series for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cleveragents.events.request_telemetry import AnsweredRequest
from cleveragents.server.middleware.wire import is_api
from cleveragents.server.stock import stock_of

if TYPE_CHECKING:
    from cleveragents.access.model.user import ProjectScope
    from cleveragents.app.container import Container
    from cleveragents.server.stock import Stock
    from cleveragents.server.streams.hub import HubStatistics

__all__ = ["Meters", "RequestMeter"]

_UNKNOWN = "unknown"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Meters:
    """The figures of one application, in a registry of its own. Any thread may use it."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "cleveragents_http_requests",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "cleveragents_http_request_seconds",
            "How long answers took; streams, which last, are left out.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._closed = Counter(
            "cleveragents_http_connections_closed",
            "Connections that the server closed because of a limit.",
            ("reason",),
            registry=self._registry,
        )

    def connection_closed(self, reason: str) -> None:
        """Count a connection that was closed because of a limit."""
        self._closed.labels(reason).inc()

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """One more answer; it took so long, unless that says nothing."""
        self._requests.labels(method, route, str(status)).inc()
        if seconds is not None:
            self._seconds.labels(route).observe(seconds)

    def exposition(
        self, container: Container, streams: HubStatistics | None, scope: ProjectScope = None
    ) -> bytes:
        """The figures of these projects as Prometheus reads them; those of the server only with all
        projects."""
        now = CollectorRegistry()
        now.register(_Looked(stock_of(container, scope), streams, whole=scope is None))
        shared = generate_latest(self._registry) if scope is None else b""
        return shared + generate_latest(now)


class RequestMeter:
    """Counts the requests of an application by route, method and status."""

    def __init__(self, app: ASGIApp, meters: Meters, container: Container) -> None:
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
    """Sends what it is given, and remembers what it was."""

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


class _Looked:
    """What was looked up for one who asked."""

    def __init__(self, stock: Stock, streams: HubStatistics | None, *, whole: bool) -> None:
        self._stock = stock
        self._streams = streams
        self._whole = whole

    def collect(self) -> Iterable[Metric]:
        stock = self._stock
        yield _gauge("plans", "Plans by where they stand.", ("phase", "state"), stock.plans)
        yield _gauge("jobs", "Jobs by state.", ("state",), stock.jobs)
        yield _gauge("model_calls", "Calls of models of the plans that are kept.", ("state",), stock.calls)
        yield _gauge("model_tokens", "Their tokens.", ("kind",), stock.tokens)
        oldest = "How long the oldest job waits that could run."
        cost = "What those calls cost, as far as prices are known."
        yield GaugeMetricFamily("cleveragents_queue_oldest_seconds", oldest, value=stock.oldest_seconds)
        yield GaugeMetricFamily("cleveragents_model_cost_dollars", cost, value=stock.dollars)
        if not self._whole:  # guard: figures of the whole server tell of every project
            return
        yield from self._of_server()

    def _of_server(self) -> Iterable[Metric]:
        stock = self._stock
        yield _gauge(
            "workers",
            "Workers of the last day by state; lost and gone ones do nothing.",
            ("state",),
            stock.workers,
        )
        single = {
            "events_position": ("The last position of the audit log.", stock.position),
            "events_waiting": ("Events that have no position yet.", stock.unplaced),
            "stream_clients": ("Open streams of events.", self._streams.clients if self._streams else 0),
            "stream_slowest_lag_events": (
                "How far the slowest stream is behind.",
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
    """The route's template: paths as they were asked for would be without number."""
    path: str | None = getattr(scope.get("route"), "path", None)
    if path is None:
        return _UNKNOWN
    # A router that was included does not know below which prefix.
    return f"/api{path}" if is_api(scope) and not path.startswith("/api/") else path
