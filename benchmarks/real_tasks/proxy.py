"""A proxy in front of an OpenAI-compatible server: it counts the tokens of an attempt and limits them.

All harnesses reach the model through it, so they are counted alike and have the same limit. Each request may
generate as many tokens as remain. When none remain, `Meter.over` is set and requests are refused.

At the end of an attempt, its open requests are cut off, and the proxy waits until the server is idle. Else
the server would answer them beside those of the next attempt.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Meter", "proxy"]

_LEAST = 16
_SECONDS = 900.0
_IDLE_SECONDS = 300.0
_COMPLETIONS = "/v1/chat/completions"


@dataclass
class Meter:
    """What an attempt used. Thread-safe: every change is under its lock."""

    limit: int
    log: Path | None = None
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    model_seconds: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def remaining(self) -> int:
        with self._lock:
            left = self.limit - self.output_tokens
            if left < _LEAST:
                self.over.set()
            return left

    def add(
        self, request: dict[str, Any], answer: str, usage: dict[str, Any], timings: dict[str, Any]
    ) -> None:
        with self._lock:
            self.calls += 1
            self.prompt_tokens += usage.get("prompt_tokens", 0)
            self.cached_tokens += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self.output_tokens += usage.get("completion_tokens", 0)
            self.model_seconds += (timings.get("prompt_ms", 0) + timings.get("predicted_ms", 0)) / 1000
            if self.log:
                with self.log.open("a", encoding="utf-8") as file:
                    row = {"messages": request.get("messages"), "answer": answer, "usage": usage}
                    file.write(json.dumps(row) + "\n")
        self.remaining()


@contextmanager
def proxy(server: str, meter: Meter) -> Iterator[str]:
    """Serve a proxy for `server` on loopback. Yields its base URL."""
    serving = _Server(server, meter)
    thread = threading.Thread(target=serving.serve_forever, name="proxy", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_address[1]}/v1"
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()
        serving.cut_off()
        _wait_until_idle(serving)


def _wait_until_idle(serving: _Server) -> None:
    """Wait until the server works on no request. A server that cannot tell (`/slots`) counts as idle."""
    ends = time.monotonic() + _IDLE_SECONDS
    while time.monotonic() < ends:
        with serving.asked("GET", "/slots") as answer:
            body = answer.read()
        if answer.status != 200 or not any(slot.get("is_processing") for slot in json.loads(body)):
            return
        time.sleep(0.5)
    raise TimeoutError(f"the model server is still busy after {_IDLE_SECONDS:g} s")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str, meter: Meter) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream)
        self.meter = meter
        self._open: set[HTTPConnection] = set()

    @contextmanager
    def asked(self, method: str, path: str, body: bytes | None = None) -> Iterator[HTTPResponse]:
        """Send a request to the model server and yield its answer."""
        connection = HTTPConnection(str(self.upstream.hostname), self.upstream.port, timeout=_SECONDS)
        self._open.add(connection)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            yield connection.getresponse()
        finally:
            self._open.discard(connection)
            connection.close()

    def cut_off(self) -> None:
        """End all requests. A close alone would not: another thread waits for the answer."""
        for connection in [*self._open]:
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that leave in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        with self.server.asked("GET", self.path) as answer:
            self._send(answer.status, answer.read())

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        left = self.server.meter.remaining()
        if left < _LEAST:
            self._send(403, b'{"error": {"message": "the token limit of this attempt is reached"}}')
            return
        asked = request.pop("max_completion_tokens", None) or request.get("max_tokens") or left
        request["max_tokens"] = min(asked, left)
        if request.get("stream"):
            self._stream(request)
            return
        with self.server.asked("POST", _COMPLETIONS, json.dumps(request).encode()) as answer:
            content = answer.read()
        if answer.status == 200:
            body = json.loads(content)
            text = body["choices"][0]["message"].get("content") or ""
            self.server.meter.add(request, text, body.get("usage", {}), body.get("timings", {}))
        self._send(answer.status, content)

    def _stream(self, request: dict[str, Any]) -> None:
        request["stream_options"] = {"include_usage": True}
        text = ""
        usage: dict[str, Any] = {}
        timings: dict[str, Any] = {}
        with self.server.asked("POST", _COMPLETIONS, json.dumps(request).encode()) as answer:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("content-type", "text/event-stream"))
            self.send_header("Connection", "close")
            self.end_headers()
            for line in answer:
                self.wfile.write(line)
                self.wfile.flush()
                if line.startswith(b"data: {"):
                    chunk = json.loads(line[6:])
                    usage = chunk.get("usage") or usage
                    timings = chunk.get("timings") or timings
                    for choice in chunk.get("choices", []):
                        text += choice.get("delta", {}).get("content") or ""
        self.close_connection = True
        self.server.meter.add(request, text, usage, timings)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
