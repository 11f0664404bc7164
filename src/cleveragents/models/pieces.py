"""A piece of an answer, as it comes: what the adapter reads of it, whichever library or wire it came by."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cleveragents.models.langchain_messages import ToolNames, lc_messages
from cleveragents.models.model.conversation import Message, Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk

__all__ = ["CallPiece", "Piece", "SpeaksInPieces", "Talk", "pieces_of"]


@dataclass(slots=True)
class CallPiece:
    """A piece of a tool call. `index` says of which; pieces of one call have the same."""

    index: object
    id: str
    tool: str
    written: str


@dataclass(slots=True)
class Piece:
    """What came at once. `ended` is the provider's word for why the answer is over."""

    text: str = ""
    ended: str | None = None
    usage: Usage | None = None
    calls: Sequence[CallPiece] = ()


@dataclass(frozen=True, slots=True)
class Talk:
    """What a chat model is told in one call: `tools` in the form that LangChain takes for all providers,
    `options` as the provider's class takes them."""

    messages: Sequence[Message]
    names: ToolNames
    tools: list[dict[str, Any]]
    options: Mapping[str, Any]


@runtime_checkable
class SpeaksInPieces(Protocol):
    """A chat model with a shorter way than LangChain's stream."""

    def pieces(self, talk: Talk) -> AsyncGenerator[Piece, None]:
        """Makes one call, and gives what comes as it comes. Closing it ends the call."""
        ...


async def pieces_of(chat: BaseChatModel, talk: Talk) -> AsyncGenerator[Piece, None]:
    """What `SpeaksInPieces.pieces` gives, for any chat model of LangChain's."""
    speaker: Any = chat.bind_tools(talk.tools) if talk.tools else chat
    stream = speaker.astream(lc_messages(talk.messages, talk.names), **talk.options)
    async with aclosing(stream):
        async for chunk in stream:
            yield _piece(chunk)


def _piece(chunk: AIMessageChunk) -> Piece:
    metadata = chunk.response_metadata
    ended = metadata.get("finish_reason") or metadata.get("stop_reason")
    calls = [
        CallPiece(call.get("index"), call.get("id") or "", call.get("name") or "", call.get("args") or "")
        for call in chunk.tool_call_chunks
    ]
    return Piece(str(chunk.text), str(ended) if ended else None, _usage(chunk), calls)


def _usage(chunk: AIMessageChunk) -> Usage | None:
    said = chunk.usage_metadata
    if not said:
        return None
    details: Mapping[str, Any] = said.get("input_token_details") or {}
    return Usage(said["input_tokens"], said["output_tokens"], int(details.get("cache_read") or 0))
