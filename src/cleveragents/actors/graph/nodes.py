"""The steps of all nodes except the llm node.

A command node runs an external agent as one tool call. So all rules for tool calls apply: the agent needs
approval, its changes are recorded, it ends with its time limit or a cancellation, and a finished call is not
repeated.

A human node ends the run by LangGraph's interrupt; a later run continues with the answer. A subgraph node
runs another actor's graph with its own state and checkpoints.

An acp node runs a session over the Agent Client Protocol. A session is not one call but many: each file that
the agent reads or writes, each command it runs through us, and each of its own actions is a separate call. An
interrupted session therefore starts again with a note in its prompt; a finished session is never repeated.
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
    """The step that runs an external agent as a command."""

    def __init__(self, actor: Actor, node: CommandNode) -> None:
        self._actor = actor
        self._node = node

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Run the agent to its end.

        Raises `AgentFailed`, with the end of the agent's output, if the agent fails. Changes that it made
        before are recorded.
        """
        node = self._node
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, node.name))
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        place.tell(ProgressKind.NODE)
        step = place.context.tool_step(place.path, str(visit))
        arguments = self._arguments(filled_text(node.prompt, state))
        async with place.context.account.actor_spending(self._actor, state).reserved(A_STEP):
            place.tell_call(AGENT_TOOL, arguments, node.argv[0])
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
    """The step that chooses a route. Raises `InvalidCondition` for an invalid condition."""

    def __init__(self, actor: Actor, node: RouterNode) -> None:
        self._actor = actor
        self._node = node
        names = (*GIVEN, *(key.name for key in actor.state))
        self._ways = [
            (route.to, None if route.when is None else Condition(route.when, names)) for route in node.routes
        ]

    async def enter(self, state: State, runtime: Runtime[RunContext]) -> None:
        """Report progress; the conditional edge makes the choice."""
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, self._node.name))
        place.tell(ProgressKind.NODE)

    # Async, because LangGraph would run a synchronous function on a thread.
    async def chosen(self, state: State) -> str:
        """Return the chosen successor.

        Raises `ActorStopped` if no condition holds, or if a condition cannot be evaluated.
        """
        values = public_values(self._actor, state)
        try:
            for to, condition in self._ways:
                if condition is None or condition.holds(values):
                    return to
        except InvalidCondition as undecided:
            raise ActorStopped(self._actor.name, f"node {self._node.name}: {undecided}") from undecided
        raise ActorStopped(self._actor.name, f"no route of node {self._node.name} matches")


class ToolStep:
    """The step that calls a tool."""

    def __init__(self, actor: Actor, node: ToolNode) -> None:
        self._actor = actor
        self._node = node
        self._keys = {key.name: key for key in actor.state}

    async def call(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Make the call. Raises `ActorStopped` if it fails, because a tool node has no model that could try
        something else.
        """
        node = self._node
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, node.name))
        arguments = filled_values(node.arguments, self._actor, state)
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        place.tell(ProgressKind.NODE)
        step = place.context.tool_step(place.path, str(visit))
        async with place.context.account.actor_spending(self._actor, state).reserved(A_STEP):
            place.tell_call(node.tool, arguments, shown_arguments(arguments))
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
        if not known.takes(given):  # guard: a later reader or reducer could not explain the error
            problem = f"the result of {self._node.tool} does not fit {key!r}, which has type {known.type}"
            raise ActorStopped(self._actor.name, f"node {self._node.name}: {problem}")
        return given


class HumanStep:
    """The step that asks a person. With the answer, the step runs again from its beginning, so it has no side
    effects.
    """

    def __init__(self, actor: Actor, node: HumanNode) -> None:
        self._actor = actor
        self._node = node

    async def ask(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Return the person's answer. The first execution has no answer yet, so it interrupts the run."""
        path = path_in(state, self._node.name)
        NodeLabel(runtime.context, self._actor.name, path).tell(ProgressKind.NODE)
        text = filled_text(self._node.question, state)
        answer = interrupt({"node": path, "text": text, "choices": list(self._node.choices)})
        return {self._node.output: answer}


def question_of(asked: Mapping[str, Any]) -> Question:
    """Convert the result of `asked_by` to a question."""
    return Question(str(asked["id"]), str(asked["node"]), str(asked["text"]), tuple(asked["choices"]))


def asked_by(interrupts: Sequence[Any]) -> dict[str, Any] | None:
    """Return the first question of the interrupts as plain data for a message; None if there is none."""
    return {"id": interrupts[0].id, **interrupts[0].value} if interrupts else None


def supersteps(graph: CompiledStateGraph[Any, Any, Any, Any], steps: int) -> int:
    """Return LangGraph's recursion limit for a run of at most `steps` model and tool calls.

    The limit is high enough for all other nodes to run between two calls, and still ends a loop without
    calls.
    """
    return (steps + 1) * (len(graph.nodes) + 1)


class SubgraphStep:
    """The step that runs another actor."""

    def __init__(
        self, actor: Actor, node: SubgraphNode, inner: Actor, graph: CompiledStateGraph[Any, Any, Any, Any]
    ) -> None:
        self._actor = actor
        self._node = node
        self._inner = inner
        self._graph = graph

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Run the actor and return its outputs. A run that was interrupted inside the actor continues inside
        it.
        """
        node = self._node
        path = path_in(state, node.name)
        NodeLabel(runtime.context, self._actor.name, path).tell(ProgressKind.NODE)
        account = runtime.context.account
        actor_spending = account.actor_spending(self._actor, state)
        actor_spending.ensure_a_step_is_left()
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        given = {name: state.get(name, "") for name in GIVEN} | filled_values(node.inputs, self._actor, state)
        # Visits have different paths. Otherwise the calls of a second visit would be taken for those of the
        # first. `#` occurs in no node name, so they cannot be taken for those of another node either.
        below = path if visit == 1 else f"{path}#{visit}"
        account.open_below(actor_spending, self._inner, below)
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
    """The step that runs an external agent over the Agent Client Protocol."""

    def __init__(self, actor: Actor, node: AcpNode) -> None:
        self._actor = actor
        self._node = node

    async def run(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Run a session to its end. Raises `AgentFailed` if it fails; its actions up to then are recorded."""
        node = self._node
        place = NodeLabel(runtime.context, self._actor.name, path_in(state, node.name))
        visit = state[ACCOUNT]["visits"].get(node.name, 0) + 1
        request = self._request(filled_text(node.prompt, state))
        place.tell(ProgressKind.NODE)
        loop = asyncio.get_running_loop()

        def told(update: AgentUpdate) -> None:  # on any thread
            loop.call_soon_threadsafe(partial(place.tell, update.kind, update.text, failed=update.failed))

        converse = partial(
            place.context.host.converse,
            request,
            step=place.context.tool_step(place.path, str(visit)),
            told=told,
            seconds_left=time_left(),
        )
        async with place.context.account.actor_spending(self._actor, state).reserved(A_STEP):
            place.tell(ProgressKind.TOOL, f"acp {node.argv[0]}")
            try:
                said = await asyncio.to_thread(converse)
            except ToolRefused as refusal:
                place.tell(ProgressKind.TOOL_DONE, str(refusal), failed=True)
                reason = f"the agent in node {node.name} failed: {refusal.reason}"
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
