"""A proxy in front of an OpenAI-compatible server: it counts the tokens of an attempt and limits them.

All harnesses reach the model through it, so they are counted alike and have the same limit. Each request may
generate as many tokens as remain. When none remain, `Meter.over` is set and requests are refused.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

__all__ = ["Meter", "proxy"]

_LEAST = 16
_TIMEOUT = httpx.Timeout(900.0, connect=10.0)


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


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str, meter: Meter) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.meter = meter

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that leave in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        answer = httpx.get(self.server.upstream + self.path.removeprefix("/v1"), timeout=_TIMEOUT)
        self._send(answer.status_code, answer.content)

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
        answer = httpx.post(f"{self.server.upstream}/chat/completions", json=request, timeout=_TIMEOUT)
        if answer.is_success:
            body = answer.json()
            text = body["choices"][0]["message"].get("content") or ""
            self.server.meter.add(request, text, body.get("usage", {}), body.get("timings", {}))
        self._send(answer.status_code, answer.content)

    def _stream(self, request: dict[str, Any]) -> None:
        request["stream_options"] = {"include_usage": True}
        text = ""
        usage: dict[str, Any] = {}
        timings: dict[str, Any] = {}
        address = f"{self.server.upstream}/chat/completions"
        with httpx.stream("POST", address, json=request, timeout=_TIMEOUT) as answer:
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("content-type", "text/event-stream"))
            self.send_header("Connection", "close")
            self.end_headers()
            for line in answer.iter_lines():
                self.wfile.write(f"{line}\n".encode())
                self.wfile.flush()
                if line.startswith("data: {"):
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
