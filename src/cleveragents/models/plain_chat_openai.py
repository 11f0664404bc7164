"""LangChain's OpenAI client without the conversion overhead of the libraries.

OpenAI's library inspects every value of every message to find out whether it must be renamed. It also builds
an object for every value of every streamed chunk, and LangChain converts each of them again. For a long
conversation this takes longer than all other work of a call. This client therefore writes messages in the
protocol's format, sends them over the library's connections, and parses the streamed chunks itself. The
request body is the same.

An answer is a stream of server-sent events, each with a chunk as JSON. Only a few fields of each chunk are
read; the others are ignored.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import openai
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from cleveragents.core.json_value import thaw
from cleveragents.models.langchain_model import CallChunk, ChatInput, ReplyChunk, RequestNumbers, ThoughtChunk
from cleveragents.models.model.attachment import Attachment, MediaType
from cleveragents.models.model.conversation import Message, MessageRole, Thought, Usage

__all__ = ["DONE", "EventLines", "PlainChatOpenAI", "StreamFailed", "piece_of"]


_DEVELOPED = re.compile(r"^o\d")
"""Models whose system role is called `developer`."""

_REASONING = "reasoning_content"

DONE = b"[DONE]"
"""The data of the last event of a stream."""
_LONGEST_EVENT = 1 << 25


class PlainChatOpenAI(ChatOpenAI):
    """A `ChatOpenAI` that streams pieces directly. The request body is the same."""

    async def pieces(self, talk: ChatInput) -> AsyncGenerator[ReplyChunk, None]:
        """Make one call and yield its pieces, like `StreamsChunks.pieces`.

        Raises `openai.APIStatusError`, the errors of the library's transport, `StreamFailed`, and
        `ValueError` for a malformed chunk.
        """
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
            if not spoke:  # guard: a web page instead of a stream is a wrong address, not a lost connection
                kind = response.headers.get("content-type", "something")
                raise ValueError(f"got {kind} instead of a stream; check the base URL")
        finally:
            await response.aclose()

    def _body(self, talk: ChatInput) -> bytes:
        body = self._get_request_payload(
            [], stream=True, stream_options={"include_usage": True}, **talk.options
        )
        body.update(body.pop("extra_body", None) or {})
        system = "developer" if _DEVELOPED.match(self.model_name) else "system"
        body["messages"] = _messages(talk, system)
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


def _messages(talk: ChatInput, system: str) -> list[dict[str, Any]]:
    """Return the conversation in the protocol's format, with all system messages joined into one at the
    start.
    """
    numbers, messages, names = RequestNumbers(), talk.messages, talk.names
    attachments = talk.attachments
    told: list[dict[str, Any]] = []
    said = [message.text for message in messages if message.role is MessageRole.SYSTEM]
    if said:
        told.append({"content": "\n\n".join(said), "role": system})
    for message in messages:
        if message.role is MessageRole.USER:
            told.append({"content": _user_content(message.text, attachments), "role": "user"})
            attachments = ()
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
            answer = {"content": message.text or None, "role": "assistant", "tool_calls": calls}
            told.append(answer | _reasoning(message, talk.model))
        elif message.role is MessageRole.ASSISTANT and message.text:
            told.append({"content": message.text, "role": "assistant"})
    return told


def _user_content(text: str, attachments: Sequence[Attachment]) -> str | list[dict[str, Any]]:
    if not attachments:
        return text
    parts: list[dict[str, Any]] = []
    for number, one in enumerate(attachments, start=1):
        url = f"data:{one.media_type.value};base64,{one.base64}"
        if one.media_type is MediaType.PDF:
            # Not its own name: the prompt has it, and the server reads this one as a file name.
            file = {"filename": f"attachment-{number}.pdf", "file_data": url}
            parts.append({"type": "file", "file": file})
        else:
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return [*parts, {"type": "text", "text": text}]


def _reasoning(message: Message, model: str) -> dict[str, str]:
    """Return the reasoning that `model` wrote before its tool calls.

    DeepSeek and Kimi reject a tool loop without it. The field is sent only to servers that write
    `reasoning_content`, because others may reject it.
    """
    own = [str(thought.block[_REASONING]) for thought in message.thoughts if _is_own(thought, model)]
    return {_REASONING: "".join(own)} if own else {}


def _is_own(thought: Thought, model: str) -> bool:
    return thought.model == model and _REASONING in thought.block


def _refused(response: Any) -> openai.APIStatusError:
    """Return the error that the library would raise for this response."""
    said = response.text.strip()
    try:
        body = json.loads(said)
    except ValueError:
        body = said
    words = f"Error code: {response.status_code} - {said}"
    inner = body.get("error", body) if isinstance(body, dict) else body
    return openai.APIStatusError(words, response=response, body=inner)


class StreamFailed(Exception):
    """The provider reported an error within the stream. `body` is the reported error."""

    def __init__(self, body: object) -> None:
        super().__init__(str(body))
        self.body = body
        # The attribute that `failures` reads.
        self.code = body.get("code") if isinstance(body, dict) else None


class EventLines:
    """A parser that assembles server-sent events from chunks of bytes.

    Not thread-safe: each call has its own.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._begun = False

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of each complete event; events without data are skipped.

        Raises `ValueError` if an event exceeds the maximum size.
        """
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
        if len(self._rest) + self._data_bytes > _LONGEST_EVENT:  # guard: an endless event is not kept
            raise ValueError(f"an event exceeds {_LONGEST_EVENT} bytes")

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Return the complete lines, with their line ends. An LF may still follow a final CR."""
        self._rest += chunk
        if b"\n" not in chunk and b"\r" not in chunk:  # without this, a long line is copied with every chunk
            return []
        lines = bytes(self._rest).splitlines(keepends=True)
        self._rest = bytearray(b"" if lines[-1].endswith(b"\n") else lines.pop())
        if lines and not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        return lines


def piece_of(data: bytes) -> ReplyChunk:
    """Parse the piece in an event. Raises `StreamFailed`, or `ValueError` for a malformed chunk."""
    chunk = _chunk(data)
    if chunk.error:
        raise StreamFailed(chunk.error)
    piece = ReplyChunk(usage=_taken(chunk.usage, chunk.timings))
    if chunk.choices:
        choice = chunk.choices[0]
        piece.ended = choice.finish_reason or None
        delta = choice.delta or _Delta()
        piece.text = _text(delta.content)
        piece.calls = [_call(call) for call in delta.tool_calls or ()]
        if isinstance(delta.reasoning_content, str) and delta.reasoning_content:
            piece.thoughts = [ThoughtChunk(_REASONING, {_REASONING: delta.reasoning_content})]
    return piece


def _chunk(data: bytes) -> _Chunk:
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Some servers write lone surrogates or NaN, which Python's parser accepts.
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
    reasoning_content: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    timings: Any = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):  # some servers send a list of parts; only text parts have `text`
        return "".join(part.text or "" for part in content)
    return content or ""


def _call(call: _Call) -> CallChunk:
    function = call.function or _Function()
    return CallChunk(call.index, call.id or "", function.name or "", function.arguments or "")


def _taken(said: object, timings: object) -> Usage | None:
    """Return the readable part of the usage. A malformed usage does not discard the answer.

    Older versions of llama.cpp report cached tokens only in their `timings`, DeepSeek beside the usage.
    """
    if not isinstance(said, dict):
        return None
    details = said.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if cached is None:
        cached = said.get("prompt_cache_hit_tokens")
    if cached is None and isinstance(timings, dict):
        cached = timings.get("cache_n")
    return Usage.reported(said.get("prompt_tokens"), said.get("completion_tokens"), cached)
