"""Small fake servers of OpenAI, Anthropic and Google: enough of each protocol for one adapter's round trip,
and the errors of each provider.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    if "think" in said:
        events = [events[0], *_anthropic_thinking(), *events[1:]]
    if "plain" in said:
        events = [*events[:5], *_anthropic_end("end_turn")]
    shown = events[:4] if "cut" in said else events
    return 200, EVENTS, anthropic_stream(shown)


def anthropic_stream(events: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def _anthropic_thinking() -> list[dict[str, Any]]:
    """Return a thinking block in pieces, with its signature, and an encrypted one."""
    deltas = [
        {"type": "thinking_delta", "thinking": "I should "},
        {"type": "thinking_delta", "thinking": "greet."},
        {"type": "signature_delta", "signature": "c2lnbmVk"},
    ]
    block = {"type": "thinking", "thinking": "", "signature": ""}
    hidden = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
    return [
        {"type": "content_block_start", "index": 10, "content_block": block},
        *({"type": "content_block_delta", "index": 10, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 10},
        {"type": "content_block_start", "index": 11, "content_block": hidden},
        {"type": "content_block_stop", "index": 11},
    ]


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
    if "think" in said:
        call = {"functionCall": {"name": "mail_send", "args": {"path": "a"}}, "thoughtSignature": "c2lnbmVk"}
        text = {"text": "Hello there", "thoughtSignature": "dGV4dA=="}
        events = [_google_event([text], None, 2), _google_event([call], "STOP", 9)]
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


# ── errors ────────────────────────────────────────────────────────────────────────────────────────

NO_DELAY: Mapping[str, str] = JSON
A_DELAY: Mapping[str, str] = {**JSON, "Retry-After": "7"}
HOURS: Mapping[str, str] = {**JSON, "Retry-After": "10800"}


def _openai_error(message: str, kind: str, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def _openai_stream(*chunks: object) -> bytes:
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode()


_OPENAI_BUSY = _openai_error(
    "Rate limit reached for gpt-4o on requests per min (RPM): Limit 3, Used 3. Please try again in 20s.",
    "requests",
    "rate_limit_exceeded",
)
_ANTHROPIC_BUSY = _anthropic_error("rate_limit_error", "Number of request tokens has exceeded your limit")
_GOOGLE_DELAY = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
_GOOGLE_BLOCKED = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {}}

ERRORS: Mapping[str, Mapping[str, Answer]] = {
    "openai": {
        "key": (
            401,
            JSON,
            _openai_error("Incorrect API key provided", "invalid_request_error", "invalid_api_key"),
        ),
        "credit": (
            402,
            JSON,
            _openai_error("Insufficient Balance", "unknown_error", "invalid_request_error"),
        ),
        "quota": (
            429,
            JSON,
            _openai_error("You exceeded your quota", "insufficient_quota", "insufficient_quota"),
        ),
        "permission": (403, JSON, _openai_error("Country not supported", "request_forbidden")),
        "model": (
            404,
            JSON,
            _openai_error("The model `m` does not exist", "invalid_request_error", "model_not_found"),
        ),
        "large": (413, {"Content-Type": "text/html"}, b"<html>Request Entity Too Large</html>"),
        "context": (
            400,
            JSON,
            _openai_error(
                "This model's maximum context length is 800 tokens. However, you requested 900 tokens.",
                "invalid_request_error",
                "context_length_exceeded",
            ),
        ),
        "busy": (429, NO_DELAY, _OPENAI_BUSY),
        "busy for 7 s": (429, A_DELAY, _OPENAI_BUSY),
        "limit": (429, HOURS, _OPENAI_BUSY),
        "failed": (500, JSON, _openai_error("The server had an error", "server_error")),
        "gateway": (502, {"Content-Type": "text/html"}, b"<html>bad gateway</html>"),
        "overloaded": (503, JSON, _openai_error("The engine is currently overloaded", "server_error")),
        "overloaded later": (
            200,
            EVENTS,
            _openai_stream({"error": {"message": "Overloaded", "type": "server_error", "code": None}}),
        ),
        "filter": (
            400,
            JSON,
            _openai_error("The prompt was filtered", "invalid_request_error", "content_filter"),
        ),
        "filtered answer": (
            200,
            EVENTS,
            _openai_stream({"choices": [{"delta": {"content": "I"}, "finish_reason": "content_filter"}]}),
        ),
    },
    "anthropic": {
        "key": (401, JSON, _anthropic_error("authentication_error", "invalid x-api-key")),
        "credit": (402, JSON, _anthropic_error("billing_error", "There is an issue with your payment")),
        "quota": (
            400,
            JSON,
            _anthropic_error("invalid_request_error", "Your credit balance is too low to access the API."),
        ),
        "permission": (403, JSON, _anthropic_error("permission_error", "Your key may not use this model")),
        "model": (404, JSON, _anthropic_error("not_found_error", "model: m")),
        "large": (413, JSON, _anthropic_error("request_too_large", "Request exceeds the maximum size")),
        "context": (
            400,
            JSON,
            _anthropic_error("invalid_request_error", "prompt is too long: 900 tokens > 800 maximum"),
        ),
        "busy": (429, NO_DELAY, _ANTHROPIC_BUSY),
        "busy for 7 s": (429, A_DELAY, _ANTHROPIC_BUSY),
        "limit": (429, HOURS, _ANTHROPIC_BUSY),
        "failed": (500, JSON, _anthropic_error("api_error", "Internal server error")),
        "gateway": (504, JSON, _anthropic_error("timeout_error", "Request timed out")),
        "overloaded": (529, JSON, _anthropic_error("overloaded_error", "Overloaded")),
        "overloaded later": (
            200,
            EVENTS,
            anthropic_stream(
                [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}]
            ),
        ),
        "filter": (
            400,
            JSON,
            _anthropic_error("invalid_request_error", "Output blocked by content filtering policy"),
        ),
        "filtered answer": anthropic("refuse"),
    },
    "google": {
        "key": google("key"),
        "permission": (403, JSON, _google_error(403, "PERMISSION_DENIED", "The key was reported as leaked")),
        "model": (404, JSON, _google_error(404, "NOT_FOUND", "models/m is not found for API version v1beta")),
        "large": (413, {"Content-Type": "text/html"}, b"<html>Request Entity Too Large</html>"),
        "context": (
            400,
            JSON,
            _google_error(
                400,
                "INVALID_ARGUMENT",
                "The input token count (900) exceeds the maximum number of tokens allowed (800).",
            ),
        ),
        "busy": (429, JSON, _google_error(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted")),
        "busy for 7 s": (429, JSON, _google_error(429, "RESOURCE_EXHAUSTED", "quota", _GOOGLE_DELAY)),
        "limit": (429, HOURS, _google_error(429, "RESOURCE_EXHAUSTED", "quota")),
        "failed": (500, JSON, _google_error(500, "INTERNAL", "An internal error has occurred")),
        "gateway": (504, JSON, _google_error(504, "DEADLINE_EXCEEDED", "Deadline expired")),
        "overloaded": (503, JSON, _google_error(503, "UNAVAILABLE", "The model is overloaded.")),
        "filter": (200, EVENTS, f"data: {json.dumps(_GOOGLE_BLOCKED)}\n\n".encode()),
        "filtered answer": google("refuse"),
    },
}
"""The errors of each provider, as its server sends them."""
