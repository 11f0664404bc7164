"""An answer as OpenAI's protocol streams it: events of a server, each a piece as JSON.

A handful of values are read of each piece; all else it may have is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from cleveragents.domain.conversation import Usage
from cleveragents.infrastructure.models.pieces import CallPiece, Piece

__all__ = ["DONE", "EventLines", "StreamFailed", "piece_of"]

DONE = b"[DONE]"
"""The data of the event that ends a stream."""


class StreamFailed(Exception):
    """The provider says in the middle of its answer that it failed; `body` is what it says."""

    def __init__(self, body: object) -> None:
        super().__init__(str(body))
        self.body = body
        # By the names that those who read failures look for.
        self.code = body.get("code") if isinstance(body, dict) else None


class EventLines:
    """Puts events together from bytes as they come. Not thread-safe: the call's own."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """The data of each event that is whole by now. One that never ends is none."""
        lines = (self._rest + chunk).splitlines(keepends=True)
        # A line that ends in CR may go on with LF.
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for ended in lines:
            line = ended.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                yield b"\n".join(self._data)
                self._data = []


def piece_of(data: bytes) -> Piece:
    """The piece that an event holds. `StreamFailed`; `ValueError` for what is no piece."""
    chunk = _chunk(data)
    if chunk.error:
        raise StreamFailed(chunk.error)
    piece = Piece(usage=_taken(chunk.usage))
    if chunk.choices:
        choice = chunk.choices[0]
        piece.ended = choice.finish_reason or None
        delta = choice.delta or _Delta()
        piece.text = _text(delta.content)
        piece.calls = [_call(call) for call in delta.tool_calls or ()]
    return piece


def _chunk(data: bytes) -> _Chunk:
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Half a character, or a number that is none: some servers write them, and Python reads them.
        return msgspec.convert(json.loads(data.decode("utf-8", "replace")), _Chunk)


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: Any = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct):
    text: str | None = None


class _Delta(msgspec.Struct):
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):  # some servers give parts, of which those that are text have it so
        return "".join(part.text or "" for part in content)
    return content or ""


def _call(call: _Call) -> CallPiece:
    function = call.function or _Function()
    return CallPiece(call.index, call.id or "", function.name or "", function.arguments or "")


def _taken(said: _Usage | None) -> Usage | None:
    if said is None:
        return None
    details = said.prompt_tokens_details or _Details()
    return Usage(said.prompt_tokens or 0, said.completion_tokens or 0, details.cached_tokens or 0)
