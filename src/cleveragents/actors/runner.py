"""Runs actors: a message goes to the bridge, what is seen is told as it comes, the answer is the outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from types import TracebackType
from typing import Protocol, runtime_checkable

from reactivex.subject import Subject

from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
from cleveragents.actors.bridge.graph_run import GraphRun, RunEvents
from cleveragents.actors.graph.actor_graph import ActorGraph, Standing
from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver
from cleveragents.actors.graph.nodes import question_of
from cleveragents.actors.model.actor import Actor
from cleveragents.actors.ports import ActorOutcome, ActorRequest
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.actors.streams.message import (
    ANSWERS,
    Inbox,
    Listener,
    MessageKind,
    Route,
    StreamMessage,
    only,
)
from cleveragents.core.errors import Cancelled, CleverAgentsError, UnknownActor
from cleveragents.processes.ports import StopSignal

__all__ = ["ACTORS", "BridgeActorRunner"]

ACTORS = "actors"
"""What the bridge calls the graph that runs them all."""

_LOOK_SECONDS = 0.1


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
        stream = Route(partial(self._begun, request)).send(message, cancel)
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
        standing = Standing(
            request=request,
            graph=self._graph.compiled(request.actor, request.actors or _NoActors()),
            saver=DatabaseCheckpointSaver(self._store, fence=request.fence, history=False),
            tell=lambda progress: listen(message.seen(progress)),
        )
        self._graph.enter(standing)
        try:
            run = self._bridge.create_future_task(message)
        except BaseException:
            self._graph.leave(standing)
            raise
        # Before the answer is told, so that whoever has it may run the thread again.
        run.add_done_callback(lambda _: self._graph.leave(standing))
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
