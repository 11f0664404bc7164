"""The llm node: one model call per execution, so that each call has its own checkpoint.

The node runs again after its tool calls, after an invalid answer, and after its conversation was summarised.
Whenever a run enters the node, a new conversation begins. The call numbers continue, because they are
permanent names of the calls. A node without tools cannot make tool calls. If its model requests one, the node
answers with an error and drops the request, because no provider accepts a request without an answer.

Answers with a schema are extracted from the model's text and validated. Tool calls are made one at a time,
each followed by a checkpoint.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from langgraph.runtime import Runtime
from msgspec.structs import replace

from cleveragents.actors.graph.model_call import NodeModelCall, fitted
from cleveragents.actors.graph.run_context import A_STEP, NodeLabel, RunContext, path_in, time_left
from cleveragents.actors.graph.state import (
    ACCOUNT,
    State,
    answer_schema,
    counters_in,
    filled_text,
    messages_in,
    said,
)
from cleveragents.actors.model.actor import Actor, LlmNode, ProgressKind
from cleveragents.actors.ports import ToolAnswer
from cleveragents.core.errors import ActorStopped, ContextTooLong
from cleveragents.core.json_value import JsonValue, thaw, unkeepable
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.conversation import Message, MessageRole, ToolRequest
from cleveragents.models.ports import ModelReply

__all__ = [
    "MODEL",
    "ONWARD",
    "TOOLS",
    "LlmStep",
    "StructuredAnswer",
    "ToolLoop",
    "not_made",
    "pending_requests",
    "shown_arguments",
    "structured",
]


# Where a conversation continues.
MODEL = "model"
TOOLS = "tools"
ONWARD = "onward"
_MOST_CORRECTIONS = 3
_MOST_REFUSALS = 3

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_MOST_PROBLEMS = 5

_MOST_FAILURES = 3

_EDIT, _WRITE, _NOT_FOUND = "edit", "write", "`old`"
_FAILED_EDITS = 2

_NEARBY = 10
_SAME_NOTED = 3
_MOST_SAME = 8
"""Number of calls after which an earlier failure is forgotten: a longer cycle does not count as a loop."""
_SHOWN = 120


@dataclass(slots=True)
class _Talk:
    """A conversation during a step. Its first `kept` messages are already stored in the state."""

    messages: list[Message]
    counters: dict[str, Any]
    kept: int


class LlmStep:
    """The step that calls a model."""

    def __init__(self, actor: Actor, node: LlmNode) -> None:
        self._actor = actor
        self._node = node
        self._keys = {key.name: key for key in actor.state}

    async def think(self, state: State, runtime: Runtime[RunContext]) -> tuple[dict[str, Any], str]:
        """Make one model call: the next answer, or a summary if the conversation is too long.

        Return the update of the state, and where the conversation continues: MODEL, TOOLS or ONWARD.
        """
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, self._node.name))
        place.ensure_not_stopped()
        talk = self._talk(state, place)
        number = talk.counters["thoughts"] = talk.counters.get("thoughts", 0) + 1
        call = await NodeModelCall.at(self._actor, self._node, place, state)
        for refusals in range(_MOST_REFUSALS + 1):
            account, asked_model = await self._fit(talk, call, number)
            if asked_model:
                return {**account, **self._kept(talk)}, MODEL
            # Each attempt sends a different request, so each has its own name.
            name = f"{number}-{refusals}" if refusals else f"{number}"
            try:
                reply, cost = await call.reply(talk.messages, name)
                break
            except ContextTooLong:
                if refusals == _MOST_REFUSALS:  # guard: a bounded number of attempts
                    raise
        if reply.message.requests and not self._node.tools:  # guard: no tool node would answer them
            await self._refuse(talk, reply, place)
            return {**cost, **self._kept(talk)}, MODEL
        update = {**cost, **self._heard(talk, reply, place, state), **self._kept(talk)}
        if reply.message.requests:
            return update, TOOLS
        return update, MODEL if talk.counters["open"] else ONWARD

    async def _fit(self, talk: _Talk, call: NodeModelCall, number: int) -> tuple[dict[str, Any], bool]:
        """Shorten the conversation to the model's window.

        Return the cost, and whether the model was called.
        """
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

    def _talk(self, state: State, place: NodeLabel) -> _Talk:
        name = self._node.name
        counters = counters_in(state, name)
        if counters.get("open"):
            messages = [Message.from_json(kept) for kept in messages_in(state, name)]
            return _Talk(messages, counters, len(messages))
        place.tell(ProgressKind.NODE)
        system = filled_text(self._node.system, state)
        opening = [Message(MessageRole.SYSTEM, system)] if system else []
        opening.append(Message(MessageRole.USER, filled_text(self._node.prompt, state)))
        for of_a_visit in ("corrections", "failures"):
            counters.pop(of_a_visit, None)
        return _Talk(opening, {**counters, "open": True}, 0)

    def _kept(self, talk: _Talk) -> dict[str, Any]:
        name = self._node.name
        if not talk.counters[
            "open"
        ]:  # the next visit starts a new conversation, and this one is not read again
            return said(name, (), talk.counters, replacing=True)
        new = [message.to_json() for message in talk.messages[talk.kept :]]
        return said(name, new, talk.counters, replacing=not talk.kept)

    def _heard(self, talk: _Talk, reply: ModelReply, place: NodeLabel, state: State) -> dict[str, Any]:
        """Add the answer to the conversation and return its update of the state."""
        message = reply.message
        place.tell(ProgressKind.THOUGHT, message.text)
        talk.messages = [*talk.messages, message]
        if message.requests:
            return {}
        value, problem = self._judged(reply, answer_schema(self._node, state))
        if problem:
            self._correct(talk, problem)
            return {}
        talk.counters["open"] = False
        return self._outputs(value)

    async def _refuse(self, talk: _Talk, reply: ModelReply, place: NodeLabel) -> None:
        """Report the requested calls as failed and tell the model why."""
        message = reply.message
        place.tell(ProgressKind.THOUGHT, message.text)
        reason = f"there is no tool {message.requests[0].tool!r}; available: none"
        for request in message.requests:
            talk.counters["calls"] = talk.counters.get("calls", 0) + 1
            await not_made(request, place, str(talk.counters["calls"]), reason)
        talk.messages = [*talk.messages, replace(message, requests=())]
        self._correct(talk, reason)

    def _judged(self, reply: ModelReply, schema: Mapping[str, JsonValue] | None) -> tuple[Any, str]:
        text = reply.message.text
        if not text.strip():
            return None, "the answer is empty"
        if schema is None:
            # guard: a truncated answer is not an answer
            return (None, "the answer was cut off; be brief") if reply.cut_off else (text, "")
        answer = structured(text, schema, cut_off=reply.cut_off)
        for name, part in (answer.value or {}).items():
            key = self._keys.get(name)
            if key is not None and not key.takes(part):  # guard: a schema may leave a type open
                return None, f"{name}: must be of type {key.type}"
        return answer.value, answer.problem

    def _correct(self, talk: _Talk, problem: str) -> None:
        corrections = talk.counters.get("corrections", 0) + 1
        if corrections > _MOST_CORRECTIONS:  # guard: a model that never gets it right is stopped
            reason = f"node {self._node.name} got no valid answer in {corrections} attempts: {problem}"
            raise ActorStopped(self._actor.name, reason)
        talk.counters["corrections"] = corrections
        wanted = "Answer again." if self._node.schema is None else "Answer again, with the JSON object alone."
        talk.messages = [
            *talk.messages,
            Message(MessageRole.USER, f"Your answer is invalid: {problem}. {wanted}"),
        ]

    def _outputs(self, value: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = {}
        if self._node.schema is not None:
            outputs = {name: part for name, part in value.items() if name in self._keys}
        if self._node.output is not None:
            outputs[self._node.output] = value
        return outputs


@dataclass(frozen=True, slots=True)
class StructuredAnswer:
    """The object in a model's answer, or a text for the model about the mistake in its answer."""

    value: dict[str, Any] | None
    problem: str = ""


def structured(text: str, schema: Mapping[str, JsonValue], *, cut_off: bool = False) -> StructuredAnswer:
    """Extract the JSON object from a text and validate it.

    Small models wrap the object in prose or in a code fence.
    """
    value, problem = _object_in(text)
    if value is None:
        ending = "; the answer was cut off, make it shorter" if cut_off else ""
        return StructuredAnswer(None, f"the answer is not a JSON object: {problem}{ending}")
    found = unkeepable(value)
    if found is not None:  # guard: no checkpoint could store it
        return StructuredAnswer(None, f"the answer contains {found}")
    wrong = _violations(value, schema)
    return StructuredAnswer(None, "; ".join(wrong)) if wrong else StructuredAnswer(value)


def _object_in(text: str) -> tuple[dict[str, Any] | None, str]:
    problem = "no object found"
    for number, candidate in enumerate(_candidates(text)):
        try:
            value = json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            problem = str(error) if not number else problem
            continue
        if isinstance(value, dict):
            return value, ""
        problem = f"it has type {type(value).__name__}"
    return None, problem


def _candidates(text: str) -> list[str]:
    begin, end = text.find("{"), text.rfind("}")
    widest = [text[begin : end + 1]] if 0 <= begin < end else []
    return [text.strip(), *_FENCED.findall(text), *widest]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _violations(value: dict[str, Any], schema: Mapping[str, JsonValue]) -> list[str]:
    from jsonschema import Draft202012Validator

    found = Draft202012Validator(thaw(schema)).iter_errors(value)
    errors = sorted(found, key=lambda error: [str(part) for part in error.path])
    return [f"{_place(error.path)}: {error.message[:300]}" for error in errors[:_MOST_PROBLEMS]]


def _place(path: Any) -> str:
    return ".".join(str(part) for part in path) or "the object"


class ToolLoop:
    """The step that makes the tool calls of an llm node."""

    def __init__(self, actor: Actor, node: LlmNode) -> None:
        self._actor = actor
        self._node = node

    async def call(self, state: State, runtime: Runtime[RunContext]) -> tuple[dict[str, Any], bool]:
        """Make the first call that has no answer yet.

        Return the update of the state, and whether more calls are pending. Too many identical failures, or
        the same call with the same result again and again, end the run with `ActorStopped`, but only at the
        next step. By then the answer is stored in the state, and the model sees it if the run is resumed.
        """
        name = self._node.name
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, name))
        place.ensure_not_stopped()
        request, *others = pending_requests(messages_in(state, name))
        talk = counters_in(state, name)
        update: dict[str, Any] = {}
        specs = await place.context.tools(self._node.tools)
        refusal = _refusal(request, specs)
        talk["calls"] = talk.get("calls", 0) + 1
        if refusal is not None:
            answer = await not_made(request, place, str(talk["calls"]), refusal)
        else:
            update[ACCOUNT] = {"steps": 1}
            async with place.context.account.actor_spending(self._actor, state).reserved(A_STEP):
                answer = await _used(request, place, str(talk["calls"]))
        writes = any(spec.writes for spec in specs if spec.name == request.tool)
        same = _same_in_a_row(talk, request, answer)
        problem = _repeated(talk, request, answer, writes=writes)
        if same >= _MOST_SAME:  # guard: a model that loops would go on to the limits of the plan
            problem = f"the call of {request.tool} was made {same} times in a row with the same result"
        if problem is not None:
            place.context.stopped[place.path] = problem
        text = answer.text + _advice(talk, request, answer, specs)
        if same >= _SAME_NOTED:
            text += f"\nThis call was made {same} times in a row with the same result. Do something else."
        told = Message(MessageRole.TOOL, text, (), request.id).to_json()
        return {**update, **said(name, [told], talk)}, bool(others)


def _refusal(request: ToolRequest, specs: Sequence[ToolSpec]) -> str | None:
    if request.problem is not None:
        return f"{request.tool} was not called: {request.problem}"
    known = [spec.name for spec in specs]
    if request.tool not in known:  # guard: only tools that the actor may use
        return f"there is no tool {request.tool!r}; available: {', '.join(known) or 'none'}"
    return None


def _repeated(talk: dict[str, Any], request: ToolRequest, answer: ToolAnswer, *, writes: bool) -> str | None:
    """Count identical failures of a call. Return the reason to stop if there are too many, else None.

    A successful call resets the count only if it may have changed something. A read between two identical
    failing edits does not reset it.
    """
    if not answer.failed:
        if writes:
            talk.pop("failures", None)
        return None
    number, failing = talk["calls"], _digest(request, answer.text)
    failures = {
        digest: [times, last]
        for digest, (times, last) in talk.pop("failures", {}).items()
        if number - last <= _NEARBY
    }
    times = failures.get(failing, [0])[0] + 1
    if times < _MOST_FAILURES:
        talk["failures"] = {**failures, failing: [times, number]}
        return None
    return f"the call of {request.tool} failed {times} times in the same way: {answer.text[:500]}"


def _same_in_a_row(talk: dict[str, Any], request: ToolRequest, answer: ToolAnswer) -> int:
    """Return the number of consecutive identical calls with the same result, up to this call."""
    digest = _digest(request, answer.text)
    before, times = talk.get("last_call", ("", 0))
    talk["last_call"] = [digest, times + 1 if before == digest else 1]
    return int(talk["last_call"][1])


def _advice(talk: dict[str, Any], request: ToolRequest, answer: ToolAnswer, specs: Sequence[ToolSpec]) -> str:
    """Count consecutive edits of each file whose text was not found. After two, return the advice to write
    the whole file instead. An edit that a person or a rule denied does not count.
    """
    path = request.arguments.get("path")
    if request.tool not in (_EDIT, _WRITE) or not isinstance(path, str):
        return ""
    failed = dict(talk.get("failed_edits", {}))
    times = failed.pop(path, 0) + 1 if answer.failed and _NOT_FOUND in answer.text else 0
    talk["failed_edits"] = {**failed, path: times} if times else failed
    if times < _FAILED_EDITS or not any(spec.name == _WRITE for spec in specs):
        return ""
    return f"\n{times} edits of {path} failed. Read the file, then write all of it with `{_WRITE}`."


async def _used(request: ToolRequest, place: NodeLabel, call: str) -> ToolAnswer:
    place.tell_call(request.tool, request.arguments, shown_arguments(request.arguments))
    step = place.context.tool_step(place.path, call)
    use = partial(place.context.host.use, seconds_left=time_left())
    answer = await asyncio.to_thread(use, request.tool, request.arguments, step=step)
    place.tell(ProgressKind.TOOL_DONE, answer.text.partition("\n")[0][:_SHOWN], failed=answer.failed)
    return answer


async def not_made(request: ToolRequest, place: NodeLabel, call: str, reason: str) -> ToolAnswer:
    """Record and report a requested call that is not made."""
    tool = request.tool[:_SHOWN] or "a tool without a name"
    place.tell_call(tool, request.arguments, shown_arguments(request.arguments))
    step = place.context.tool_step(place.path, call)
    await asyncio.to_thread(place.context.host.refuse, tool, request.arguments, reason, step=step)
    place.tell(ProgressKind.TOOL_DONE, reason[:_SHOWN], failed=True)
    return ToolAnswer(reason, failed=True)


def pending_requests(messages: Sequence[Mapping[str, Any]]) -> tuple[ToolRequest, ...]:
    """Return the unanswered requests of the model's last message.

    Requests are answered in order, because their ids need not be unique.
    """
    answers = list(takewhile(lambda kept: kept["role"] == MessageRole.TOOL.value, reversed(messages)))
    asked = Message.from_json(messages[-1 - len(answers)])
    return asked.requests[len(answers) :]


def shown_arguments(arguments: object) -> str:
    """Return the arguments on one line, truncated."""
    spelt = json.dumps(arguments, ensure_ascii=False, default=thaw)
    return spelt if len(spelt) <= _SHOWN else f"{spelt[:_SHOWN]}…"


def _digest(request: ToolRequest, text: str) -> str:
    what = json.dumps([request.tool, request.arguments, text], sort_keys=True, default=thaw)
    return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()
