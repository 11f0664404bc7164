"""Runs actors on the bridge: sends a message, reports progress as it arrives, and returns the outcome.

The bridge knows a single graph for all actors. It looks up the run by its thread id and runs that actor's
graph. A message carries no objects, so the runner keeps the objects of a run under its thread id, from before
the message is sent until the run ends. So two concurrent runs cannot have the same thread id.
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
"""The bridge's name for the graph that runs all actors."""
_LOOK_SECONDS = 0.1

_MOST_COMPILED = 64


class BridgeActorRunner:
    """Implements `ActorRunner` on its own bridge.

    Thread safety:
        Owner: the caller that created it closes it. Any thread may run anything.
        Guarantee: when a call returns or raises, nothing that it started is still running; of two concurrent
            calls with the same thread id, one runs and the other raises `ThreadBusy`.
    Cancel safety: an interrupted caller has cancelled the run and waited for its end.
    """

    def __init__(
        self, store: SqlCheckpointStore, *, events: RunEvents | None = None, max_in_flight: int = 64
    ) -> None:
        self._store = store
        self._graph = ActorGraph()
        self._bridge = RxPyLangGraphBridge({ACTORS: self._graph}, max_in_flight=max_in_flight, events=events)
        self._numbers = count(1)

    def run(self, request: ActorRequest) -> ActorOutcome:
        """Run an actor, as the port describes.

        Also raises `ThreadBusy`, and `QueueFull` and `Closed` of the bridge.
        """
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
        """Cancel all runs and end the loop."""
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
        # Before the answer is delivered, so that its receiver can run the thread again.
        run.add_done_callback(lambda _: self._graph.leave(active_run))
        return run


class _NoActors:
    """The `ActorSource` of a run without subgraphs: it contains no actors."""

    def get(self, name: str) -> Actor:
        raise UnknownActor(name)


def _followed(inbox: Inbox, request: ActorRequest, ask: Callable[[], None]) -> StreamMessage:
    try:
        return _told(inbox, request)
    except BaseException:
        ask()  # guard: an interrupted caller leaves no run behind
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
    """A stop signal that calls back when it is cancelled, such as a cancellation token."""

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
    """A run that is in progress or about to start. `tell` is called on the bridge's loop."""

    request: ActorRequest
    graph: CompiledStateGraph[Any, Any, Any, Any]
    saver: BaseCheckpointSaver[Any]
    tell: Callable[[Progress], None]


class ActorGraph:
    """The graph that `RxPyLangGraphBridge` runs for all actors of this process.

    Thread safety:
        Owner: the creator of the bridge. Any thread may compile, enter and leave; `ainvoke` belongs to the
        loop.
        Lock: none. A run enters by one atomic `dict.setdefault`. If two threads compile an actor at once,
            their graphs are equivalent.
        Guarantee: of all callers that enter the same thread id before any of them leaves, exactly one does
            not raise.
    Cancel safety: entering and leaving never wait; the caller that entered a run leaves it, cancelled or not.
    """

    def __init__(self) -> None:
        self._active_runs: dict[str, ActiveRun] = {}
        self._compiled: dict[str, tuple[tuple[Actor, ...], CompiledStateGraph[Any, Any, Any, Any]]] = {}

    def enter(self, active_run: ActiveRun) -> None:
        """Register a run. Raises `ThreadBusy` if the thread has a run already."""
        thread_id = active_run.request.thread_id
        entered = self._active_runs.setdefault(thread_id, active_run)
        if entered is not active_run:  # guard: two runs of a thread would mix their checkpoints
            raise ThreadBusy(thread_id)

    def leave(self, active_run: ActiveRun) -> None:
        """Remove a run that has ended or never started."""
        del self._active_runs[active_run.request.thread_id]

    def compiled(self, actor: Actor, actors: ActorSource) -> CompiledStateGraph[Any, Any, Any, Any]:
        """Return the actor's compiled graph, cached until the actor or one of its subgraphs changes.

        Reads files, so call it on the caller's thread. Raises the errors of `compile_actor`.
        """
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
        """Run the thread from its last checkpoint.

        Return the `values` of its state, and its `question` if it asks one.
        """
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
            raise ActorStopped(actor.name, "the graph loops without making a call") from endless
        except InvalidUpdateError as clash:
            reason = f"parallel branches wrote the same key; give it a reducer ({clash})"
            raise ActorStopped(actor.name, reason) from clash


@dataclass(frozen=True, slots=True)
class _Run:
    """One execution of a thread, until the thread ends or asks a question."""

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
            # Not `next`: it omits nodes whose writes are stored but have no successor yet.
            if not state.tasks:  # guard: only an ended run is not continued
                return self._told(state.values, ())
            if state.interrupts:
                begun = self._answered(state.interrupts)
                if begun is None:
                    return self._told(state.values, state.interrupts)
            account = RunSpending(await spent_so_far(self.active_run.saver, request.thread_id))
        context = RunContext(
            request.host, request.thread_id, self.active_run.tell, account, attachments=request.attachments
        )
        ended = await self.graph.ainvoke(begun, config, context=context, durability="sync")
        return self._told(ended, ended.get("__interrupt__", ()))

    def _answered(self, interrupts: Any) -> Command[Any] | None:
        """Return the request's answer as a LangGraph command; None unless it answers the first question with
        an allowed choice.
        """
        answer = self.active_run.request.answer
        asked = asked_by(interrupts)
        if answer is None or asked is None or answer.question_id != asked["id"]:  # guard: this question
            return None
        if asked["choices"] and answer.text not in asked["choices"]:  # guard: only one of the choices
            return None
        return Command(resume={asked["id"]: answer.text})

    def _told(self, state: Any, interrupts: Any) -> dict[str, Any]:
        values = public_values(self.active_run.request.actor, state)
        return {"values": values, "question": asked_by(interrupts)}


def _with_those_it_runs(actor: Actor, actors: ActorSource) -> tuple[Actor, ...]:
    """Return an actor and all actors that it runs as subgraphs, so that a change in any is noticed."""
    every = {actor.name: actor}
    for one in (queue := [actor]):
        for node in one.nodes:
            if isinstance(node, SubgraphNode) and node.actor not in every:
                every[node.actor] = actors.get(node.actor)
                queue.append(every[node.actor])
    return tuple(every.values())
