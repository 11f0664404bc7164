"""The one graph that the bridge knows of actors: it looks up whose run it is, and runs that actor's graph.

A message carries no objects, so what belongs to a run waits here under its thread, from before the message is
sent until the run has ended. That is also what keeps two runs from going on under one name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langgraph.errors import GraphRecursionError, InvalidUpdateError
from langgraph.types import Command

from cleveragents.actors.graph.compiler import compile_actor
from cleveragents.actors.graph.nodes import asked_by, supersteps
from cleveragents.actors.graph.run_account import RunAccount, spent_so_far
from cleveragents.actors.graph.run_context import RunContext, within
from cleveragents.actors.graph.state import first_state, public_values
from cleveragents.actors.model.actor import Actor, Progress, SubgraphNode
from cleveragents.actors.ports import ActorRequest, Actors
from cleveragents.core.errors import ActorStopped, ThreadBusy

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

__all__ = ["ActorGraph", "Standing"]

_MOST_COMPILED = 64


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """A run that goes on, or is about to. `tell` is called on the bridge's loop."""

    request: ActorRequest
    graph: CompiledStateGraph[Any, Any, Any, Any]
    saver: BaseCheckpointSaver[Any]
    tell: Callable[[Progress], None]


class ActorGraph:
    """What `RxPyLangGraphBridge` is given under one name, for all actors of this process.

    Thread safety:
        Owner: whoever made the bridge. Any thread may compile, enter and leave; `ainvoke` is the loop's.
        Lock: none. A run enters by one `dict.setdefault`, which is one step for all threads; a graph that two
            compile at once is the same graph.
        Guarantee: of all who enter one thread before any of them leaves, exactly one does not raise.
    Cancel safety: entering and leaving never wait; a run that is cancelled is left by who entered it.
    """

    def __init__(self) -> None:
        self._standing: dict[str, Standing] = {}
        self._compiled: dict[str, tuple[tuple[Actor, ...], CompiledStateGraph[Any, Any, Any, Any]]] = {}

    def enter(self, standing: Standing) -> None:
        """`ThreadBusy` when a run of that thread goes on."""
        thread_id = standing.request.thread_id
        entered = self._standing.setdefault(thread_id, standing)
        if entered is not standing:  # guard: two runs of a thread would mix their checkpoints
            raise ThreadBusy(thread_id)

    def leave(self, standing: Standing) -> None:
        """The run has ended, or was never begun."""
        del self._standing[standing.request.thread_id]

    def compiled(self, actor: Actor, actors: Actors) -> CompiledStateGraph[Any, Any, Any, Any]:
        """The actor's graph, compiled once for as long as it and those it runs stay as they are. Reads them,
        so it is for the caller's thread. What `compile_actor` raises."""
        every = _with_those_it_runs(actor, actors)
        known = self._compiled.get(actor.name)
        if known is not None and known[0] == every:
            return known[1]
        graph = compile_actor(actor, actors)
        if len(self._compiled) >= _MOST_COMPILED:
            self._compiled = {}
        self._compiled[actor.name] = (every, graph)
        return graph

    async def ainvoke(self, input_: Any, config: RunnableConfig | None = None, /) -> dict[str, Any]:
        """Runs the thread from where it stands. `values` of its state, and the `question` if it asks one."""
        configurable = (config or {}).get("configurable", {})
        standing = self._standing[configurable["thread_id"]]
        request = standing.request
        actor = request.actor
        run = _Run(standing, standing.graph.copy({"checkpointer": standing.saver}))
        seconds = min((s for s in (request.seconds, actor.limits.seconds) if s is not None), default=None)
        try:
            async with within(seconds, f"actor {actor.name}"):
                return await run.outcome(dict(input_))
        except GraphRecursionError as endless:
            raise ActorStopped(actor.name, "it goes round in circles without making a call") from endless
        except InvalidUpdateError as clash:
            reason = f"branches that run at once wrote the same key; give it a reducer ({clash})"
            raise ActorStopped(actor.name, reason) from clash


@dataclass(frozen=True, slots=True)
class _Run:
    """One thread, taken as far as it goes."""

    standing: Standing
    graph: CompiledStateGraph[Any, Any, Any, Any]

    async def outcome(self, inputs: dict[str, Any]) -> dict[str, Any]:
        request = self.standing.request
        config: RunnableConfig = {
            "configurable": {"thread_id": request.thread_id},
            "recursion_limit": supersteps(self.graph, request.actor.limits.steps),
        }
        begun: Any = None
        account = RunAccount()
        if await self.standing.saver.aget_tuple(config) is None:
            begun = first_state(request.actor, inputs, path="")
        else:
            state = await self.graph.aget_state(config)
            # Not `next`: that leaves out nodes whose writes are kept, though nothing has followed them yet.
            if not state.tasks:  # guard: what has ended is not run again, and only that
                return self._told(state.values, ())
            if state.interrupts:
                begun = self._answered(state.interrupts)
                if begun is None:
                    return self._told(state.values, state.interrupts)
            account = RunAccount(await spent_so_far(self.standing.saver, request.thread_id))
        context = RunContext(request.host, request.thread_id, self.standing.tell, account)
        ended = await self.graph.ainvoke(begun, config, context=context, durability="sync")
        return self._told(ended, ended.get("__interrupt__", ()))

    def _answered(self, interrupts: Any) -> Command[Any] | None:
        """The first question's answer, if there is one, to it, that it allows."""
        answer = self.standing.request.answer
        asked = asked_by(interrupts)
        if answer is None or asked is None or answer.question_id != asked["id"]:  # guard: not to another
            return None
        if asked["choices"] and answer.text not in asked["choices"]:  # guard: only what was offered
            return None
        return Command(resume={asked["id"]: answer.text})

    def _told(self, state: Any, interrupts: Any) -> dict[str, Any]:
        values = public_values(self.standing.request.actor, state)
        return {"values": values, "question": asked_by(interrupts)}


def _with_those_it_runs(actor: Actor, actors: Actors) -> tuple[Actor, ...]:
    """It and all below, so that a change in one of them is noticed."""
    every = {actor.name: actor}
    for one in (queue := [actor]):
        for node in one.nodes:
            if isinstance(node, SubgraphNode) and node.actor not in every:
                every[node.actor] = actors.get(node.actor)
                queue.append(every[node.actor])
    return tuple(every.values())
