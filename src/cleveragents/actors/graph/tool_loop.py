"""The tool calls that a model asked for, one at a time, each with a checkpoint of its own behind it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from langgraph.runtime import Runtime

from cleveragents.actors.graph.deadline import time_left
from cleveragents.actors.graph.run_context import NodePlace, RunContext, path_in
from cleveragents.actors.graph.spending import A_STEP
from cleveragents.actors.graph.state import ACCOUNT, State, counters_in, messages_in, said
from cleveragents.actors.model.actor import Actor, LlmNode
from cleveragents.actors.model.progress import ProgressKind
from cleveragents.actors.ports import ToolAnswer
from cleveragents.core.json_value import thaw
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.conversation import Message, Role, ToolRequest

__all__ = ["ToolLoop", "not_made", "pending_requests", "shown_arguments"]

_MOST_FAILURES = 3
_NEARBY = 10
"""Calls ago that a failure is remembered: a longer way round is no circle."""
_SHOWN = 120


class ToolLoop:
    """The node beside an llm node that makes its calls."""

    def __init__(self, actor: Actor, node: LlmNode) -> None:
        self._actor = actor
        self._node = node

    async def call(self, state: State, runtime: Runtime[RunContext]) -> tuple[dict[str, Any], bool]:
        """Makes the first call that has no answer yet. What it writes to the state, and whether there are
        more. `ActorStopped` after the one that failed once too often: by then its answer is in the state, so
        that the model hears of it when the run is taken up again."""
        name = self._node.name
        place = NodePlace(runtime.context, self._actor.name, path_in(state, name))
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
            async with place.context.account.purse(self._actor, state).reserved(A_STEP):
                answer = await _used(request, place, str(talk["calls"]))
        writes = any(spec.writes for spec in specs if spec.name == request.tool)
        problem = _repeated(talk, request, answer, writes=writes)
        if problem is not None:
            place.context.stopped[place.path] = problem
        told = Message(Role.TOOL, answer.text, (), request.id).to_json()
        return {**update, **said(name, [told], talk)}, bool(others)


def _refusal(request: ToolRequest, specs: Sequence[ToolSpec]) -> str | None:
    if request.problem is not None:
        return f"this call of {request.tool} was not made: {request.problem}"
    known = [spec.name for spec in specs]
    if request.tool not in known:  # guard: only what the actor was given
        return f"there is no tool {request.tool!r}; there are: {', '.join(known) or 'none'}"
    return None


def _repeated(talk: dict[str, Any], request: ToolRequest, answer: ToolAnswer, *, writes: bool) -> str | None:
    """Counts failures of one kind; why that is enough, when it is. What succeeds in between forgives them
    only if it may have changed something: a model that reads the file and sends the same edit again has
    learnt nothing."""
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
    return f"its call of {request.tool} failed {times} times in the same way: {answer.text[:500]}"


async def _used(request: ToolRequest, place: NodePlace, call: str) -> ToolAnswer:
    place.tell(ProgressKind.TOOL, f"{request.tool} {shown_arguments(request.arguments)}")
    step = place.context.tool_step(place.path, call)
    use = partial(place.context.host.use, seconds_left=time_left())
    answer = await asyncio.to_thread(use, request.tool, request.arguments, step=step)
    place.tell(ProgressKind.TOOL_DONE, answer.text.partition("\n")[0][:_SHOWN], failed=answer.failed)
    return answer


async def not_made(request: ToolRequest, place: NodePlace, call: str, reason: str) -> ToolAnswer:
    """It is seen like any other, and nothing is done."""
    tool = request.tool[:_SHOWN] or "a tool without a name"
    place.tell(ProgressKind.TOOL, f"{tool} {shown_arguments(request.arguments)}")
    step = place.context.tool_step(place.path, call)
    await asyncio.to_thread(place.context.host.refuse, tool, request.arguments, reason, step=step)
    place.tell(ProgressKind.TOOL_DONE, reason[:_SHOWN], failed=True)
    return ToolAnswer(reason, failed=True)


def pending_requests(messages: Sequence[Mapping[str, Any]]) -> tuple[ToolRequest, ...]:
    """Those of the model's last answer that were not answered: they are answered in order, because their ids
    need not be unique."""
    answers = list(takewhile(lambda kept: kept["role"] == Role.TOOL.value, reversed(messages)))
    asked = Message.from_json(messages[-1 - len(answers)])
    return asked.requests[len(answers) :]


def shown_arguments(arguments: object) -> str:
    """On one line, and not too long."""
    spelt = json.dumps(arguments, ensure_ascii=False, default=thaw)
    return spelt if len(spelt) <= _SHOWN else f"{spelt[:_SHOWN]}…"


def _digest(request: ToolRequest, text: str) -> str:
    what = json.dumps([request.tool, request.arguments, text], sort_keys=True, default=thaw)
    return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()
