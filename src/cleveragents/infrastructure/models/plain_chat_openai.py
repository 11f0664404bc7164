"""LangChain's client for OpenAI's protocol, without the libraries' walk through what is sent and answered.

OpenAI's library looks at every value of every message and tool to find out whether its type wants it spelt
otherwise, and makes an object of every value of every piece of an answer, of which LangChain makes others.
For a conversation that takes longer than everything else that is done for a call. What LangChain makes of
messages is spelt as the protocol wants it already, and of an answer we read a handful of values. So the body
is sent as it is, and pieces are read as they come over the wire; the connection, the key and the errors stay
the library's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import openai
from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI

from cleveragents.domain.conversation import Usage
from cleveragents.infrastructure.models.pieces import CallPiece, Piece

__all__ = ["PlainChatOpenAI"]


class PlainChatOpenAI(ChatOpenAI):
    """`ChatOpenAI`; in pieces, the bytes it sends are the same."""

    async def pieces(
        self, told: list[BaseMessage], tools: list[dict[str, Any]], options: Mapping[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        """As `SpeaksInPieces.pieces`. What the library raises, and `msgspec.ValidationError` for
        a piece of another shape."""
        body = self._get_request_payload(told, stream=True, stream_options={"include_usage": True}, **options)
        body.update(body.pop("extra_body", None) or {})
        if tools:
            body["tools"] = tools
        stream = await self.root_async_client.post(
            "/chat/completions",
            body=body,
            options={"security": {"bearer_auth": True}},
            cast_to=object,
            stream=True,
            stream_cls=openai.AsyncStream[Any],
        )
        async with stream:
            async for chunk in stream:
                yield _piece(msgspec.convert(chunk, _Chunk))


# What is read of a piece; all else it may have is left alone.
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


def _piece(chunk: _Chunk) -> Piece:
    piece = Piece(usage=_taken(chunk.usage))
    if chunk.choices:
        choice = chunk.choices[0]
        piece.ended = choice.finish_reason or None
        delta = choice.delta or _Delta()
        piece.text = _text(delta.content)
        piece.calls = [_call(call) for call in delta.tool_calls or ()]
    return piece


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
