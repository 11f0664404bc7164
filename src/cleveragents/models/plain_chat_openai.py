"""LangChain's client for OpenAI's protocol, without the libraries' walk through what is sent and answered.

OpenAI's library looks at every value of every message and tool to find out whether its type wants it spelt
otherwise, and makes an object of every value of every piece of an answer, of which LangChain makes others.
For a conversation that takes longer than everything else that is done for a call. So messages are spelt as
the protocol wants them at once, sent over the connections that the library would use, and pieces are read as
they come over the wire. What is sent is the same.

An answer as OpenAI's protocol streams it: events of a server, each a piece as JSON.

A handful of values are read of each piece; all else it may have is left alone.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import cached_property
from math import isfinite
from typing import Any

import msgspec
import openai
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from cleveragents.core.json_value import thaw
from cleveragents.models.langchain_model import CallChunk, ChatInput, ReplyChunk, RequestNumbers, ToolNames
from cleveragents.models.model.conversation import Message, MessageRole, Usage

__all__ = ["DONE", "EventLines", "PlainChatOpenAI", "StreamFailed", "piece_of"]


_DEVELOPED = re.compile(r"^o\d")
"""Models whose system is called their developer."""

DONE = b"[DONE]"
"""The data of the event that ends a stream."""
_LONGEST_EVENT = 1 << 25
_MOST_TOKENS = 1 << 40


class PlainChatOpenAI(ChatOpenAI):
    """`ChatOpenAI`; in pieces, the body it sends is the same."""

    async def pieces(self, talk: ChatInput) -> AsyncGenerator[ReplyChunk, None]:
        """As `StreamsChunks.pieces`. `openai.APIStatusError`, what the library's transport raises,
        `StreamFailed`, and `ValueError` for a piece of another shape."""
        transport = self.root_async_client._client
        request = transport.build_request(
            "POST",
            f"{str(self.root_async_client.base_url).rstrip('/')}/chat/completions",
            content=self._body(talk),
            headers=self._headers,
            timeout=self.request_timeout,
        )
        response = await transport.send(request, stream=True)
        try:
            if not response.is_success:
                await response.aread()
                raise _refused(response)
            lines, spoke = EventLines(), False
            async for chunk in response.aiter_bytes():
                for data in lines.take(chunk):
                    if data.startswith(DONE):
                        return
                    spoke = True
                    yield piece_of(data)
            if not spoke:  # guard: a page of somebody else is no connection that was lost
                kind = response.headers.get("content-type", "something")
                raise ValueError(f"{kind} in the place of an answer in pieces; is the address right?")
        finally:
            await response.aclose()

    def _body(self, talk: ChatInput) -> bytes:
        body = self._get_request_payload(
            [], stream=True, stream_options={"include_usage": True}, **talk.options
        )
        body.update(body.pop("extra_body", None) or {})
        system = "developer" if _DEVELOPED.match(self.model_name) else "system"
        body["messages"] = _messages(talk.messages, talk.names, system)
        if talk.tools:
            body["tools"] = talk.tools
        return msgspec.json.encode(body)

    @cached_property
    def _headers(self) -> dict[str, str]:
        key = self.openai_api_key
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": self.root_async_client.user_agent,
            "Authorization": f"Bearer {key.get_secret_value() if isinstance(key, SecretStr) else ''}",
            "OpenAI-Organization": self.root_async_client.organization,
            "OpenAI-Project": self.root_async_client.project,
            **(self.default_headers or {}),
        }
        return {name: value for name, value in headers.items() if value is not None}


def _messages(messages: Sequence[Message], names: ToolNames, system: str) -> list[dict[str, Any]]:
    """The conversation as the protocol spells it: what the system says in one message, at the beginning."""
    numbers = RequestNumbers()
    told: list[dict[str, Any]] = []
    said = [message.text for message in messages if message.role is MessageRole.SYSTEM]
    if said:
        told.append({"content": "\n\n".join(said), "role": system})
    for message in messages:
        if message.role is MessageRole.USER:
            told.append({"content": message.text, "role": "user"})
        elif message.role is MessageRole.TOOL:
            asked = numbers.answer(message.request_id or "")
            told.append({"content": message.text, "role": "tool", "tool_call_id": asked})
        elif message.role is MessageRole.ASSISTANT and message.requests:
            calls = [
                {
                    "type": "function",
                    "id": numbers.ask(request.id),
                    "function": {
                        "name": names.outside(request.tool),
                        "arguments": json.dumps(thaw(request.arguments), ensure_ascii=False),
                    },
                }
                for request in message.requests
            ]
            told.append({"content": message.text or None, "role": "assistant", "tool_calls": calls})
        elif message.role is MessageRole.ASSISTANT and message.text:
            told.append({"content": message.text, "role": "assistant"})
    return told


def _refused(response: Any) -> openai.APIStatusError:
    """What the library makes of such an answer."""
    said = response.text.strip()
    try:
        body = json.loads(said)
    except ValueError:
        body = said
    words = f"Error code: {response.status_code} - {said}"
    inner = body.get("error", body) if isinstance(body, dict) else body
    return openai.APIStatusError(words, response=response, body=inner)


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


def piece_of(data: bytes) -> ReplyChunk:
    """The piece that an event holds. `StreamFailed`; `ValueError` for what is no piece."""
    chunk = _chunk(data)
    if chunk.error:
        raise StreamFailed(chunk.error)
    piece = ReplyChunk(usage=_taken(chunk.usage))
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


def _call(call: _Call) -> CallChunk:
    function = call.function or _Function()
    return CallChunk(call.index, call.id or "", function.name or "", function.arguments or "")


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
