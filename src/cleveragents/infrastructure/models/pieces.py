"""A piece of an answer, as it comes: what the adapter reads of it, whichever library or wire it came by."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cleveragents.domain.conversation import Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk, BaseMessage

__all__ = ["CallPiece", "Piece", "SpeaksInPieces", "pieces_of"]


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


@runtime_checkable
class SpeaksInPieces(Protocol):
    """A chat model with a shorter way than LangChain's stream."""

    def pieces(
        self, told: list[BaseMessage], tools: list[dict[str, Any]], options: Mapping[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        """Makes one call, and gives what comes as it comes. Closing it ends the call."""
        ...


async def pieces_of(
    chat: BaseChatModel, told: list[BaseMessage], tools: list[dict[str, Any]], options: Mapping[str, Any]
) -> AsyncGenerator[Piece, None]:
    """What `SpeaksInPieces.pieces` gives, for any chat model of LangChain's."""
    speaker: Any = chat.bind_tools(tools) if tools else chat
    stream = speaker.astream(told, **options)
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
