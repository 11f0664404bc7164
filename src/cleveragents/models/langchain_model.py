"""A model behind a LangChain chat model: one adapter for all providers that LangChain speaks to.

Always streamed, because that is how a cancelled call ends at once, and how an answer that was cut off is told
from one that ended: a stream without a reason for its end is a connection that was lost. Tool calls are put
together from their pieces here, and parsed strictly: LangChain would complete a half-written call and hand it
over as a whole one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cleveragents.core.errors import CleverAgentsError, ModelRefused, ModelUnavailable
from cleveragents.core.json_value import JsonValue, freeze, thaw
from cleveragents.models.failures import Subject, may_be_charged, translated
from cleveragents.models.langchain_messages import (
    CallPiece,
    Piece,
    SpeaksInPieces,
    Talk,
    ToolNames,
    lc_tools,
    pieces_of,
    tool_request,
    well_formed,
)
from cleveragents.models.model.conversation import Message, Role, Usage
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.models.tokens import Estimator

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

__all__ = ["LangChainModel"]

_CUT_OFF = frozenset({"length", "max_tokens", "model_context_window_exceeded"})
_FILTERED = frozenset(
    {"content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
)
_BROKEN = frozenset({"malformed_function_call", "unexpected_tool_call", "error", "other"})
_CHARACTERS_A_TOKEN = 64
_CHARACTERS_SPARE = 65_536

Options = Callable[[ModelRequest], Mapping[str, Any]]


class LangChainModel:
    """`Model` on a chat model. `options` turns a request into what the provider's class takes as arguments
    of a call; `sums_usage` says whether its pieces of usage add up, or each says what there was so far;
    `tells_schema`, whether the model is told the shape of its answer in words. `place` is as for `Subject`.

    Any number of calls may run at once, on any loop: the chat model keeps no connection between calls.
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
        self._speak = chat.pieces if isinstance(chat, SpeaksInPieces) else partial(pieces_of, chat)
        self._facts = facts
        self._options = options
        self._keys = keys
        self._place = place
        self._sums_usage = sums_usage
        self._tells_schema = tells_schema
        self._estimator = Estimator()

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._estimator.count(request)

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """As `Model.reply`, without retries. `on_token` gets an empty text when a tool call begins: from then
        on the answer has begun. A failure says whether the provider may charge for it: for all that comes
        after the first piece, thoughts that nobody is told among it."""
        names = ToolNames([tool.name for tool in request.tools])
        heard = _Heard(names, request.max_output_tokens, self._sums_usage)
        tell = on_token or _nobody
        async with aclosing(self._pieces(request, names)) as pieces:
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

    def _subject(self, request: ModelRequest) -> Subject:
        facts = self._facts
        return Subject(facts.name, self.count_tokens(request), facts.context_tokens, self._keys, self._place)

    def _pieces(self, request: ModelRequest, names: ToolNames) -> AsyncGenerator[Piece, None]:
        messages = [*request.messages]
        if request.schema is not None and self._tells_schema:
            messages.append(_schema_in_words(request.schema))
        return self._speak(Talk(messages, names, lc_tools(request, names), self._options(request)))


def _schema_in_words(schema: Mapping[str, JsonValue]) -> Message:
    shape = json.dumps(thaw(freeze(schema)), ensure_ascii=False)
    said = f"Answer with one JSON object and nothing else. It has to fit this JSON Schema: {shape}"
    return Message(Role.SYSTEM, said)


def _nobody(piece: str) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class _Writing:
    """A tool call that is being written."""

    id: str = ""
    tool: str = ""
    written: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Heard:
    """What came so far of one answer. Used by the task that makes the call."""

    names: ToolNames
    max_output_tokens: int
    sums_usage: bool
    text: list[str] = field(default_factory=list)
    calls: list[_Writing] = field(default_factory=list)
    open: dict[object, _Writing] = field(default_factory=dict)
    usage: Usage | None = None
    ended: str | None = None
    length: int = 0
    begun: bool = False

    @property
    def endless(self) -> bool:
        """A server that does not keep to the limit is not listened to for ever."""
        return self.length > _CHARACTERS_A_TOKEN * self.max_output_tokens + _CHARACTERS_SPARE

    def take(self, piece: Piece) -> str | None:
        """Adds a piece; what a listener gets of it, if anything."""
        self.begun = True
        if piece.ended:
            self.ended = piece.ended.lower()
        if piece.usage is not None:
            before = [self.usage] if self.usage is not None and self.sums_usage else []
            self.usage = Usage.sum([*before, piece.usage])
        text = piece.text
        if text:
            self.text.append(text)
            self.length += len(text)
        began = [self._take_call(call) for call in piece.calls]
        if text:
            return text
        return "" if any(began) else None

    @property
    def took(self) -> tuple[int, int, int] | None:
        """What the provider says it took, once it has said all: before, there is more to come."""
        if self.usage is None or self.ended is None:
            return None
        return self.usage.input_tokens, self.usage.output_tokens, self.usage.cached_tokens

    def charged(self, failure: CleverAgentsError, error: Exception) -> CleverAgentsError:
        """The failure, with what it costs."""
        if not isinstance(failure, ModelUnavailable | ModelRefused):
            return failure
        if not self.begun and not (isinstance(failure, ModelUnavailable) and may_be_charged(error)):
            return failure
        return replace(failure, charged=True, took=self.took)

    def _take_call(self, call: CallPiece) -> bool:
        """Adds a piece of a call; whether a new one began. An id that changes begins one, as some servers
        give all calls the same index."""
        writing = self.open.get(call.index)
        began = writing is None or bool(call.id and writing.id and call.id != writing.id)
        if writing is None or began:
            writing = self.open[call.index] = _Writing()
            self.calls.append(writing)
        writing.id = writing.id or call.id
        writing.tool += call.tool
        writing.written.append(call.written)
        self.length += len(call.written)
        return began

    def reply(self, model: str) -> ModelReply:
        """The whole answer; `ModelUnavailable` if it did not come to its end, `ModelRefused` if a filter
        stopped it."""
        cut_off = self.endless or self.ended in _CUT_OFF
        if self.ended is None and not self.endless:  # guard: half an answer is not an answer
            lost = "the connection was lost in the middle of the answer"
            raise ModelUnavailable(model, lost, charged=True)
        text = well_formed("".join(self.text))
        if self.ended in _FILTERED:
            stopped = f"the provider stopped the answer ({self.ended}); say it otherwise"
            raise ModelRefused(model, stopped, charged=True, took=self.took)
        if self.ended in _BROKEN and not self.calls:
            broken = f"the answer broke off ({self.ended})"
            raise ModelUnavailable(model, broken, charged=True, took=self.took)
        requests = tuple(
            tool_request(
                call.id or f"call_{number}",
                self.names.inside(call.tool),
                "".join(call.written),
                # Only the last one can have been cut off by the end of the answer.
                cut_off=cut_off and number == len(self.calls) - 1,
            )
            for number, call in enumerate(self.calls)
        )
        message = Message(Role.ASSISTANT, text, requests)
        return ModelReply(message, model, self.usage, cut_off)
