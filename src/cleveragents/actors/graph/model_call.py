"""One model call of an llm node, within the model's window and the run's limits.

A conversation that exceeds the window is shortened. First, old tool results are truncated. Then the model
summarises the oldest exchanges. If it fails, or if the summary does not fit, the oldest exchanges are
dropped. Tool requests and their results always stay together, because no provider accepts one without the
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from cleveragents.actors.graph.run_context import CallCost, NodeLabel, written
from cleveragents.actors.graph.state import State, answer_schema
from cleveragents.actors.model.actor import Actor, LlmNode, ProgressKind
from cleveragents.core.errors import ContextTooLong
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.attachment import MediaType
from cleveragents.models.model.conversation import Message, MessageRole, Usage
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest

__all__ = ["SUMMARY_SYSTEM", "FittedMessages", "NodeModelCall", "Window", "fitted", "transcript"]


_COMFORT = 0.8
_SUMMARY_TOKENS = 1024
_LEAST_TRANSCRIPT = 200

SUMMARY_SYSTEM = (
    "You summarise the work of an assistant so that it can go on from your summary alone. Say what was "
    "asked, what was found out, which files were read or changed and how, what failed and why, and what is "
    "still to be done. Names, paths and numbers exactly as they are. No more than 300 words."
)
_KEPT_EXCHANGES = 2
_HEAD_CHARACTERS = 400
_LAST_RESORTS = (8000, 2000, 500, 100)
Summarise = Callable[[Sequence[Message]], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Window:
    """The context window of a model.

    `count` returns the tokens of a request with these messages. A conversation of up to `comfortable` tokens
    is not shortened; no request may exceed `limit`.
    """

    model: str
    count: Callable[[Sequence[Message]], int]
    comfortable: int
    limit: int

    def fits(self, messages: Sequence[Message]) -> bool:
        return self.count(messages) <= self.comfortable


@dataclass(slots=True, eq=False)
class NodeModelCall:
    """A model call at one place of a run, for one node. Not thread-safe: one per step."""

    actor: Actor
    node: LlmNode
    place: NodeLabel
    state: State
    models: Sequence[ModelFacts]
    specs: Sequence[ToolSpec]
    _asked: ModelRequest | None = None
    _counted: int = 0
    """The request that was counted last, which is usually the next one sent, and its tokens."""

    @classmethod
    async def at(cls, actor: Actor, node: LlmNode, place: NodeLabel, state: State) -> NodeModelCall:
        """Create a call. Asks the host for the tools, and for the model once per run."""
        context, name = place.context, node.model or actor.model
        models = context.models.get(name)
        if models is None:
            models = context.host.models_nowait(name)
            if models is None:
                # On a thread: opening a model may import a library.
                models = await asyncio.to_thread(context.host.models, name)
            context.models[name] = models
        return cls(actor, node, place, state, models, await context.tools(node.tools))

    @property
    def facts(self) -> ModelFacts:
        """The facts about the model. Its window may be smaller than documented."""
        facts = self.models[0]
        room = self.place.context.rooms.get(facts.name)
        return facts if room is None else replace(facts, context_tokens=min(room, facts.context_tokens))

    @property
    def window(self) -> Window:
        """The part of the model's window that is left for messages, besides the longest possible answer."""
        facts = self.facts
        context, answer = facts.context_tokens, self._most_of(facts)
        return Window(facts.name, self._count, int(context * _COMFORT) - answer, context - answer)

    async def reply(self, messages: Sequence[Message], call: str) -> tuple[ModelReply, dict[str, Any]]:
        """Return the answer and its cost as an update of the run's account.

        After `ContextTooLong`, the model's window is smaller for the rest of the run.
        """
        request = self._request(messages)
        try:
            return await self._make(request, call, streamed=True)
        except ContextTooLong as refused:
            read = self._count(messages)
            room = _room(read, read + request.max_output_tokens, refused)
            self.place.context.rooms[self.models[0].name] = room
            self._asked = None  # the next answer must be shorter
            raise

    async def summary(self, old: Sequence[Message], number: int) -> tuple[str | None, dict[str, Any]]:
        """Return a summary, and its cost as an update of the account. The summary is None if even the
        transcript is too long for the model.
        """
        request = self._summary_request(transcript(old))
        if request is None:
            return None, {}
        try:
            reply, cost = await self._make(request, f"{number}-summary", streamed=False)
        except ContextTooLong:
            return None, {}
        return reply.message.text.strip() or None, cost

    async def _make(
        self, request: ModelRequest, call: str, *, streamed: bool
    ) -> tuple[ModelReply, dict[str, Any]]:
        place = self.place
        cost = CallCost(self.models, Usage(self._counted_in(request), request.max_output_tokens))
        actor_spending = place.context.account.actor_spending(self.actor, self.state)
        async with actor_spending.reserved(cost.worst(priced=actor_spending.counts_money)) as booking:
            place.tell(ProgressKind.THINKING, self.models[0].name)
            reply = await place.context.host.think(
                self._model,
                request,
                key=place.context.model_key(place.path, call),
                actor=self.actor.name,
                node=place.path,
                on_token=(lambda piece: place.tell(ProgressKind.PIECE, piece)) if streamed else None,
            )
            booking.spent = cost.of(reply)
        return reply, written(booking.spent)

    def _request(self, messages: Sequence[Message]) -> ModelRequest:
        asked = self._asked
        if asked is None or asked.messages is not messages:
            asked = ModelRequest(
                messages=messages,
                tools=self.specs,
                max_output_tokens=self._most_of(self.facts),
                temperature=self.node.temperature,
                schema=answer_schema(self.node, self.state),
                attachments=self.place.context.attachments,
            )
        return asked

    def _summary_request(self, text: str) -> ModelRequest | None:
        most = min(_SUMMARY_TOKENS, self._most_of(self.facts))
        while len(text) >= _LEAST_TRANSCRIPT:
            messages = (Message(MessageRole.SYSTEM, SUMMARY_SYSTEM), Message(MessageRole.USER, text))
            request = ModelRequest(messages=messages, max_output_tokens=most)
            if self.place.context.host.count_tokens(self._model, request) + most <= self.facts.context_tokens:
                return request
            text = _middle_cut(text, len(text) // 2)
        return None

    def _count(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a request without its PDFs. Their worst case is the whole window, which would
        leave no room for messages; only the provider knows whether they fit.
        """
        request, count = self._request(messages), self.place.context.host.count_tokens
        self._counted = count(self._model, request)
        self._asked = request
        known = [one for one in request.attachments if one.media_type is not MediaType.PDF]
        if len(known) == len(request.attachments):
            return self._counted
        return count(self._model, replace(request, attachments=known))

    def _counted_in(self, request: ModelRequest) -> int:
        if request is self._asked:  # a summary is a different request
            return self._counted
        return self.place.context.host.count_tokens(self._model, request)

    @property
    def _model(self) -> str | None:
        return self.node.model or self.actor.model

    def _most_of(self, facts: ModelFacts) -> int:
        """Return the maximum length of the model's answer."""
        wanted = self.node.max_output_tokens
        # An answer that may fill the whole window would leave no room for input.
        if wanted is None:
            return max(1, min(facts.output_tokens, facts.context_tokens // 4))
        return max(1, min(wanted, facts.output_tokens, facts.context_tokens // 2))


def _room(read: int, asked: int, refused: ContextTooLong) -> int:
    """Return the model's window in our token count, after the provider refused a request as too long. The
    window is the size of the request, scaled by the provider's numbers if they are plausible, else by
    three quarters. It is at least a quarter of `read`, so that a wrong number cannot reduce the window to
    nothing.
    """
    room = refused.limit * min(asked, refused.needed) // max(1, refused.needed)
    if not 0 < room < asked:  # guard: each refusal makes it smaller
        room = asked * 3 // 4
    return max(1, room, read // 4)


def _middle_cut(text: str, characters: int) -> str:
    half = characters // 2
    return f"{text[:half]}\n…\n{text[-half:]}" if half else ""


@dataclass(frozen=True, slots=True)
class FittedMessages:
    """Messages that fit. `asked_model` means that a summary was requested, whether or not it was used."""

    messages: list[Message]
    asked_model: bool = False


async def fitted(messages: list[Message], window: Window, summarise: Summarise) -> FittedMessages:
    """Shorten a conversation as little as possible. Raises `ContextTooLong` if it cannot be made short
    enough.
    """
    if window.fits(messages):
        return FittedMessages(messages)
    head, exchanges = _parts(messages)
    old, recent = exchanges[:-_KEPT_EXCHANGES], exchanges[-_KEPT_EXCHANGES:]
    shorter = [_cut(exchange, _HEAD_CHARACTERS) for exchange in old]
    if window.fits(_joined(head, [*shorter, *recent])):
        return FittedMessages(_joined(head, [*shorter, *recent]))
    if not old or not window.fits(_joined(head, recent)):
        return FittedMessages(_without_oldest(head, exchanges, window))
    summary = await summarise(_joined([], old))
    noted = [*head, _note(f"Your work so far, summarised:\n{summary}")]
    if summary is None or not window.fits(_joined(noted, recent)):  # guard: a summary may be too long as well
        return FittedMessages(_without_oldest(head, exchanges, window), asked_model=True)
    return FittedMessages(_joined(noted, recent), asked_model=True)


def transcript(messages: Sequence[Message]) -> str:
    """Return the messages as text, to be summarised."""
    lines = []
    for message in messages:
        lines.append(f"[{message.role.value}] {message.text}")
        lines += [f"[calls {request.tool}] {_arguments(request.arguments)}" for request in message.requests]
    return "\n".join(lines)


def _without_oldest(head: list[Message], exchanges: list[list[Message]], window: Window) -> list[Message]:
    left_out = [*head, _note("Earlier exchanges were left out to save space.")]
    for first in range(1, len(exchanges)):
        if window.fits(_joined(left_out, exchanges[first:])):
            return _joined(left_out, exchanges[first:])
    tried = head
    for characters in _LAST_RESORTS if exchanges else ():
        tried = _joined(left_out, [_cut(exchanges[-1], characters)])
        if window.fits(tried):
            return tried
    if exchanges and window.count(tried) > window.limit:
        tried = [*head, _note(f"Your last step was too long to be kept: {_named(exchanges[-1])}.")]
    needed = window.count(tried)
    if needed > window.limit:  # guard: a request beyond the window is not sent
        raise ContextTooLong(window.model, needed, window.limit)
    return tried


def _parts(messages: list[Message]) -> tuple[list[Message], list[list[Message]]]:
    """Split a conversation into its head (the instructions and the task) and its exchanges, each an answer
    with everything that follows it. An earlier summary belongs to the first exchange, so that it is
    summarised again.
    """
    first = next((n for n, message in enumerate(messages) if message.role is MessageRole.USER), 0) + 1
    exchanges: list[list[Message]] = []
    for message in messages[first:]:
        if message.role is MessageRole.ASSISTANT or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return messages[:first], exchanges


def _cut(exchange: list[Message], characters: int) -> list[Message]:
    return [
        _shortened(message, characters) if message.role is MessageRole.TOOL else replace(message, thoughts=())
        for message in exchange
    ]


def _shortened(message: Message, characters: int) -> Message:
    if len(message.text) <= characters:
        return message
    gone = len(message.text) - characters
    return replace(message, text=f"{message.text[:characters]}\n… {gone} more characters were left out")


def _joined(head: list[Message], exchanges: Sequence[Sequence[Message]]) -> list[Message]:
    return [*head, *(message for exchange in exchanges for message in exchange)]


def _note(text: str) -> Message:
    return Message(MessageRole.USER, text)


def _named(exchange: list[Message]) -> str:
    calls = [f"{request.tool}({_arguments(request.arguments)})" for m in exchange for request in m.requests]
    return ", ".join(calls) or "an answer"


def _arguments(arguments: object) -> str:
    spelt = repr(dict(arguments)) if isinstance(arguments, dict) else str(arguments)
    return spelt if len(spelt) <= _HEAD_CHARACTERS else f"{spelt[:_HEAD_CHARACTERS]}…"
