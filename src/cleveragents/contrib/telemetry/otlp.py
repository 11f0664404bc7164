"""Export of traces to an OpenTelemetry collector over OTLP/HTTP.

One thread does everything: it turns events into spans, imports the SDK (half a second, which no caller waits
for), and sends a batch per second. Commits only put their events into a bounded queue. If the collector is
down, slow or misconfigured, traces are lost, and one line is logged.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit, urlunsplit

from cleveragents import __version__
from cleveragents.config.entry_points import install_command
from cleveragents.config.service_settings import TelemetrySettings
from cleveragents.contrib.telemetry.spans import Attribute, Span, SpanBook, SpanKind, tellable
from cleveragents.core.clock import Clock
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.event import DomainEvent
from cleveragents.core.text.redaction import redact_text
from cleveragents.events.request_telemetry import AnsweredRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["Export", "OtlpTelemetry", "ensure_installed", "traces_url"]

_TRACES = "/v1/traces"
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_BOUND = 10_000
_BATCH_SPANS = 512
_BATCH_SECONDS = 1.0
_EXPORT_SECONDS = 2.0
_CLOSE_SECONDS = 3.0
_GIVE_UP_SECONDS = 1.0


class Export(Protocol):
    """Sends spans and reports whether they arrived."""

    def __call__(self, spans: Sequence[Span]) -> bool: ...

    def stop(self) -> None:
        """Abort the current transfer; safe in any thread."""
        ...


def ensure_installed(find: Callable[[str], object] = find_spec) -> None:
    """Raise `ConfigurationError` with the package to install unless the SDK is available."""
    try:
        missing = [name for name in _PACKAGES if find(name) is None]
    except ModuleNotFoundError:
        missing = list(_PACKAGES)
    if missing:
        problem = f"traces need OpenTelemetry's SDK: {install_command('telemetry')}"
        raise ConfigurationError("telemetry.endpoint", problem)


def traces_url(endpoint: str) -> str:
    """Return the URL for traces; an address without a path gets the standard path."""
    parts = urlsplit(endpoint)
    return endpoint if parts.path.strip("/") else urlunsplit(parts._replace(path=_TRACES))


class OtlpTelemetry:
    """`Telemetry` for a collector.

    Thread safety:
        Owner: the code that made it closes it; any thread may report.
        Lock: none of its own; the queue has a lock, and only the thread of this class waits for the queue.
            The `SpanBook` and the exporter belong to that thread.
        Guarantee: reporting never waits; the number of queued events is bounded, and events that find no room
            are counted; after `close` the thread has ended, or was abandoned and ends with the process.
    Cancel safety: reporting cannot be cancelled.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        book: SpanBook,
        clock: Clock,
        *,
        export: Callable[[], Export] | None = None,
        bound: int = _BOUND,
        batch_seconds: float = _BATCH_SECONDS,
        close_seconds: float = _CLOSE_SECONDS,
    ) -> None:
        if export is None:
            ensure_installed()
        self._endpoint = traces_url(settings.endpoint)
        self._book = book
        self._clock = clock
        self._batch_seconds = batch_seconds
        self._close_seconds = close_seconds
        self._make_export = export or (lambda: _OtlpExport(self._endpoint, settings.service_name))
        self._export: Export | None = None
        self._waiting: Queue[Sequence[DomainEvent] | Span | None] = Queue(bound)
        self._closing = threading.Event()
        self._failing = False
        self._complained = False
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def heard(self, events: Sequence[DomainEvent]) -> None:
        self._put(events)

    def answered(self, request: AnsweredRequest) -> None:
        attributes: dict[str, Attribute] = {
            "http.request.method": tellable(request.method),
            "http.route": tellable(request.route),
            "http.response.status_code": request.status,
        }
        failed = str(request.status) if request.status >= 500 else None
        if failed is not None:
            attributes["error.type"] = failed
        self._put(
            Span(
                tellable(f"{request.method} {request.route}"),
                secrets.randbits(128) or 1,
                secrets.randbits(64) or 1,
                None,
                request.started_at,
                request.ended_at,
                attributes,
                "server",
                failed,
            )
        )

    def close(self) -> None:
        self._closing.set()
        self._put(None)
        if self._failing:
            self._give_up()  # the last ones were not accepted either
        self._thread.join(self._close_seconds)
        if self._thread.is_alive():
            self._give_up()
            self._thread.join(_GIVE_UP_SECONDS)

    def _give_up(self) -> None:
        export = self._export
        if export is not None:
            export.stop()

    def _put(self, item: Sequence[DomainEvent] | Span | None) -> None:
        try:
            self._waiting.put_nowait(item)
        except Full:  # a reporting thread never waits
            self.lost += 1

    # ── The thread ────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            while not (self._closing.is_set() and self._waiting.empty()):
                self._send(self._gathered())
            self._send(self._book.left(self._clock.now()))
        finally:
            self._give_up()

    def _gathered(self) -> list[Span]:
        """Return the spans that end within the next `batch_seconds`; when closing, those that have ended,
        without waiting.
        """
        spans: list[Span] = []
        until = time.monotonic() + self._batch_seconds
        while len(spans) < _BATCH_SPANS:
            left = 0.0 if self._closing.is_set() else until - time.monotonic()
            try:
                item = self._waiting.get(timeout=max(left, 0.0)) if left > 0 else self._waiting.get_nowait()
            except Empty:
                break
            if isinstance(item, Span):
                spans.append(item)
            elif item is not None:
                spans.extend(self._read(item))
        return spans

    def _read(self, events: Sequence[DomainEvent]) -> list[Span]:
        spans: list[Span] = []
        for event in events:
            understood = False
            with suppress(Exception):  # guard: an event that cannot be converted does not affect others
                spans.extend(self._book.heard(event))
                understood = True
            if not understood:
                self._complain(f"{event.event_type.value} could not be converted")
        return spans

    def _send(self, spans: Sequence[Span]) -> None:
        if not spans:
            return
        arrived = False
        with suppress(Exception):
            # Created for the first spans only: a command without any imports nothing.
            self._export = self._export or self._make_export()
            arrived = self._export(spans)
        self._failing = not arrived
        if arrived:
            self._complained = False
        else:
            self._complain("the collector did not accept the traces")

    def _complain(self, problem: str) -> None:
        """Log a failure once until the next success: traces must not fill the log."""
        if self._complained:
            return
        self._complained = True
        import structlog

        log = structlog.get_logger(__name__)
        log.warning("telemetry.traces_lost", endpoint=redact_text(self._endpoint), problem=problem)


class _OtlpExport:
    """`Export` by OpenTelemetry's exporter.

    It reads headers, certificates and other options from its own variables, such as
    `OTEL_EXPORTER_OTLP_HEADERS`.
    """

    def __init__(self, url: str, service: str) -> None:
        import logging

        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        # It logs every failed batch; we log once.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._exporter: SpanExporter = OTLPSpanExporter(endpoint=url, timeout=_EXPORT_SECONDS)
        self._stopped = False
        self._scope = InstrumentationScope("cleveragents", __version__)
        self._resource = Resource.create(
            {
                "service.name": service,
                "service.version": __version__,
                "host.name": socket.gethostname(),
                "process.pid": os.getpid(),
            }
        )

    def __call__(self, spans: Sequence[Span]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        return self._exporter.export([self._readable(span) for span in spans]) is SpanExportResult.SUCCESS

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._exporter.shutdown()

    def _readable(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
        from opentelemetry.trace import SpanKind as Kind

        kinds: Mapping[SpanKind, Kind] = {
            "internal": Kind.INTERNAL,
            "client": Kind.CLIENT,
            "server": Kind.SERVER,
        }
        sampled = TraceFlags(TraceFlags.SAMPLED)
        parent = None
        if span.parent_id is not None:
            parent = SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=sampled)
        return ReadableSpan(
            span.name,
            context=SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=sampled),
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            kind=kinds[span.kind],
            status=Status(StatusCode.UNSET if span.failed is None else StatusCode.ERROR),
            start_time=round(span.started_at.timestamp() * 1e6) * 1000,
            end_time=round(span.ended_at.timestamp() * 1e6) * 1000,
            instrumentation_scope=self._scope,
        )
