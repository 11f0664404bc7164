"""One run of one graph: a future for its callers, and a tree of tasks and threads on the loop.

A run has ended when all of its parts have: the graph's task, every task that its nodes created, and every
thread that a synchronous node occupies. Only then does its future resolve. The return of LangGraph is not the
end of a run: after a second cancellation LangGraph stops waiting for its nodes, and cancelling a call to a
thread leaves the thread running. A caller could then release the sandbox while a node still writes to it.

`RunEvents` publishes the runs as events.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import structlog

from cleveragents.actors.bridge.loop_thread import LoopThread
from cleveragents.actors.streams.message import MessageKind, StreamMessage
from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    BlockingOnLoop,
    BudgetExhausted,
    Cancelled,
    CleverAgentsError,
    DeadlineExceeded,
    GraphFailed,
    LoopStopped,
    NeedsHuman,
    QueueFull,
)
from cleveragents.core.event import DomainEvent, EventPublisher, EventType
from cleveragents.core.identifiers import IdentifierSource

__all__ = ["GraphRun", "RunEvents", "adopt_call", "adopting_task_factory"]


class GraphRun(Future[StreamMessage]):
    """A future that resolves with a message about the run's actual end. It never raises the graph's error.

    Thread safety:
        Owner: the bridge. Any thread may use the methods of a future; `begin`, `stop` and all names with a
            leading underscore belong to the loop's thread.
        Lock: the future's own; the rest is touched on the loop only.
        Guarantee: it is pending until everything that the run started has ended, also after `cancel`.
    Cancel safety: `cancel` only asks; the run ends when its nodes have cleaned up.
    """

    def __init__(self, run_id: str, message: StreamMessage, loop: LoopThread) -> None:
        super().__init__()
        self.id = run_id
        self.message = message
        self._loop = loop
        self._context: contextvars.Context | None = contextvars.copy_context()
        self._context.run(_current.set, self)
        self._why: CleverAgentsError | None = None
        self._root: asyncio.Task[Any] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = _PRUNE_AT
        self._calls: list[Future[Any]] = []
        self._on_end: Callable[[GraphRun], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # ── for any thread ──

    def cancel(self) -> bool:
        """Ask the run to end; return False if it has ended. A second request has no effect."""
        if self.done():
            return False
        return self._loop.post(self.stop, Cancelled("the future of the run was cancelled"))

    def result(self, timeout: float | None = None) -> StreamMessage:
        """Return the answer. Raises `TimeoutError` if it does not arrive in time, and `BlockingOnLoop` on the
        loop itself.
        """
        self._refuse_to_wait_for_myself("result()")
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return None, because errors arrive as answers. Waits as `result` does."""
        self._refuse_to_wait_for_myself("exception()")
        return super().exception(timeout)

    def _refuse_to_wait_for_myself(self, what: str) -> None:
        if self._loop.is_current() and not self.done():  # guard: this wait could never end
            raise BlockingOnLoop(what)

    # ── on the loop ──

    def begin(self, work: Callable[[], Coroutine[Any, Any, Any]], on_end: Callable[[GraphRun], None]) -> bool:
        """Start the work, unless the run was already stopped; return whether it was started. `on_end` is
        called at the end in either case.
        """
        self._on_end = on_end
        if self._why is not None:  # guard: a run that was cancelled in the queue never starts
            self._settle()
            return False
        context, self._context = (
            self._context,
            None,
        )  # it refers to the run, so keeping it would create a cycle
        self._root = self._loop.loop.create_task(work(), context=context)
        self._root.add_done_callback(self._root_ended)
        return True

    def limit(self, seconds: float) -> None:
        """Stop the run after `seconds`."""
        why = DeadlineExceeded(f"graph {self.message.graph!r}", seconds)
        self._timer = self._loop.loop.call_later(seconds, self.stop, why)

    def stop(self, why: CleverAgentsError, insist: bool = False) -> None:
        """Cancel the run, once: a second cancellation would interrupt the nodes' clean-up.

        With `insist`, all of the run's tasks are cancelled again, for nodes that swallowed the first
        cancellation.
        """
        first = self._why is None
        if first:
            self._why = why
        if self._root is None or self.done():
            return
        if (first or insist) and not self._root.done():
            self._root.cancel()
        if insist:
            for task in self._tasks:
                task.cancel()

    def answer(self) -> StreamMessage:
        """Return the message that describes the run's end."""
        root = self._root
        if root is None or root.cancelled():
            why = self._why or Cancelled("the graph cancelled itself")
            return self.message.failure(why, _kind_of(why))
        error = root.exception()
        if error is not None:
            failed = GraphFailed(self.message.graph, f"{type(error).__name__}: {error}")
            failed.__cause__ = error
            return self.message.failure(failed)
        output = root.result()
        return self.message.result(output if isinstance(output, Mapping) else {"output": output})

    def _root_ended(self, root: asyncio.Task[Any]) -> None:
        # Callbacks are added only now: most runs have no running parts left.
        for task in self._tasks:
            self._outlived_by(task)
        for call in self._calls:
            if not call.done():
                call.add_done_callback(lambda _: self._loop.post(self._settle))
        self._settle()

    def _adopt(self, task: asyncio.Task[Any]) -> None:
        if self._on_end is None:
            return  # created by a callback that outlived the run; the loop cancels it when it stops
        if len(self._tasks) >= self._prune_at:
            self._tasks = [earlier for earlier in self._tasks if not earlier.done()]
            self._prune_at = max(_PRUNE_AT, 2 * len(self._tasks))
        self._tasks.append(task)
        if self._root is not None and self._root.done():
            self._outlived_by(task)

    def _outlived_by(self, task: asyncio.Task[Any]) -> None:
        if not task.done():
            task.cancel()  # the graph did not wait for this task, so nothing else will
            task.add_done_callback(lambda _: self._settle())

    def _settle(self) -> None:
        on_end = self._on_end
        if on_end is None:
            return
        if not all(task.done() for task in self._tasks) or not all(call.done() for call in self._calls):
            return
        self._on_end = None
        if self._timer is not None:
            self._timer.cancel()
        on_end(self)
        self._root = None  # its traceback and context would otherwise live as long as the future
        self._tasks.clear()
        self._calls.clear()


_current: contextvars.ContextVar[GraphRun | None] = contextvars.ContextVar("graph_run", default=None)
_PRUNE_AT = 16

log = structlog.get_logger()
_ENDINGS = {
    MessageKind.RESULT: EventType.GRAPH_RUN_SUCCEEDED,
    MessageKind.ERROR: EventType.GRAPH_RUN_FAILED,
    MessageKind.TIMEOUT: EventType.GRAPH_RUN_FAILED,
    MessageKind.CANCELLED: EventType.GRAPH_RUN_CANCELLED,
}


def adopting_task_factory(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,
) -> asyncio.Task[Any]:
    """Create a task and attach it to the run whose context it is created in."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
    run = _current.get()
    if run is not None:
        run._adopt(task)
    return task


def adopt_call(call: Future[Any]) -> None:
    """Attach a call on a thread to the run whose context it is made in."""
    run = _current.get()
    if run is not None:
        run._calls = [earlier for earlier in run._calls if not earlier.done()]
        run._calls.append(call)


def _kind_of(why: CleverAgentsError) -> MessageKind:
    if isinstance(why, DeadlineExceeded):
        return MessageKind.TIMEOUT
    if isinstance(why, LoopStopped):
        return MessageKind.ERROR
    return MessageKind.CANCELLED


@dataclass(frozen=True, slots=True)
class RunEvents:
    """Publishes events about runs from the loop, without ever waiting for room on the bus.

    An event that the publisher refuses is lost; the loss is logged, and the run still gets its answer. An
    event counts as refused if the bus is full. An event names the graph, the message and the class of an
    error, but no contents, which may hold secrets.
    """

    publisher: EventPublisher
    identifiers: IdentifierSource
    clock: Clock

    def started(self, run_id: str, request: StreamMessage) -> None:
        """Publish that the run left the queue."""
        self._emit(EventType.GRAPH_RUN_STARTED, run_id, request)

    def ended(self, run_id: str, answer: StreamMessage) -> None:
        """Publish how the run ended, according to the answer. A run that needs a person is published as
        paused.
        """
        cause = None if answer.error is None else answer.error.__cause__
        waits = isinstance(cause, NeedsHuman | BudgetExhausted)
        self._emit(EventType.GRAPH_RUN_PAUSED if waits else _ENDINGS[answer.kind], run_id, answer)

    def _emit(self, event_type: EventType, run_id: str, message: StreamMessage) -> None:
        payload = {"graph": message.graph, "message_id": message.id}
        if message.error is not None:
            payload["error"] = type(message.error).__name__
        try:
            event = DomainEvent(
                event_type=event_type,
                subject=run_id,
                event_id=self.identifiers.new(),
                occurred_at=self.clock.now(),
                payload=payload,
            )
            self.publisher.emit(event, wait=False)
        except QueueFull as full:  # no traceback: many events may be lost at once
            log.error("graph.event_lost", event_type=event_type.value, run_id=run_id, error=str(full))
        except Exception:
            log.exception("graph.event_lost", event_type=event_type.value, run_id=run_id)
