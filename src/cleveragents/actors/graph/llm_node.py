"""The node that asks a model: one model call for each time it runs, so that each has its own checkpoint.

It runs again after the calls its model asked for were made, after an answer that was no use, and after its
conversation was summarised. Each visit is a conversation of its own; the numbers of its calls run on, because
they name the calls for good. Without tools there is nobody to make calls: a model that asks for one all the
same is told so, and its requests are not kept, for no provider takes one that was never answered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from langgraph.runtime import Runtime

from cleveragents.actors.graph.compaction import fitted
from cleveragents.actors.graph.model_call import ModelCall
from cleveragents.actors.graph.run_context import NodePlace, RunContext, path_in
from cleveragents.actors.graph.state import State, counters_in, messages_in, said
from cleveragents.actors.graph.structured import structured
from cleveragents.actors.graph.templates import filled_text
from cleveragents.actors.graph.tool_loop import not_made
from cleveragents.actors.model.actor import Actor, LlmNode
from cleveragents.actors.model.progress import ProgressKind
from cleveragents.core.errors import ActorStopped, ContextTooLong
from cleveragents.models.model.conversation import Message, Role
from cleveragents.models.ports import ModelReply

__all__ = ["MODEL", "ONWARD", "TOOLS", "LlmStep"]

# Where a conversation goes next.
MODEL = "model"
TOOLS = "tools"
ONWARD = "onward"

_MOST_CORRECTIONS = 3
_MOST_REFUSALS = 3


@dataclass(slots=True)
class _Talk:
    """A conversation while a node works on it; `kept` of its messages are in the state already."""

    messages: list[Message]
    counters: dict[str, Any]
    kept: int


class LlmStep:
    """The node of an actor that asks a model."""

    def __init__(self, actor: Actor, node: LlmNode) -> None:
        self._actor = actor
        self._node = node
        self._keys = {key.name: key for key in actor.state}

    async def think(self, state: State, runtime: Runtime[RunContext]) -> tuple[dict[str, Any], str]:
        """Makes one model call: the next answer, or a summary of what has become too long. What it writes to
        the state, and where the conversation goes next: MODEL, TOOLS or ONWARD."""
        place = NodePlace(runtime.context, self._actor.name, path_in(state, self._node.name))
        place.ensure_not_stopped()
        talk = self._talk(state, place)
        number = talk.counters["thoughts"] = talk.counters.get("thoughts", 0) + 1
        call = await ModelCall.at(self._actor, self._node, place, state)
        for refusals in range(_MOST_REFUSALS + 1):
            account, asked_model = await self._fit(talk, call, number)
            if asked_model:
                return {**account, **self._kept(talk)}, MODEL
            # A name of its own for each, because each asks something else.
            name = f"{number}-{refusals}" if refusals else f"{number}"
            try:
                reply, cost = await call.reply(talk.messages, name)
                break
            except ContextTooLong:
                if refusals == _MOST_REFUSALS:  # guard: not for ever
                    raise
        if reply.message.requests and not self._node.tools:  # guard: nobody would answer them
            await self._refuse(talk, reply, place)
            return {**cost, **self._kept(talk)}, MODEL
        update = {**cost, **self._heard(talk, reply, place), **self._kept(talk)}
        if reply.message.requests:
            return update, TOOLS
        return update, MODEL if talk.counters["open"] else ONWARD

    async def _fit(self, talk: _Talk, call: ModelCall, number: int) -> tuple[dict[str, Any], bool]:
        """Shortens the conversation to what the model reads. What that cost, and whether it was asked."""
        account: dict[str, Any] = {}
        window = call.window
        if window.fits(talk.messages):
            return account, False

        async def summarise(old: Any) -> str | None:
            summary, cost = await call.summary(old, number)
            account.update(cost)
            return summary

        fit = await fitted(talk.messages, window, summarise)
        if fit.messages is not talk.messages:
            talk.messages, talk.kept = fit.messages, 0
        return account, fit.asked_model

    def _talk(self, state: State, place: NodePlace) -> _Talk:
        name = self._node.name
        counters = counters_in(state, name)
        if counters.get("open"):
            messages = [Message.from_json(kept) for kept in messages_in(state, name)]
            return _Talk(messages, counters, len(messages))
        place.tell(ProgressKind.NODE)
        system = filled_text(self._node.system, state)
        opening = [Message(Role.SYSTEM, system)] if system else []
        opening.append(Message(Role.USER, filled_text(self._node.prompt, state)))
        for of_a_visit in ("corrections", "failures"):
            counters.pop(of_a_visit, None)
        return _Talk(opening, {**counters, "open": True}, 0)

    def _kept(self, talk: _Talk) -> dict[str, Any]:
        name = self._node.name
        if not talk.counters["open"]:  # its next visit begins anew, and nobody reads this one again
            return said(name, (), talk.counters, replacing=True)
        new = [message.to_json() for message in talk.messages[talk.kept :]]
        return said(name, new, talk.counters, replacing=not talk.kept)

    def _heard(self, talk: _Talk, reply: ModelReply, place: NodePlace) -> dict[str, Any]:
        """What the answer writes to the state; and it is added to the conversation."""
        message = reply.message
        place.tell(ProgressKind.THOUGHT, message.text)
        talk.messages = [*talk.messages, message]
        if message.requests:
            return {}
        value, problem = self._judged(reply)
        if problem:
            self._correct(talk, problem)
            return {}
        talk.counters["open"] = False
        return self._outputs(value)

    async def _refuse(self, talk: _Talk, reply: ModelReply, place: NodePlace) -> None:
        """Calls that were asked for are seen like any other, and answered in words."""
        message = reply.message
        place.tell(ProgressKind.THOUGHT, message.text)
        reason = f"there is no tool {message.requests[0].tool!r}; there are: none"
        for request in message.requests:
            talk.counters["calls"] = talk.counters.get("calls", 0) + 1
            await not_made(request, place, str(talk.counters["calls"]), reason)
        talk.messages = [*talk.messages, replace(message, requests=())]
        self._correct(talk, reason)

    def _judged(self, reply: ModelReply) -> tuple[Any, str]:
        text = reply.message.text
        if not text.strip():
            return None, "it is empty"
        if self._node.schema is None:
            # guard: half a thought is no answer
            return (None, "it was cut off at its longest; be brief") if reply.cut_off else (text, "")
        answer = structured(text, self._node.schema, cut_off=reply.cut_off)
        for name, part in (answer.value or {}).items():
            key = self._keys.get(name)
            if key is not None and not key.takes(part):  # guard: a schema may leave a type open
                return None, f"{name}: it has to be of type {key.type}"
        return answer.value, answer.problem

    def _correct(self, talk: _Talk, problem: str) -> None:
        corrections = talk.counters.get("corrections", 0) + 1
        if corrections > _MOST_CORRECTIONS:  # guard: a model that never gets it right is stopped
            reason = f"node {self._node.name} got no usable answer in {corrections} tries: {problem}"
            raise ActorStopped(self._actor.name, reason)
        talk.counters["corrections"] = corrections
        wanted = "Answer again." if self._node.schema is None else "Answer again, with the JSON object alone."
        talk.messages = [*talk.messages, Message(Role.USER, f"Your answer is of no use: {problem}. {wanted}")]

    def _outputs(self, value: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = {}
        if self._node.schema is not None:
            outputs = {name: part for name, part in value.items() if name in self._keys}
        if self._node.output is not None:
            outputs[self._node.output] = value
        return outputs
