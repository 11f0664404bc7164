"""The wire protocol of the scripted server: minimal HTTP/1.1 with OpenAI's chat completions."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cleveragents.models.model.conversation import Message, MessageRole, ToolRequest, Usage
from cleveragents.models.scripted_model import scripted_usage, written

if TYPE_CHECKING:
    from cleveragents.models.script import ScriptedAnswer, ScriptedFault, ScriptRunner

__all__ = ["Exchange", "HttpRequest", "NotHttp", "PromptCache", "Responder", "read_request"]

_BODY_BOUND = 64 << 20
_BYTES_A_TOKEN = 4
_LEAST_CACHED = 1024
_CACHED_STEP = 128


class NotHttp(Exception):
    """The client does not speak HTTP, or stopped in the middle."""


class _Cut(Exception):
    """The script cuts the connection at this point."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `body` is its JSON; None if it has none that can be parsed."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any = None

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "keep-alive").lower() != "close"


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Return the next request on the connection; None if the client closed it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise NotHttp from None
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    if len(words) != 3 or not length.isdigit() or int(length) > _BODY_BOUND:
        raise NotHttp
    try:
        raw = await reader.readexactly(int(length))
    except asyncio.IncompleteReadError:
        raise NotHttp from None
    try:
        body = json.loads(raw) if raw else None
    except ValueError:
        body = None
    return HttpRequest(words[0], words[1], headers, body)


class Exchange:
    """A response to one client, complete or event by event. Used by the answering task."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def whole(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send one response with its length."""
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        await self._send(self._head(status, fields) + body)

    async def open_stream(self) -> None:
        """Send the head of an event stream."""
        await self._send(
            self._head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        )

    async def event(self, data: str) -> None:
        """Send one server-sent event."""
        payload = f"data: {data}\n\n".encode("utf-8", "surrogatepass")
        await self._send(b"%x\r\n%b\r\n" % (len(payload), payload))

    async def close_stream(self) -> None:
        """End the event stream."""
        await self._send(b"0\r\n\r\n")

    async def half(self, body: bytes) -> None:
        """Send a response that is shorter than its declared length."""
        head = self._head(200, {"Content-Type": "application/json", "Content-Length": str(len(body) + 1)})
        await self._send(head + body)

    def _head(self, status: int, fields: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class PromptCache:
    """A prompt cache like OpenAI's: the longest start that a request has in common with an earlier request.

    A start consists of the model, the tools and whole messages, compared byte by byte. As at OpenAI, a start
    of less than 1,024 tokens is not cached, and cached tokens are counted in steps of 128.

    Thread safety:
        Owner: the server that created it; any thread may ask.
        Lock: `_lock` guards the known starts, for a look-up and an insertion.
        Guarantee: a request finds every start of the requests that were counted before it.
    Cancel safety: no call waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[bytes] = set()

    def usage(self, body: Mapping[str, Any]) -> Usage:
        """Return the cached and the total input tokens of a request, and cache the request."""
        start, total = b"", 0
        starts: list[tuple[bytes, int]] = []
        for part in (body.get("model"), body.get("tools"), *body["messages"]):
            written = _json(part)
            start = sha256(start + written).digest()
            total += -(-len(written) // _BYTES_A_TOKEN)
            starts.append((start, total))
        with self._lock:
            cached = max((tokens for start, tokens in starts if start in self._known), default=0)
            self._known |= {start for start, _ in starts}
        return Usage(total, 0, 0 if cached < _LEAST_CACHED else cached - cached % _CACHED_STEP)


@dataclass(frozen=True, slots=True)
class Responder:
    """Answers requests from a script. Any number concurrently."""

    scripting: ScriptRunner
    latency_seconds: float
    key: str | None
    models: tuple[str, ...]
    cache: PromptCache | None = None

    async def answer(self, request: HttpRequest, exchange: Exchange) -> bool:
        """Write the answer; return True if the connection continues, False if it must be cut."""
        try:
            await self._respond(request, exchange)
        except _Cut:
            return False
        return True

    async def _respond(self, request: HttpRequest, exchange: Exchange) -> None:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            await _error(exchange, 401, "Incorrect API key provided", code="invalid_api_key")
        elif request.path.endswith("/models"):
            listed = [{"id": model, "object": "model", "owned_by": "script"} for model in self.models]
            await exchange.whole(200, _json({"object": "list", "data": listed}))
        elif request.method == "POST" and request.path.endswith("/chat/completions"):
            await self._complete(request.body, exchange)
        else:
            await _error(exchange, 404, f"there is nothing at {request.path}")

    async def _complete(self, body: Any, exchange: Exchange) -> None:
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            await _error(exchange, 400, "the body is not a chat completion request")
            return
        messages = [_message(entry) for entry in body["messages"]]
        offered = [tool["function"]["name"] for tool in body.get("tools") or ()]
        model = str(body.get("model"))
        attached = [one for entry in body["messages"] for one in _attached(entry.get("content"))]
        answer = self.scripting.answer(messages, model=model, offered=offered, attached=attached)
        if answer is None:
            last = messages[-1].text[:80] if messages else ""
            await _error(exchange, 400, f"no rule of the script matches; the last message is {last!r}")
            return
        if self.latency_seconds + answer.delay_seconds:
            await asyncio.sleep(self.latency_seconds + answer.delay_seconds)
        streams = bool(body.get("stream"))
        if not await _misbehaves(answer.fault, exchange, streams):
            usage = scripted_usage(answer, messages)
            if self.cache is not None:
                usage = replace(self.cache.usage(body), output_tokens=usage.output_tokens)
            speech = _Speech(answer, model, usage, exchange)
            await (speech.stream() if streams else speech.whole())


async def _misbehaves(fault: ScriptedFault | None, exchange: Exchange, streams: bool) -> bool:
    """Send the scripted fault, if any; return whether it was the whole answer."""
    if fault is None:
        return False
    if fault.hang:
        await asyncio.Event().wait()
    if fault.status is not None:
        seconds = fault.retry_after_seconds
        headers = {} if seconds is None else {"Retry-After": f"{seconds:g}"}
        await _error(exchange, fault.status, fault.message, code=fault.code, headers=headers)
        return True
    if fault.raw is None:
        return False
    if not streams:
        await exchange.whole(200, "\n".join(fault.raw).encode())
        return True
    await exchange.open_stream()
    for data in fault.raw:
        await exchange.event(data)
    await exchange.close_stream()
    return True


@dataclass(frozen=True, slots=True)
class _Speech:
    """One answer in progress."""

    answer: ScriptedAnswer
    model: str
    usage: Usage
    exchange: Exchange

    @property
    def finish(self) -> str:
        if self.answer.cut_off:
            return "length"
        return "tool_calls" if self.answer.calls else "stop"

    async def whole(self) -> None:
        text = self.answer.text * self.answer.repeat
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.answer.calls:
            message["tool_calls"] = [self._call(number) for number in range(len(self.answer.calls))]
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        body = _json(self._envelope("chat.completion", [choice]) | self._said_usage())
        if self.answer.fault is not None and self.answer.fault.cut_after is not None:
            await self.exchange.half(body[: len(body) // 2])
            raise _Cut
        await self.exchange.whole(200, body)

    async def stream(self) -> None:
        await self.exchange.open_stream()
        deltas: list[dict[str, Any]] = [
            {"role": "assistant", "content": piece} for piece in self.answer.pieces()
        ]
        for number in range(len(self.answer.calls)):
            deltas += self._call_deltas(number)
        cut_after = None if self.answer.fault is None else self.answer.fault.cut_after
        for number, delta in enumerate(deltas[:cut_after]):
            if number and self.answer.piece_seconds:
                await asyncio.sleep(self.answer.piece_seconds)
            await self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        if cut_after is not None:
            raise _Cut
        await self._chunk([{"index": 0, "delta": {}, "finish_reason": self.finish}])
        if not self.answer.usage.unsaid:
            await self.exchange.event(
                _json(self._envelope("chat.completion.chunk", []) | self._said_usage()).decode()
            )
        await self.exchange.event("[DONE]")
        await self.exchange.close_stream()

    async def _chunk(self, choices: list[dict[str, Any]]) -> None:
        await self.exchange.event(_json(self._envelope("chat.completion.chunk", choices)).decode())

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": "scripted", "object": kind, "created": 0, "model": self.model, "choices": choices}

    def _said_usage(self) -> dict[str, Any]:
        if self.answer.usage.unsaid:
            return {}
        usage = self.usage
        return {
            "usage": {
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
                "total_tokens": usage.total,
                "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            }
        }

    def _call(self, number: int) -> dict[str, Any]:
        call = self.answer.calls[number]
        function = {"name": call.tool, "arguments": written(call)}
        return {"id": call.id or f"call_{number}", "type": "function", "function": function}

    def _call_deltas(self, number: int) -> list[dict[str, Any]]:
        """Return deltas like those of providers: first the name, then the arguments in pieces."""
        whole = self._call(number)
        arguments = whole["function"]["arguments"]
        begun = whole | {"index": number, "function": {"name": whole["function"]["name"], "arguments": ""}}
        size = max(16, len(arguments) // 64)
        pieces = [arguments[start : start + size] for start in range(0, len(arguments), size)]
        rest = [{"index": number, "function": {"arguments": piece}} for piece in pieces]
        return [{"tool_calls": [delta]} for delta in (begun, *rest)]


async def _error(
    exchange: Exchange,
    status: int,
    message: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    error = {"message": message, "type": "scripted", "param": None, "code": code}
    await exchange.whole(status, _json({"error": error}), headers)


def _message(entry: Mapping[str, Any]) -> Message:
    calls = entry.get("tool_calls") or ()
    return Message(
        role=MessageRole("system" if entry.get("role") == "developer" else entry.get("role")),
        text=_text(entry.get("content")),
        requests=tuple(ToolRequest(str(call.get("id")), call["function"]["name"], {}) for call in calls),
        request_id=entry.get("tool_call_id"),
    )


def _text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(part.get("text", "")) for part in content)


def _attached(content: str | Sequence[Mapping[str, Any]] | None) -> list[str]:
    """Return the media types of the files in a message, from their data URLs."""
    parts = () if content is None or isinstance(content, str) else content
    urls = [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]
    urls += [part["file"]["file_data"] for part in parts if part.get("type") == "file"]
    return [url.removeprefix("data:").partition(";")[0] for url in urls]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
