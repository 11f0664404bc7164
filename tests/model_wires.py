"""Small fake servers of Anthropic and Google: enough of each protocol for one adapter's round trip."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Mapping[str, str], bytes]
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}


@dataclass
class Wire:
    """One server: the received requests, and its answers."""

    answer: Callable[[str], Answer]
    bodies: list[Any] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(answer: Callable[[str], Answer]) -> Iterator[Wire]:
    """Run a server; `answer` gets the text of the last message in any protocol."""
    wire = Wire(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            wire.bodies.append(body)
            wire.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, headers, raw = wire.answer(_last_text(body))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    wire.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield wire
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _last_text(body: Mapping[str, Any]) -> str:
    last = (body.get("messages") or body.get("contents"))[-1]
    return json.dumps(last.get("content") or last.get("parts"))


def anthropic(said: str) -> Answer:
    if "busy" in said:
        return 529, {**JSON, "Retry-After": "3"}, _anthropic_error("overloaded_error", "Overloaded")
    if "too long" in said:
        message = "prompt is too long: 250000 tokens > 200000 maximum"
        return 400, JSON, _anthropic_error("invalid_request_error", message)
    if "key" in said:
        return 401, JSON, _anthropic_error("authentication_error", "invalid x-api-key")
    events = _anthropic_events("max_tokens" if "limit" in said else "tool_use")
    if "refuse" in said:
        events = [events[0], *_anthropic_end("refusal")]
    shown = events[:4] if "cut" in said else events
    return 200, EVENTS, "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in shown).encode()


def _anthropic_events(reason: str) -> list[dict[str, Any]]:
    usage = {"input_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0}
    start = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "claude"}
    ends = {"stop_reason": None, "stop_sequence": None}
    pieces = ['{"path": ', '"a"}']
    return [
        {"type": "message_start", "message": {**start, **ends, "usage": {**usage, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
            for text in ("Hello ", "there")
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "mail_send", "input": {}},
        },
        *(
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 1},
        *_anthropic_end(reason),
    ]


def _anthropic_end(reason: str) -> list[dict[str, Any]]:
    usage = {"input_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0}
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {**usage, "output_tokens": 9}},
        {"type": "message_stop"},
    ]


def _anthropic_error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def google(said: str) -> Answer:
    if "busy" in said:
        detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}
        return 429, JSON, _google_error(429, "RESOURCE_EXHAUSTED", "quota", [detail])
    if "too long" in said:
        message = "The input token count (250000) exceeds the maximum number of tokens allowed (200000)."
        return 400, JSON, _google_error(400, "INVALID_ARGUMENT", message)
    if "key" in said:
        return (
            400,
            JSON,
            _google_error(400, "INVALID_ARGUMENT", "API key not valid. Pass a valid one."),
        )
    events = [
        _google_event([{"text": "Hello "}], None, 2),
        _google_event(
            [{"text": "there"}, {"functionCall": {"name": "mail_send", "args": {"path": "a"}}}],
            "MAX_TOKENS" if "limit" in said else "STOP",
            9,
        ),
    ]
    if "refuse" in said:
        events = [_google_event([], "SAFETY", 0)]
    shown = events[:1] if "cut" in said else events
    return 200, EVENTS, "".join(f"data: {json.dumps(event)}\n\n" for event in shown).encode()


def _google_event(parts: list[dict[str, Any]], reason: str | None, output: int) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}}
    if reason:
        candidate["finishReason"] = reason
    usage = {
        "promptTokenCount": 25,
        "candidatesTokenCount": output,
        "totalTokenCount": 25 + output,
        "cachedContentTokenCount": 5,
    }
    return {"candidates": [candidate], "usageMetadata": usage}


def _google_error(code: int, status: str, message: str, details: object = None) -> bytes:
    return json.dumps(
        {"error": {"code": code, "message": message, "status": status, "details": details or []}}
    ).encode()
