"""One call of a model for an llm node: how it is asked, within what the model reads and may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleveragents.actors.graph.compaction import SUMMARY_SYSTEM, Window, transcript
from cleveragents.actors.graph.run_context import NodePlace
from cleveragents.actors.graph.spending import CallCost, written
from cleveragents.actors.graph.state import State
from cleveragents.actors.model.actor import Actor, LlmNode
from cleveragents.actors.model.progress import ProgressKind
from cleveragents.core.errors import ContextTooLong
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.conversation import Message, Role, Usage
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest

__all__ = ["ModelCall"]

_COMFORT = 0.8
_SUMMARY_TOKENS = 1024
_LEAST_TRANSCRIPT = 200


@dataclass(slots=True, eq=False)
class ModelCall:
    """A call to be made at one place of a run, for a node with these tools. Not thread-safe: a step's own."""

    actor: Actor
    node: LlmNode
    place: NodePlace
    state: State
    models: Sequence[ModelFacts]
    specs: Sequence[ToolSpec]
    _asked: ModelRequest | None = None
    _counted: int = 0
    """The request that was counted last, which is mostly what is asked next, and what it takes."""

    @classmethod
    async def at(cls, actor: Actor, node: LlmNode, place: NodePlace, state: State) -> ModelCall:
        """Asks the host what the model is, once in a run, and which tools there are."""
        context, name = place.context, node.model or actor.model
        models = context.models.get(name)
        if models is None:
            models = context.host.models_nowait(name)
            if models is None:
                # On a thread: a model may have to be imported.
                models = await asyncio.to_thread(context.host.models, name)
            context.models[name] = models
        return cls(actor, node, place, state, models, await context.tools(node.tools))

    @property
    def facts(self) -> ModelFacts:
        """Of the model that is asked; it may read less than it is known for."""
        facts = self.models[0]
        room = self.place.context.rooms.get(facts.name)
        return facts if room is None else replace(facts, context_tokens=min(room, facts.context_tokens))

    @property
    def window(self) -> Window:
        """What the model can read beside the longest answer it may give."""
        facts = self.facts
        context, answer = facts.context_tokens, self._most_of(facts)
        return Window(facts.name, self._count, int(context * _COMFORT) - answer, context - answer)

    async def reply(self, messages: Sequence[Message], call: str) -> tuple[ModelReply, dict[str, Any]]:
        """The answer, and what it adds to the run's account. After a `ContextTooLong` the model's window is
        smaller, for the rest of the run."""
        request = self._request(messages)
        try:
            return await self._make(request, call, streamed=True)
        except ContextTooLong as refused:
            read = self._count(messages)
            room = _room(read, read + request.max_output_tokens, refused)
            self.place.context.rooms[self.models[0].name] = room
            self._asked = None  # the next answer has to be shorter
            raise

    async def summary(self, old: Sequence[Message], number: int) -> tuple[str | None, dict[str, Any]]:
        """A summary, and what it adds to the account; None where the model cannot even read that."""
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
        purse = place.context.account.purse(self.actor, self.state)
        async with purse.reserved(cost.worst(priced=purse.counts_money)) as booking:
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
                schema=self.node.schema,
            )
        return asked

    def _summary_request(self, text: str) -> ModelRequest | None:
        most = min(_SUMMARY_TOKENS, self._most_of(self.facts))
        while len(text) >= _LEAST_TRANSCRIPT:
            messages = (Message(Role.SYSTEM, SUMMARY_SYSTEM), Message(Role.USER, text))
            request = ModelRequest(messages=messages, max_output_tokens=most)
            if self.place.context.host.count_tokens(self._model, request) + most <= self.facts.context_tokens:
                return request
            text = _middle_cut(text, len(text) // 2)
        return None

    def _count(self, messages: Sequence[Message]) -> int:
        request = self._request(messages)
        self._counted = self.place.context.host.count_tokens(self._model, request)
        self._asked = request
        return self._counted

    def _counted_in(self, request: ModelRequest) -> int:
        if request is self._asked:  # a summary is another one
            return self._counted
        return self.place.context.host.count_tokens(self._model, request)

    @property
    def _model(self) -> str | None:
        return self.node.model or self.actor.model

    def _most_of(self, facts: ModelFacts) -> int:
        """The longest answer of such a model."""
        wanted = self.node.max_output_tokens
        # An answer that might take the whole window would leave nothing to read.
        if wanted is None:
            return max(1, min(facts.output_tokens, facts.context_tokens // 4))
        return max(1, min(wanted, facts.output_tokens, facts.context_tokens // 2))


def _room(read: int, asked: int, refused: ContextTooLong) -> int:
    """What the model reads, as we count: less than was asked of it, by the provider's numbers if they are of
    any use, and never so little that a wrong number would leave nothing."""
    room = refused.limit * min(asked, refused.needed) // max(1, refused.needed)
    if not 0 < room < asked:  # guard: each refusal makes it smaller
        room = asked * 3 // 4
    return max(1, room, read // 4)


def _middle_cut(text: str, characters: int) -> str:
    half = characters // 2
    return f"{text[:half]}\n…\n{text[-half:]}" if half else ""
