"""A fake OpenTelemetry collector: accepts traces over OTLP/HTTP, and records them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Collected", "Collector", "collector"]


@dataclass(frozen=True)
class Collected:
    """A received span."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    seconds: float
    failed: bool
    facts: Mapping[str, Any]
    resource: Mapping[str, Any]


class Collector:
    """Answers every batch with `status`; any thread may read the received spans."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                collector.paths.append(self.path)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[Collected]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = []
        for body in self.bodies:
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = _facts(group.resource.attributes)
                found += [_collected(span, resource) for scope in group.scope_spans for span in scope.spans]
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


@contextmanager
def collector(status: int = 200) -> Iterator[Collector]:
    made = Collector(status)
    try:
        yield made
    finally:
        made.close()


def _collected(span: Any, resource: Mapping[str, Any]) -> Collected:
    return Collected(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        span.status.code == 2,
        _facts(span.attributes),
        resource,
    )


def _facts(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
