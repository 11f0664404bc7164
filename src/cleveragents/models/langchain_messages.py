"""Our messages and tools as LangChain's, and what a model wrote as requests for tools.

On the way out names and ids are made to fit the narrowest provider: letters, digits, `_` and `-` in names;
ids that occur once. The requests of a conversation are numbered anew each time, from its beginning, so that
the same conversation is always sent as the same bytes and a provider's cache keeps knowing it.

A piece of an answer, as it comes: what the adapter reads of it, whichever library or wire it came by.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cleveragents.core.json_value import thaw, unkeepable
from cleveragents.models.model.conversation import Message, Role, ToolRequest, Usage
from cleveragents.models.ports import ModelRequest

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk, BaseMessage

__all__ = [
    "CallPiece",
    "Piece",
    "RequestNumbers",
    "SpeaksInPieces",
    "Talk",
    "ToolNames",
    "lc_messages",
    "lc_tools",
    "pieces_of",
    "tool_request",
    "well_formed",
]


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


class ToolNames:
    """Names that every provider takes, for those of the tools, and back. Immutable once made."""

    def __init__(self, names: Sequence[str]) -> None:
        self._outside: dict[str, str] = {}
        self._inside: dict[str, str] = {}
        # Those that fit as they are come first, and keep their names.
        for name in sorted(names, key=lambda name: _fitting(name) != name):
            alias = _fitting(name)
            number = 1
            while alias in self._inside:  # guard: two tools never share a name
                number += 1
                alias = f"{_fitting(name)[: _LONGEST_NAME - 4]}_{number}"
            self._outside[name] = alias
            self._inside[alias] = name

    def outside(self, name: str) -> str:
        """As the provider is told."""
        return self._outside.get(name) or _fitting(name)

    def inside(self, name: str) -> str:
        """As we call it; what no tool of ours is called stays as it is."""
        return self._inside.get(name, name)


def _fitting(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "_"


@dataclass(slots=True)
class RequestNumbers:
    """Ids of requests, each given once; an answer gets the id of the oldest request that still waits. Not
    thread-safe: made for one conversation that is told."""

    given: int = 0
    waiting: dict[str, deque[str]] = field(default_factory=dict)

    def ask(self, original: str) -> str:
        """The id of a request."""
        self.given += 1
        number = f"call_{self.given}"
        self.waiting.setdefault(original, deque()).append(number)
        return number

    def answer(self, original: str) -> str:
        """The id of the request that is answered."""
        waiting = self.waiting.get(original)
        return waiting.popleft() if waiting else original


def lc_messages(messages: Sequence[Message], names: ToolNames) -> list[BaseMessage]:
    """The conversation as LangChain has it: what the system says in one message, at the beginning."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    numbering = RequestNumbers()
    told: list[BaseMessage] = []
    system = [message.text for message in messages if message.role is Role.SYSTEM]
    if system:
        told.append(SystemMessage("\n\n".join(system)))
    for message in messages:
        if message.role is Role.USER:
            told.append(HumanMessage(message.text))
        elif message.role is Role.TOOL:
            told.append(ToolMessage(message.text, tool_call_id=numbering.answer(message.request_id or "")))
        elif message.role is Role.ASSISTANT and (message.text or message.requests):
            calls = [
                {
                    "name": names.outside(request.tool),
                    "args": thaw(request.arguments),
                    "id": numbering.ask(request.id),
                    "type": "tool_call",
                }
                for request in message.requests
            ]
            told.append(AIMessage(message.text, tool_calls=calls))
    return told


def lc_tools(request: ModelRequest, names: ToolNames) -> list[dict[str, Any]]:
    """The tools in the form that LangChain takes for every provider."""
    return [
        {
            "type": "function",
            "function": {
                "name": names.outside(tool.name),
                "description": tool.description,
                "parameters": thaw(tool.input_schema),
            },
        }
        for tool in request.tools
    ]


def well_formed(text: str) -> str:
    """The text without what no store can keep: halves of characters, and NUL."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def tool_request(call_id: str, tool: str, written: str, *, cut_off: bool) -> ToolRequest:
    """What the model wrote as a request; one that cannot be made says precisely why."""
    tool = well_formed(tool)
    if not tool:
        return ToolRequest(call_id, "", {}, "the call names no tool")
    if not written.strip():
        return ToolRequest(call_id, tool, {})
    try:
        arguments = json.loads(written, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        return ToolRequest(call_id, tool, {}, _why_no_json(error, written, cut_off))
    if not isinstance(arguments, Mapping):
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(arguments), "a single value")
        return ToolRequest(call_id, tool, {}, f"the arguments are {kind}; they have to be one JSON object")
    found = unkeepable(arguments)
    if found is not None:  # guard: no checkpoint could keep it, and the run would end there
        return ToolRequest(call_id, tool, {}, f"the arguments cannot be used: {found}; write them without")
    return ToolRequest(call_id, tool, arguments)


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _why_no_json(error: Exception, written: str, cut_off: bool) -> str:
    if cut_off:
        return (
            f"the arguments were cut off after {len(written)} characters, because the answer reached its "
            "limit; do less in one call"
        )
    if isinstance(error, RecursionError):
        return "the arguments are nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        near = written[max(error.pos - 20, 0) : error.pos + 20]
        return f"the arguments are not JSON: {error.msg} at character {error.pos + 1}, near {near!r}"
    return f"the arguments are not JSON: {error}"


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
