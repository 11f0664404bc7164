"""Runs actors: a message goes to the bridge, what is seen is told as it comes, the answer is the outcome.

The one graph that the bridge knows of actors: it looks up whose run it is, and runs that actor's graph.

A message carries no objects, so what belongs to a run waits here under its thread, from before the message is
sent until the run has ended. That is also what keeps two runs from going on under one name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from langgraph.errors import GraphRecursionError, InvalidUpdateError
from langgraph.types import Command
from reactivex.subject import Subject

from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
from cleveragents.actors.bridge.graph_run import GraphRun, RunEvents
from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver
from cleveragents.actors.graph.compiler import compile_actor
from cleveragents.actors.graph.nodes import asked_by, question_of, supersteps
from cleveragents.actors.graph.run_context import RunContext, RunSpending, spent_so_far, within
from cleveragents.actors.graph.state import first_state, public_values
from cleveragents.actors.model.actor import Actor, Progress, SubgraphNode
from cleveragents.actors.ports import ActorOutcome, ActorRequest, ActorSource
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.actors.streams.message import (
    ANSWERS,
    Inbox,
    Listener,
    MessageKind,
    StreamMessage,
    StreamRoute,
    only,
)
from cleveragents.core.errors import ActorStopped, Cancelled, CleverAgentsError, ThreadBusy, UnknownActor
from cleveragents.processes.ports import StopSignal

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

__all__ = ["ACTORS", "ActiveRun", "ActorGraph", "BridgeActorRunner"]


ACTORS = "actors"
"""What the bridge calls the graph that runs them all."""
_LOOK_SECONDS = 0.1

_MOST_COMPILED = 64


class BridgeActorRunner:
    """Passes `ActorRunner`, on a bridge of its own.

    Thread safety:
        Owner: whoever made it closes it. Any thread may run anything.
        Guarantee: a call that returned, or raised, has left nothing running; of two at once for one thread id
            one runs, and the other gets `ThreadBusy`.
    Cancel safety: a caller that is interrupted has cancelled the run and waited for its end.
    """

    def __init__(
        self, store: SqlCheckpointStore, *, events: RunEvents | None = None, max_in_flight: int = 64
    ) -> None:
        self._store = store
        self._graph = ActorGraph()
        self._bridge = RxPyLangGraphBridge({ACTORS: self._graph}, max_in_flight=max_in_flight, events=events)
        self._numbers = count(1)

    def run(self, request: ActorRequest) -> ActorOutcome:
        """As the port says. `ThreadBusy`; `QueueFull` and `Closed` of the bridge."""
        request.stop.raise_if_cancelled()
        name = f"{ACTORS}-{next(self._numbers)}"
        message = StreamMessage(name, ACTORS, dict(request.inputs), thread_id=request.thread_id)
        cancel: Subject[None] = Subject()
        stream = StreamRoute(partial(self._begun, request)).send(message, cancel)
        inbox = Inbox(stream if request.told is not None else stream.pipe(only(*ANSWERS)))
        ask = partial(cancel.on_next, None)
        with _asked_when_cancelled(request.stop, ask):
            return _outcome(_followed(inbox, request, ask), request.stop)

    def close(self) -> None:
        """Cancels what runs and ends the loop."""
        self._bridge.close()

    def __enter__(self) -> BridgeActorRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begun(self, request: ActorRequest, message: StreamMessage, listen: Listener) -> GraphRun:
        active_run = ActiveRun(
            request=request,
            graph=self._graph.compiled(request.actor, request.actors or _NoActors()),
            saver=DatabaseCheckpointSaver(self._store, fence=request.fence, history=False),
            tell=lambda progress: listen(message.seen(progress)),
        )
        self._graph.enter(active_run)
        try:
            run = self._bridge.create_future_task(message)
        except BaseException:
            self._graph.leave(active_run)
            raise
        # Before the answer is told, so that whoever has it may run the thread again.
        run.add_done_callback(lambda _: self._graph.leave(active_run))
        return run


class _NoActors:
    """For a run whose caller knows none."""

    def get(self, name: str) -> Actor:
        raise UnknownActor(name)


def _followed(inbox: Inbox, request: ActorRequest, ask: Callable[[], None]) -> StreamMessage:
    try:
        return _told(inbox, request)
    except BaseException:
        ask()  # guard: whoever interrupts this leaves no run behind
        _told(inbox, None)
        raise


def _told(inbox: Inbox, request: ActorRequest | None) -> StreamMessage:
    answer: StreamMessage | None = None
    for message in inbox:
        if message.kind in ANSWERS:
            answer = message
        elif request is not None and request.told is not None:
            request.told(message.progress())
    assert answer is not None, "every request is answered before its stream ends"
    return answer


def _outcome(answer: StreamMessage, stop: StopSignal) -> ActorOutcome:
    if answer.kind is MessageKind.RESULT:
        values, asked = answer.content["values"], answer.content["question"]
        assert isinstance(values, dict)
        return ActorOutcome(values, question_of(asked) if isinstance(asked, dict) else None)
    error = answer.error
    assert error is not None
    if isinstance(error.__cause__, CleverAgentsError):
        raise error.__cause__
    if isinstance(error, Cancelled) and stop.is_cancelled:
        raise Cancelled(stop.reason)
    raise error


@runtime_checkable
class _Announcing(Protocol):
    """A signal that tells by itself; tokens and their views do."""

    def on_cancel(self, callback: Callable[[], None]) -> AbstractContextManager[object]: ...


@contextmanager
def _asked_when_cancelled(stop: StopSignal, ask: Callable[[], None]) -> Iterator[None]:
    if isinstance(stop, _Announcing):
        with stop.on_cancel(ask):
            yield
        return
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            if stop.wait(_LOOK_SECONDS):
                ask()
                return

    watch = threading.Thread(target=look, name="cleveragents-stop", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


@dataclass(frozen=True, slots=True, eq=False)
class ActiveRun:
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
        self._active_runs: dict[str, ActiveRun] = {}
        self._compiled: dict[str, tuple[tuple[Actor, ...], CompiledStateGraph[Any, Any, Any, Any]]] = {}

    def enter(self, active_run: ActiveRun) -> None:
        """`ThreadBusy` when a run of that thread goes on."""
        thread_id = active_run.request.thread_id
        entered = self._active_runs.setdefault(thread_id, active_run)
        if entered is not active_run:  # guard: two runs of a thread would mix their checkpoints
            raise ThreadBusy(thread_id)

    def leave(self, active_run: ActiveRun) -> None:
        """The run has ended, or was never begun."""
        del self._active_runs[active_run.request.thread_id]

    def compiled(self, actor: Actor, actors: ActorSource) -> CompiledStateGraph[Any, Any, Any, Any]:
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
        active_run = self._active_runs[configurable["thread_id"]]
        request = active_run.request
        actor = request.actor
        run = _Run(active_run, active_run.graph.copy({"checkpointer": active_run.saver}))
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

    active_run: ActiveRun
    graph: CompiledStateGraph[Any, Any, Any, Any]

    async def outcome(self, inputs: dict[str, Any]) -> dict[str, Any]:
        request = self.active_run.request
        config: RunnableConfig = {
            "configurable": {"thread_id": request.thread_id},
            "recursion_limit": supersteps(self.graph, request.actor.limits.steps),
        }
        begun: Any = None
        account = RunSpending()
        if await self.active_run.saver.aget_tuple(config) is None:
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
            account = RunSpending(await spent_so_far(self.active_run.saver, request.thread_id))
        context = RunContext(request.host, request.thread_id, self.active_run.tell, account)
        ended = await self.graph.ainvoke(begun, config, context=context, durability="sync")
        return self._told(ended, ended.get("__interrupt__", ()))

    def _answered(self, interrupts: Any) -> Command[Any] | None:
        """The first question's answer, if there is one, to it, that it allows."""
        answer = self.active_run.request.answer
        asked = asked_by(interrupts)
        if answer is None or asked is None or answer.question_id != asked["id"]:  # guard: not to another
            return None
        if asked["choices"] and answer.text not in asked["choices"]:  # guard: only what was offered
            return None
        return Command(resume={asked["id"]: answer.text})

    def _told(self, state: Any, interrupts: Any) -> dict[str, Any]:
        values = public_values(self.active_run.request.actor, state)
        return {"values": values, "question": asked_by(interrupts)}


def _with_those_it_runs(actor: Actor, actors: ActorSource) -> tuple[Actor, ...]:
    """It and all below, so that a change in one of them is noticed."""
    every = {actor.name: actor}
    for one in (queue := [actor]):
        for node in one.nodes:
            if isinstance(node, SubgraphNode) and node.actor not in every:
                every[node.actor] = actors.get(node.actor)
                queue.append(every[node.actor])
    return tuple(every.values())
