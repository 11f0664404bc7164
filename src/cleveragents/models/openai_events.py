"""An answer as OpenAI's protocol streams it: events of a server, each a piece as JSON.

A handful of values are read of each piece; all else it may have is left alone.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from math import isfinite
from typing import Any

import msgspec

from cleveragents.models.model.conversation import Usage
from cleveragents.models.pieces import CallPiece, Piece

__all__ = ["DONE", "EventLines", "StreamFailed", "piece_of"]

DONE = b"[DONE]"
"""The data of the event that ends a stream."""

_LONGEST_EVENT = 1 << 25
_MOST_TOKENS = 1 << 40


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
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._begun = False

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """The data of each event that is whole by now; one that never ends is none, nor is one without any.
        `ValueError` for one that is longer than anybody writes."""
        for ended in self._lines(chunk):
            line = ended.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._data_bytes += len(line)
            elif not line:
                data = b"\n".join(self._data)
                self._data, self._data_bytes = [], 0
                if data:
                    yield data
        if len(self._rest) + self._data_bytes > _LONGEST_EVENT:  # guard: what has no end is not kept
            raise ValueError(f"an event of more than {_LONGEST_EVENT} bytes")

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Those that are whole, with their ends. A line that ends in CR may go on with LF."""
        self._rest += chunk
        if b"\n" not in chunk and b"\r" not in chunk:  # else a long line is copied with every piece of it
            return []
        lines = bytes(self._rest).splitlines(keepends=True)
        self._rest = bytearray(b"" if lines[-1].endswith(b"\n") else lines.pop())
        if lines and not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        return lines


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


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):  # some servers give parts, of which those that are text have it so
        return "".join(part.text or "" for part in content)
    return content or ""


def _call(call: _Call) -> CallPiece:
    function = call.function or _Function()
    return CallPiece(call.index, call.id or "", function.name or "", function.arguments or "")


def _taken(said: object) -> Usage | None:
    """As far as it can be read: an answer is not lost for how somebody counts."""
    if not isinstance(said, dict):
        return None
    details = said.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(_count(said.get("prompt_tokens")), _count(said.get("completion_tokens")), _count(cached))


def _count(said: object) -> int:
    if not isinstance(said, int | float) or not isfinite(said):
        return 0
    # What is taken is never given back, and is a number that a store can keep.
    return min(max(int(said), 0), _MOST_TOKENS)
