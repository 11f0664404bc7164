"""An adapter for all providers that LangChain supports.

Answers are always streamed: a cancelled call then ends immediately, and a stream without a finish reason
reveals a lost connection. This module assembles tool calls from their pieces and parses them strictly,
because LangChain would complete a half-written call and return it as valid.

Outgoing names and ids have a form that every provider accepts: letters, digits, `_` and `-` in names, and
unique ids. Tool requests are numbered anew from the start of the conversation for each call, so that the same
conversation is always sent as the same bytes and provider caches keep working.

Reasoning blocks of an answer are kept with it and sent back unchanged to the same model, as Anthropic and
Google require. Gemini signs tool calls; such a signature is kept as a block of its own.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import structs
from msgspec.structs import astuple

from cleveragents.core.errors import CleverAgentsError, ModelRefused, ModelUnavailable
from cleveragents.core.json_value import JsonValue, freeze, thaw, unkeepable
from cleveragents.models.failures import FailedCall, may_have_cost, translated
from cleveragents.models.model.attachment import Attachment, MediaType
from cleveragents.models.model.conversation import Message, MessageRole, Thought, ToolRequest, Usage
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.models.tokens import Estimator

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk, BaseMessage

__all__ = [
    "CallChunk",
    "ChatInput",
    "LangChainModel",
    "ReplyChunk",
    "RequestNumbers",
    "StreamsChunks",
    "ThoughtChunk",
    "ToolNames",
    "lc_messages",
    "lc_tools",
    "pieces_of",
    "tool_request",
    "well_formed",
]


_CUT_OFF = frozenset({"length", "max_tokens", "model_context_window_exceeded"})
_FILTERED = frozenset(
    {"content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
)
_BROKEN = frozenset(
    {"malformed_function_call", "malformed_response", "unexpected_tool_call", "too_many_tool_calls"}
    | {"missing_thought_signature", "language", "error", "other"}
)
_CACHE_WRITES = ("cache_creation", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""LangChain's names for tokens stored in a prompt cache. It reports each token under one of them."""
_SCHEMA_REFUSED = re.compile(
    r"response_?(?:format|schema|json_?schema|mime_?type)|output_?(?:config|format)|json_?(?:schema|object)"
    r"|structured output|grammar",
    re.IGNORECASE,
)
_MOST_REFUSED = 2
_CHARACTERS_A_TOKEN = 64
_CHARACTERS_SPARE = 65_536
_REPEATED, _LONGEST_PERIOD = 3_000, 500
Options = Callable[[ModelRequest], Mapping[str, Any]]

_GEMINI_SIGNATURES = "__gemini_function_call_thought_signatures__"
_CALL_SIGNATURE = "function_call_signature"
"""LangChain's names for the signatures of Gemini's tool calls, in an answer and in a request."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


class LangChainModel:
    """A `Model` that calls a LangChain chat model.

    `options` converts a request into keyword arguments of the chat model. `sums_usage`: streamed usage values
    are increments, to be summed, not running totals. `tells_schema` adds the answer's schema to the prompt.
    `place` is passed to `FailedCall`.

    If the server refuses the parameter for a structured answer, this call is repeated, and all later calls
    with this schema are made, with the schema in the prompt. After two refused schemas, every schema goes
    into the prompt.

    Any number of calls may run concurrently, on any event loop: the chat model keeps no connection between
    calls.
    """

    def __init__(
        self,
        chat: BaseChatModel,
        facts: ModelFacts,
        options: Options,
        *,
        keys: tuple[str, ...] = (),
        place: str = "",
        sums_usage: bool = True,
        tells_schema: bool = False,
    ) -> None:
        self._speak = chat.pieces if isinstance(chat, StreamsChunks) else partial(pieces_of, chat)
        self._facts = facts
        self._options = options
        self._keys = keys
        self._place = place
        self._sums_usage = sums_usage
        self._tells_schema = tells_schema
        self._refused_schemas: set[bytes] = set()
        self._estimator = Estimator(facts)

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._estimator.count(request)

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """Return the answer like `Model.reply`, but without retries.

        `on_token` receives an empty string when a tool call starts, which marks the start of the answer. An
        error states whether the provider may charge for the call. Every call that fails after its first piece
        may be charged, even if that piece held only hidden reasoning.
        """
        digest = None if request.schema is None else _digest(request.schema)
        # Decided before the call: a concurrent call may be refused in the meantime.
        refused_before = self._refused_schemas
        native = digest is not None and digest not in refused_before and len(refused_before) < _MOST_REFUSED
        try:
            return await self._replied(request, on_token, native=native)
        except ModelRefused as refused:
            if digest is None or not native or refused.charged or not _SCHEMA_REFUSED.search(str(refused)):
                raise
            self._refused_schemas.add(digest)
        return await self._replied(request, on_token, native=False)

    async def _replied(
        self, request: ModelRequest, on_token: Callable[[str], None] | None, *, native: bool
    ) -> ModelReply:
        names = ToolNames([tool.name for tool in request.tools])
        heard = _Heard(names, request.max_output_tokens, self._sums_usage)
        tell = on_token or _ignore
        async with aclosing(self._pieces(request, names, native)) as pieces:
            while True:
                try:
                    piece = await anext(pieces, None)
                    told = None if piece is None else heard.take(piece)
                except Exception as error:
                    raise heard.charged(translated(error, self._subject(request)), error) from error
                if piece is None:
                    break
                if told is not None:
                    tell(told)
                if heard.endless:
                    break
        reply = heard.reply(self._facts.name)
        if reply.usage is not None:
            self._estimator.learn(request, reply.usage.input_tokens)
        return reply

    def _subject(self, request: ModelRequest) -> FailedCall:
        facts = self._facts
        return FailedCall(
            facts.name, self.count_tokens(request), facts.context_tokens, self._keys, self._place
        )

    def _pieces(
        self, request: ModelRequest, names: ToolNames, native: bool
    ) -> AsyncGenerator[ReplyChunk, None]:
        messages = [*request.messages]
        if request.schema is not None and (self._tells_schema or not native):
            messages.append(_schema_in_words(request.schema))
        asked = request if native else structs.replace(request, schema=None)
        tools = lc_tools(request, names)
        options, name = self._options(asked), self._facts.name
        return self._speak(ChatInput(messages, names, tools, options, name, request.attachments))


def _digest(schema: Mapping[str, JsonValue]) -> bytes:
    return sha256(json.dumps(thaw(freeze(schema)), sort_keys=True).encode()).digest()


def _schema_in_words(schema: Mapping[str, JsonValue]) -> Message:
    shape = json.dumps(thaw(freeze(schema)), ensure_ascii=False)
    said = f"Answer with one JSON object and nothing else. It has to fit this JSON Schema: {shape}"
    return Message(MessageRole.SYSTEM, said)


def _ignore(piece: str) -> None:
    """Ignore a piece."""


@dataclass(slots=True)
class _Writing:
    """A tool call that is still being received."""

    id: str = ""
    tool: str = ""
    signature: str = ""
    written: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Thinking:
    """A reasoning block that is still being received. `at` is as in `Thought`."""

    at: int
    block: dict[str, Any] = field(default_factory=dict)

    def take(self, piece: Mapping[str, Any]) -> None:
        for name, value in piece.items():
            before = self.block.get(name)
            joined = isinstance(value, str) and isinstance(before, str) and name != "type"
            self.block[name] = before + value if joined else value


class ToolNames:
    """A mapping between tool names and the aliases that every provider accepts. Immutable."""

    def __init__(self, names: Sequence[str]) -> None:
        self._outside: dict[str, str] = {}
        self._inside: dict[str, str] = {}
        # Valid names come first, so that they stay unchanged.
        for name in sorted(names, key=lambda name: _fitting(name) != name):
            alias = _fitting(name)
            number = 1
            while alias in self._inside:  # guard: two tools never share a name
                number += 1
                alias = f"{_fitting(name)[: _LONGEST_NAME - 4]}_{number}"
            self._outside[name] = alias
            self._inside[alias] = name

    def outside(self, name: str) -> str:
        """Return the name that the provider sees."""
        return self._outside.get(name) or _fitting(name)

    def inside(self, name: str) -> str:
        """Return the tool name for a provider's alias; unknown names are returned unchanged."""
        return self._inside.get(name, name)


@dataclass(slots=True)
class _Heard:
    """The part of an answer received so far. Used only by the task that makes the call."""

    names: ToolNames
    max_output_tokens: int
    sums_usage: bool
    text: list[str] = field(default_factory=list)
    calls: list[_Writing] = field(default_factory=list)
    open: dict[object, _Writing] = field(default_factory=dict)
    thoughts: dict[object, _Thinking] = field(default_factory=dict)
    text_length: int = 0
    usage: Usage | None = None
    ended: str | None = None
    length: int = 0
    begun: bool = False
    tail: str = ""

    @property
    def endless(self) -> bool:
        """Return whether the answer is far longer than its limit, so that a misbehaving server cannot stream
        forever, or repeats itself, as small models do.
        """
        return self.length > _CHARACTERS_A_TOKEN * self.max_output_tokens + _CHARACTERS_SPARE or self._repeats

    @property
    def _repeats(self) -> bool:
        """Return whether the last 3,000 characters repeat a text of at most 500 characters."""
        text = self.tail[-_REPEATED:]
        start = text[-_LONGEST_PERIOD:]
        period = text[::-1].find(start[::-1], 1) if len(text) == _REPEATED else -1
        return 0 < period <= _LONGEST_PERIOD and text[period:] == text[:-period]

    def take(self, piece: ReplyChunk) -> str | None:
        """Add a piece and return the text for the listener: None if there is nothing to report."""
        self.begun = True
        if piece.ended:
            self.ended = piece.ended.lower()
        if piece.usage is not None:
            before = [self.usage] if self.usage is not None and self.sums_usage else []
            total = Usage.sum([*before, piece.usage])
            # A piece may correct an earlier one, so only the sum has to be plausible.
            self.usage = Usage.reported(*astuple(total))
        text = piece.text
        if text:
            self.text.append(text)
            self.text_length += len(text)
            self.length += len(text)
            self.tail = (self.tail + text)[-_REPEATED:]
        for thought in piece.thoughts:
            self.thoughts.setdefault(thought.index, _Thinking(self.text_length)).take(thought.block)
            self.length += sum(len(value) for value in thought.block.values() if isinstance(value, str))
        began = [self._take_call(call) for call in piece.calls]
        if text:
            return text
        return "" if any(began) else None

    @property
    def took(self) -> tuple[int, int, int, int] | None:
        """Return the usage that the provider reported; None before the end, when the usage is incomplete."""
        if self.usage is None or self.ended is None:
            return None
        usage = self.usage
        return usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.written_tokens

    def charged(self, failure: CleverAgentsError, error: Exception) -> CleverAgentsError:
        """Return the error, marked as charged, with the usage, if the provider may charge for the call."""
        if not isinstance(failure, ModelUnavailable | ModelRefused):
            return failure
        if not self.begun and not (isinstance(failure, ModelUnavailable) and may_have_cost(error)):
            return failure
        return replace(failure, charged=True, took=self.took)

    def _take_call(self, call: CallChunk) -> bool:
        """Add a piece of a tool call and return whether a new call starts.

        A changed id starts a new call, because some servers give all calls the same index.
        """
        writing = self.open.get(call.index)
        began = writing is None or bool(call.id and writing.id and call.id != writing.id)
        if writing is None or began:
            writing = self.open[call.index] = _Writing()
            self.calls.append(writing)
        writing.id = writing.id or call.id
        writing.tool += call.tool
        writing.signature = call.signature or writing.signature
        writing.written.append(call.written)
        self.length += len(call.written)
        return began

    def reply(self, model: str) -> ModelReply:
        """Return the complete answer.

        Raises `ModelUnavailable` if the answer is incomplete, `ModelRefused` if a content filter stopped it.
        """
        cut_off = self.endless or self.ended in _CUT_OFF
        if self.ended is None and not self.endless:  # guard: an incomplete answer is not an answer
            lost = "the connection was lost during the answer"
            raise ModelUnavailable(model, lost, charged=True)
        text = well_formed("".join(self.text))
        if self.ended in _FILTERED:
            stopped = (
                f"the content filter of the provider stopped the answer ({self.ended}); rephrase the request"
            )
            raise ModelRefused(model, stopped, charged=True, took=self.took)
        if self.ended in _BROKEN and not self.calls:
            broken = f"the answer ended early ({self.ended})"
            raise ModelUnavailable(model, broken, charged=True, took=self.took)
        requests = tuple(
            tool_request(
                call.id or f"call_{number}",
                self.names.inside(call.tool),
                "".join(call.written),
                # Only the last call can be cut off by the end of the answer.
                cut_off=cut_off and number == len(self.calls) - 1,
            )
            for number, call in enumerate(self.calls)
        )
        message = Message(MessageRole.ASSISTANT, text, requests, thoughts=self._kept_thoughts(model))
        # Before the end, the usage is incomplete; without it, the call counts at its worst case.
        usage = None if self.ended is None else self.usage
        return ModelReply(message, model, usage, cut_off)

    def _kept_thoughts(self, model: str) -> tuple[Thought, ...]:
        blocks = [(one.at, one.block) for one in self.thoughts.values()]
        blocks += [
            (self.text_length, {"type": _CALL_SIGNATURE, "index": number, "signature": call.signature})
            for number, call in enumerate(self.calls)
            if call.signature
        ]
        # A block that no checkpoint could keep is dropped: the answer is worth more.
        return tuple(Thought(model, at, block) for at, block in blocks if unkeepable(block) is None)


def _fitting(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "_"


@dataclass(slots=True)
class RequestNumbers:
    """Unique ids for the tool requests of one conversation.

    An answer gets the id of the oldest unanswered request with the same original id. Not thread-safe: create
    one each time a conversation is sent.
    """

    given: int = 0
    waiting: dict[str, deque[str]] = field(default_factory=dict)

    def ask(self, original: str) -> str:
        """Return a new id for a request."""
        self.given += 1
        number = f"call_{self.given}"
        self.waiting.setdefault(original, deque()).append(number)
        return number

    def answer(self, original: str) -> str:
        """Return the id of the request that an answer belongs to."""
        waiting = self.waiting.get(original)
        return waiting.popleft() if waiting else original


def lc_messages(
    messages: Sequence[Message], names: ToolNames, model: str = "", attachments: Sequence[Attachment] = ()
) -> list[BaseMessage]:
    """Convert a conversation to LangChain messages, with all system messages joined into one at the start.

    `model` is the receiver, which gets its own reasoning back. The `attachments` go with the first message of
    the user.
    """
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    numbering = RequestNumbers()
    told: list[BaseMessage] = []
    system = [message.text for message in messages if message.role is MessageRole.SYSTEM]
    if system:
        told.append(SystemMessage("\n\n".join(system)))
    for message in messages:
        if message.role is MessageRole.USER:
            told.append(HumanMessage(_with_attachments(message.text, attachments)))
            attachments = ()
        elif message.role is MessageRole.TOOL:
            told.append(ToolMessage(message.text, tool_call_id=numbering.answer(message.request_id or "")))
        elif message.role is MessageRole.ASSISTANT and (message.text or message.requests):
            calls = [
                {
                    "name": names.outside(request.tool),
                    "args": thaw(request.arguments),
                    "id": numbering.ask(request.id),
                    "type": "tool_call",
                }
                for request in message.requests
            ]
            told.append(AIMessage(_content(message, model), tool_calls=calls))
    return told


def _with_attachments(text: str, attachments: Sequence[Attachment]) -> str | list[str | dict[Any, Any]]:
    """Return the content of a message in LangChain's format for all providers."""
    if not attachments:
        return text
    blocks: list[str | dict[Any, Any]] = [
        {
            "type": "file" if one.media_type is MediaType.PDF else "image",
            "base64": one.base64,
            "mime_type": one.media_type.value,
        }
        for one in attachments
    ]
    return [*blocks, {"type": "text", "text": text}]


def _content(message: Message, model: str) -> str | list[str | dict[Any, Any]]:
    """Return the text of an answer, with the reasoning of `model` at its places."""
    calls = len(message.requests)
    own = [
        thought
        for thought in message.thoughts
        if thought.model == model and (thought.block.get("type") != _CALL_SIGNATURE or calls)
    ]
    if not own:
        return message.text
    blocks: list[str | dict[Any, Any]] = []
    done = 0
    for thought in own:
        blocks.append({"type": "text", "text": message.text[done : thought.at]})
        blocks.append({name: thaw(value) for name, value in thought.block.items()})
        done = max(done, thought.at)
    blocks.append({"type": "text", "text": message.text[done:]})
    return [block for block in blocks if not isinstance(block, dict) or block != {"type": "text", "text": ""}]


def lc_tools(request: ModelRequest, names: ToolNames) -> list[dict[str, Any]]:
    """Convert the tools to the format that LangChain accepts for every provider."""
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
    """Replace characters that no store accepts: lone surrogates and NUL."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def tool_request(call_id: str, tool: str, written: str, *, cut_off: bool) -> ToolRequest:
    """Parse a tool call as the model wrote it. For an invalid call, `problem` states the exact reason."""
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
        kind = {list: "a list", str: "a string", type(None): "null"}.get(type(arguments), "a single value")
        return ToolRequest(call_id, tool, {}, f"the arguments are {kind}; pass one JSON object")
    found = unkeepable(arguments)
    if found is not None:  # guard: no checkpoint could store it, which would end the run
        return ToolRequest(call_id, tool, {}, f"the arguments contain {found}; remove it")
    return ToolRequest(call_id, tool, arguments)


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _why_no_json(error: Exception, written: str, cut_off: bool) -> str:
    if cut_off:
        return (
            f"the arguments were cut off after {len(written)} characters, because the answer reached its "
            "limit; split the work into smaller calls"
        )
    if isinstance(error, RecursionError):
        return "the arguments are nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        near = written[max(error.pos - 20, 0) : error.pos + 20]
        return f"the arguments are not JSON: {error.msg} at character {error.pos + 1}, near {near!r}"
    return f"the arguments are not JSON: {error}"


@dataclass(slots=True)
class CallChunk:
    """A piece of a tool call. All pieces of one call have the same `index`."""

    index: object
    id: str
    tool: str
    written: str
    signature: str = ""
    """The provider's signature of the reasoning behind the call."""


@dataclass(slots=True)
class ThoughtChunk:
    """A piece of a reasoning block. All pieces of one block have the same `index`; their texts are joined."""

    index: object
    block: Mapping[str, Any]


@dataclass(slots=True)
class ReplyChunk:
    """A piece of a streamed answer. `ended` is the provider's finish reason."""

    text: str = ""
    ended: str | None = None
    usage: Usage | None = None
    calls: Sequence[CallChunk] = ()
    thoughts: Sequence[ThoughtChunk] = ()


@dataclass(frozen=True, slots=True)
class ChatInput:
    """The input of one call: `tools` in LangChain's format for all providers, `options` as keyword arguments
    of the chat model. `model` is the receiver, as `provider/name`. The `attachments` go with the first
    message of the user.
    """

    messages: Sequence[Message]
    names: ToolNames
    tools: list[dict[str, Any]]
    options: Mapping[str, Any]
    model: str = ""
    attachments: Sequence[Attachment] = ()


@runtime_checkable
class StreamsChunks(Protocol):
    """A chat model that streams pieces without LangChain's `astream`."""

    def pieces(self, talk: ChatInput) -> AsyncGenerator[ReplyChunk, None]:
        """Make one call and yield its pieces as they arrive. Closing the generator ends the call."""
        ...


async def pieces_of(chat: BaseChatModel, talk: ChatInput) -> AsyncGenerator[ReplyChunk, None]:
    """Stream the pieces of any LangChain chat model, like `StreamsChunks.pieces`."""
    speaker: Any = chat.bind_tools(talk.tools) if talk.tools else chat
    messages = lc_messages(talk.messages, talk.names, talk.model, talk.attachments)
    stream = speaker.astream(messages, **talk.options)
    async with aclosing(stream):
        async for chunk in stream:
            yield _piece(chunk)


def _piece(chunk: AIMessageChunk) -> ReplyChunk:
    metadata = chunk.response_metadata
    ended = metadata.get("finish_reason") or metadata.get("stop_reason")
    if (metadata.get("prompt_feedback") or {}).get("block_reason"):  # Gemini blocked the request itself
        ended = "content_filter"
    signed: Mapping[str, str] = chunk.additional_kwargs.get(_GEMINI_SIGNATURES) or {}
    calls = [
        CallChunk(
            call.get("index"),
            call.get("id") or "",
            call.get("name") or "",
            call.get("args") or "",
            signed.get(call.get("id") or "", ""),
        )
        for call in chunk.tool_call_chunks
    ]
    thoughts = _thoughts(chunk.content)
    return ReplyChunk(str(chunk.text), str(ended) if ended else None, _usage(chunk), calls, thoughts)


def _thoughts(content: str | list[str | dict[Any, Any]]) -> list[ThoughtChunk]:
    """Return the reasoning in a chunk: thinking blocks, and signatures of text blocks, without the text
    itself.
    """
    found: list[ThoughtChunk] = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") in ("thinking", "redacted_thinking"):
            kept = {name: value for name, value in block.items() if name != "index"}
            found.append(ThoughtChunk(block.get("index", object()), kept))
        elif block.get("type") == "text" and (block.get("extras") or {}).get("signature"):
            signature = block["extras"]["signature"]
            kept = {"type": "text", "text": "", "extras": {"signature": signature}}
            found.append(ThoughtChunk(object(), kept))
    return found


def _usage(chunk: AIMessageChunk) -> Usage | None:
    said = chunk.usage_metadata
    if not said:
        return None
    details: Mapping[str, Any] = said.get("input_token_details") or {}
    stored = sum(int(details.get(name) or 0) for name in _CACHE_WRITES)
    return Usage(said["input_tokens"], said["output_tokens"], int(details.get("cache_read") or 0), stored)
