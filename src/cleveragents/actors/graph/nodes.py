"""The node that has another agent do the work: a program of somebody else's, run as one tool call.

So all that holds for calls holds for it: it needs leave, what it changed is recorded under it, it ends with
its time or a cancel, and once finished it is not made again.

The node that chooses a way: conditions over the state, the first that holds.

The node that makes one tool call, with arguments out of the state.

The node that asks a person: LangGraph's interrupt ends the run, and the answer goes on with it.

The node that runs another actor: its graph, nested in ours, with a state and checkpoints of its own.

The node that has another agent do the work, and talks to it by the Agent Client Protocol meanwhile.

A session is not one call, but many: what the agent reads, writes and runs through us, and what it did by
itself, have calls of their own. So it begins anew when it was cut off, and is told so; only a session that
was finished is never had again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from cleveragents.actors.conditions import Condition
from cleveragents.actors.graph.llm_node import shown_arguments
from cleveragents.actors.graph.run_context import A_STEP, NodeLabel, RunContext, path_in, time_left, within
from cleveragents.actors.graph.state import (
    ACCOUNT,
    State,
    filled_text,
    filled_values,
    first_state,
    plain,
    public_values,
)
from cleveragents.actors.model.actor import (
    GIVEN,
    AcpNode,
    Actor,
    CommandNode,
    HumanNode,
    ProgressKind,
    RouterNode,
    StateKey,
    SubgraphNode,
    ToolNode,
)
from cleveragents.actors.ports import AgentRequest, AgentUpdate, Question
from cleveragents.core.errors import ActorStopped, AgentFailed, InvalidCondition, ToolRefused
from cleveragents.core.tool import AGENT_TOOL

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

__all__ = [
    "AcpStep",
    "CommandStep",
    "HumanStep",
    "RouterStep",
    "SubgraphStep",
    "ToolStep",
    "asked_by",
    "question_of",
    "supersteps",
]


class CommandStep:
    """The node of an actor that runs another agent."""

    def __init__(self, actor: Actor, node: CommandNode) -> None:
        self._actor = actor
        self._node = node

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Runs it to its end. `AgentFailed` when it does, with the end of what it said: what it changed by
        then is recorded."""
        node = self._node
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, node.name))
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        place.tell(ProgressKind.NODE)
        step = place.context.tool_step(place.path, str(visit))
        arguments = self._arguments(filled_text(node.prompt, state))
        async with place.context.account.purse(self._actor, state).reserved(A_STEP):
            place.tell(ProgressKind.TOOL, f"{AGENT_TOOL} {node.argv[0]}")
            use = partial(place.context.host.use, seconds_left=time_left())
            answer = await asyncio.to_thread(use, AGENT_TOOL, arguments, step=step)
        place.tell(ProgressKind.TOOL_DONE, answer.text.partition("\n")[0], failed=answer.failed)
        if answer.failed:
            raise AgentFailed(self._actor.name, f"{node.argv[0]} in node {node.name} failed: {answer.text}")
        update: dict[str, Any] = {ACCOUNT: {"steps": 1, "visits": {node.name: visit}}}
        if node.output is not None:
            said = answer.value.get("output") if isinstance(answer.value, Mapping) else None
            update[node.output] = answer.text if said is None else said
        return update

    def _arguments(self, prompt: str) -> dict[str, Any]:
        node = self._node
        return {
            "argv": list(node.argv),
            "prompt": prompt,
            "prompt_by": node.prompt_by,
            "variables": dict(node.variables),
            "environment": list(node.environment),
            "home": list(node.home),
            "network": node.network,
            "timeout_seconds": node.seconds,
            "processes": node.processes,
            "expect_exit": list(node.expect_exit),
            "install": node.install,
        }


class RouterStep:
    """The node of an actor that chooses. `InvalidCondition` for a condition that is none."""

    def __init__(self, actor: Actor, node: RouterNode) -> None:
        self._actor = actor
        self._node = node
        names = (*GIVEN, *(key.name for key in actor.state))
        self._ways = [
            (route.to, None if route.when is None else Condition(route.when, names)) for route in node.routes
        ]

    async def enter(self, state: State, runtime: Runtime[RunContext]) -> None:
        """Lets it be seen that the run is here; the choice is the edge's."""
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, self._node.name))
        place.tell(ProgressKind.NODE)

    # Async, because LangGraph would send it to a thread otherwise.
    async def chosen(self, state: State) -> str:
        """Where it goes on. `ActorStopped` when nothing holds, or when that cannot be said."""
        values = public_values(self._actor, state)
        try:
            for to, condition in self._ways:
                if condition is None or condition.holds(values):
                    return to
        except InvalidCondition as undecided:
            raise ActorStopped(self._actor.name, f"node {self._node.name}: {undecided}") from undecided
        raise ActorStopped(self._actor.name, f"no route of node {self._node.name} holds")


class ToolStep:
    """The node of an actor that calls a tool."""

    def __init__(self, actor: Actor, node: ToolNode) -> None:
        self._actor = actor
        self._node = node
        self._keys = {key.name: key for key in actor.state}

    async def call(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Makes the call. `ActorStopped` when it fails: there is no model here that could do better."""
        node = self._node
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, node.name))
        arguments = filled_values(node.arguments, self._actor, state)
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        place.tell(ProgressKind.NODE)
        step = place.context.tool_step(place.path, str(visit))
        async with place.context.account.purse(self._actor, state).reserved(A_STEP):
            place.tell(ProgressKind.TOOL, f"{node.tool} {shown_arguments(arguments)}")
            use = partial(place.context.host.use, seconds_left=time_left())
            answer = await asyncio.to_thread(use, node.tool, arguments, step=step)
        place.tell(ProgressKind.TOOL_DONE, answer.text.partition("\n")[0], failed=answer.failed)
        if answer.failed:
            problem = f"the call of {node.tool} in node {node.name} failed: {answer.text}"
            raise ActorStopped(self._actor.name, problem)
        update: dict[str, Any] = {ACCOUNT: {"steps": 1, "visits": {node.name: visit}}}
        if node.output is not None:
            update[node.output] = self._of_its_type(node.output, answer.text, answer.value)
        return update

    def _of_its_type(self, key: str, text: str, value: Any) -> Any:
        known = self._keys.get(key, StateKey(key))
        given = text if value is None or known.type == "string" else plain(value)
        if not known.takes(given):  # guard: what reads it, or adds it up, could not say what is wrong
            problem = f"what {self._node.tool} gave is not of type {known.type}, as {key!r} is"
            raise ActorStopped(self._actor.name, f"node {self._node.name}: {problem}")
        return given


class HumanStep:
    """The node of an actor that asks. It runs from the top again with the answer, so it has no effects."""

    def __init__(self, actor: Actor, node: HumanNode) -> None:
        self._actor = actor
        self._node = node

    async def ask(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """The answer; the first time it does not return."""
        path = path_in(state, self._node.name)
        NodeLabel(runtime.context, self._actor.name, path).tell(ProgressKind.NODE)
        text = filled_text(self._node.question, state)
        answer = interrupt({"node": path, "text": text, "choices": list(self._node.choices)})
        return {self._node.output: answer}


def question_of(asked: Mapping[str, Any]) -> Question:
    """What `asked_by` made of an interrupt."""
    return Question(str(asked["id"]), str(asked["node"]), str(asked["text"]), tuple(asked["choices"]))


def asked_by(interrupts: Sequence[Any]) -> dict[str, Any] | None:
    """The first question, as a message carries it; None where nothing is asked."""
    return {"id": interrupts[0].id, **interrupts[0].value} if interrupts else None


def supersteps(graph: CompiledStateGraph[Any, Any, Any, Any], steps: int) -> int:
    """LangGraph's recursion limit for so many calls: between two of them every other node may have its turn,
    and a circle without any call ends as well."""
    return (steps + 1) * (len(graph.nodes) + 1)


class SubgraphStep:
    """The node of an actor that runs another."""

    def __init__(
        self, actor: Actor, node: SubgraphNode, inner: Actor, graph: CompiledStateGraph[Any, Any, Any, Any]
    ) -> None:
        self._actor = actor
        self._node = node
        self._inner = inner
        self._graph = graph

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Its values for ours, when it has ended. What was cut off inside it goes on where it was."""
        node = self._node
        path = path_in(state, node.name)
        NodeLabel(runtime.context, self._actor.name, path).tell(ProgressKind.NODE)
        account = runtime.context.account
        purse = account.purse(self._actor, state)
        purse.ensure_a_step_is_left()
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        given = {name: state.get(name, "") for name in GIVEN} | filled_values(node.inputs, self._actor, state)
        # Visits are told apart, or the calls of the second would pass for those of the first; by a character
        # that no node's name has, or they would pass for those of another node.
        below = path if visit == 1 else f"{path}#{visit}"
        account.open_below(purse, self._inner, below)
        ended = await self._ended(first_state(self._inner, given, path=below))
        spent = {name: ended[ACCOUNT][name] for name in ("steps", "tokens", "money")}
        outputs = {ours: ended[theirs] for ours, theirs in node.outputs.items()}
        return {ACCOUNT: {**spent, "visits": {node.name: visit}}, **outputs}

    async def _ended(self, begun: dict[str, Any]) -> dict[str, Any]:
        limit = supersteps(self._graph, self._inner.limits.steps)
        async with within(self._inner.limits.seconds, f"actor {self._inner.name}"):
            ended: dict[str, Any] = await self._graph.ainvoke(begun, {"recursion_limit": limit})
        return ended


class AcpStep:
    """The node of an actor that talks to another agent."""

    def __init__(self, actor: Actor, node: AcpNode) -> None:
        self._actor = actor
        self._node = node

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Has a session to its end. `AgentFailed` when it fails: what it did by then is recorded."""
        node = self._node
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, node.name))
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        request = self._request(filled_text(node.prompt, state))
        place.tell(ProgressKind.NODE)
        loop = asyncio.get_running_loop()

        def told(update: AgentUpdate) -> None:  # on whichever thread
            loop.call_soon_threadsafe(partial(place.tell, update.kind, update.text, failed=update.failed))

        converse = partial(
            place.context.host.converse,
            request,
            step=place.context.tool_step(place.path, str(visit)),
            told=told,
            seconds_left=time_left(),
        )
        async with place.context.account.purse(self._actor, state).reserved(A_STEP):
            place.tell(ProgressKind.TOOL, f"acp {node.argv[0]}")
            try:
                said = await asyncio.to_thread(converse)
            except ToolRefused as refusal:
                place.tell(ProgressKind.TOOL_DONE, str(refusal), failed=True)
                reason = f"its agent in node {node.name} failed: {refusal.reason}"
                raise AgentFailed(self._actor.name, reason) from refusal
        place.tell(ProgressKind.TOOL_DONE, said.partition("\n")[0])
        update: dict[str, Any] = {ACCOUNT: {"steps": 1, "visits": {node.name: visit}}}
        if node.output is not None:
            update[node.output] = said
        return update

    def _request(self, prompt: str) -> AgentRequest:
        node = self._node
        return AgentRequest(
            name=self._actor.name,
            argv=node.argv,
            prompt=prompt,
            environment=node.environment,
            home=node.home,
            network=node.network,
            seconds=node.seconds,
            processes=node.processes,
            install=node.install,
        )
