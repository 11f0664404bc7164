"""The bridge between streams and graphs: messages in, graph runs on the bridge's own loop, messages out.

The loop has its own thread, so any thread may call the bridge, with or without a loop. One lock
(`AdmissionLedger`) decides admission, removal and closing. The snapshot of a clean-up contains every run that
was admitted before it and has not ended. After `close`, no run can be admitted, so the snapshot contains all
remaining runs. The ledger knows neither loops nor graphs.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import structlog

from cleveragents.actors.bridge.graph_run import GraphRun, RunEvents, adopt_call, adopting_task_factory
from cleveragents.actors.bridge.loop_thread import LoopThread, NodeThreads
from cleveragents.actors.streams.message import MessageKind, StreamMessage
from cleveragents.core.errors import (
    BlockingOnLoop,
    Cancelled,
    CleverAgentsError,
    Closed,
    DeadlineExceeded,
    LoopStopped,
    QueueFull,
    UnknownGraph,
)

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["AdmissionLedger", "Cleanup", "Graph", "RxPyLangGraphBridge"]


log = structlog.get_logger()
_NAME = "the graph bridge"

_ASKING_SHARE = 0.8
"""Share of a clean-up's time for the first cancellation; the rest is for the second."""

_CANCELS_PER_TURN = 100
"""Limits the cancellations per turn of the loop, so that cancelling thousands of runs does not block the
others.
"""
_NODE_THREADS = 64

T = TypeVar("T")


class Graph(Protocol):
    """The part of a compiled LangGraph graph that the bridge uses."""

    def ainvoke(self, input_: Any, config: Any = None, /) -> Any:
        """Run the graph; awaitable."""
        ...


@dataclass(frozen=True, slots=True)
class Cleanup:
    """The result of a clean-up: how the runs in flight ended."""

    cancelled: int = 0
    ended_otherwise: int = 0
    unfinished: int = 0


class RxPyLangGraphBridge:
    """Runs graphs for messages, at most `max_in_flight` at once.

    Thread safety:
        Owner: the caller that created it closes it. Any thread may call anything; on the bridge's own loop,
            calls that would wait raise `BlockingOnLoop`.
        Lock: `_tasks_lock` guards `_active_tasks` and whether the bridge is closed, for set operations
            only; no event, callback or graph runs under it.
        Guarantee: `create_future_task` raises, or its run is in `_active_tasks` before it returns and
            its future resolves exactly once, after the run has left the set and everything that it
            started has ended; a run that outlasts `close` resolves with an error that says so.
    Cancel safety: cancelling the future cancels the run. An interrupted or cancelled clean-up has asked all
        runs to end, and they do; after an interrupted `close`, the bridge is closed, and `close` may be
        repeated.
    Forks: the loop's thread stays in the parent. In a child the bridge counts as closed.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        *,
        max_in_flight: int = 64,
        timeout_seconds: float | None = None,
        admission_seconds: float = 30.0,
        events: RunEvents | None = None,
    ) -> None:
        self._graphs = dict(graphs)
        self._timeout_seconds = timeout_seconds
        self._admission_seconds = admission_seconds
        self._events = events
        self._run_numbers = count(1)
        self._process = os.getpid()
        self._tasks_lock = threading.Lock()
        self._active_tasks: set[GraphRun] = set()
        self._ledger = AdmissionLedger(_NAME, max_in_flight, self._active_tasks, self._tasks_lock)
        threads = NodeThreads(min(max_in_flight, _NODE_THREADS), adopt_call)
        self._loop_thread = LoopThread("cleveragents-bridge", self, threads)
        self._loop_thread.loop.set_task_factory(adopting_task_factory)

    # ── work ──

    def create_future_task(self, msg: StreamMessage) -> GraphRun:
        """Start a run of the message's graph.

        The future always resolves with a message, however the run ends. At the limit, this waits for room up
        to `admission_seconds` and then raises `QueueFull`; a thread with a running event loop does not wait.
        Also raises `UnknownGraph` and `Closed`.
        """
        if self._forked():  # guard: a fork has no loop thread, and maybe a lock held for ever
            raise Closed(f"{_NAME} of another process")
        graph = self._graphs.get(msg.graph)
        if graph is None:
            raise UnknownGraph(msg.graph, tuple(sorted(self._graphs)))
        run = GraphRun(self._new_run_id(), msg, self._loop_thread)
        self._ledger.admit(run, 0.0 if _runs_a_loop() else self._admission_seconds)
        if not self._loop_thread.post(self._begin, run, graph):  # guard: the loop has ended meanwhile
            self._resolve(run, run.message.failure(LoopStopped(_NAME)))
        return run

    def run(self, source: Observable[StreamMessage]) -> Observable[StreamMessage]:
        """Return the answers to a stream of requests, each when its run ends: `source.pipe(bridge.run)`.

        Refusals, errors and timeouts are messages, too. Answers arrive on the bridge's loop, one at a time;
        put an `observe_on` before a slow observer. The stream ends after the source has ended and the last
        answer is delivered. Disposing it cancels its runs and stops the delivery.
        """
        from cleveragents.actors.bridge.answer_stream import answers

        return answers(source, self.create_future_task, self._loop_thread)

    # ── endings ──

    def cleanup_tasks(self, timeout: float = 5.0) -> Cleanup:
        """Cancel all admitted runs and wait for their ends, up to `timeout` seconds. The bridge stays usable.

        Runs that have not ended after most of the timeout are cancelled a second time.
        """
        self._refuse_on_the_loop("cleanup_tasks()")
        if self._forked():  # guard: in a fork the lock may be held for ever
            return Cleanup()
        runs = self._ledger.snapshot()
        return self._drain(runs, timeout, Cancelled("the bridge is cleaning up"))

    async def cleanup_tasks_async(self, timeout: float = 5.0) -> Cleanup:
        """Cancel all admitted runs as `cleanup_tasks` does, on any event loop and without
        blocking that loop.
        """
        if self._forked():  # guard: in a fork the lock may be held for ever
            return Cleanup()
        runs = self._ledger.snapshot()
        why = Cancelled("the bridge is cleaning up")
        self._stop_all(runs, why)
        left = await _ended_within(runs, timeout * _ASKING_SHARE)
        self._stop_all(left, why, insist=True)
        await _ended_within(left, timeout * (1 - _ASKING_SHARE))
        return _account(runs)

    def close(self, timeout: float = 5.0) -> Cleanup:
        """Refuse new work, cancel and drain as `cleanup_tasks` does, and end the loop's thread.

        Closing twice is safe. The thread gets two more seconds to end. A run that does not end in time is
        abandoned: its future resolves with an error.
        """
        self._refuse_on_the_loop("close()")
        if self._forked():  # guard: there is nothing to close in a fork
            return Cleanup()
        report = self._drain(self._ledger.close(), timeout, Cancelled("the bridge was closed"))
        self._loop_thread.stop()
        self._abandon(DeadlineExceeded("a graph run that was cancelled", timeout))
        return report

    def __enter__(self) -> RxPyLangGraphBridge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── on the loop ──

    def _begin(self, run: GraphRun, graph: Graph) -> None:
        if run.begin(lambda: _execute(graph, run.message), self._run_ended):
            if self._timeout_seconds is not None:
                run.limit(self._timeout_seconds)
            if self._events is not None:
                self._events.started(run.id, run.message)

    def _run_ended(self, run: GraphRun) -> None:
        self._resolve(run, run.answer())

    def _stop_some(self, runs: tuple[GraphRun, ...], why: CleverAgentsError, insist: bool) -> None:
        for run in runs[:_CANCELS_PER_TURN]:
            run.stop(why, insist)
        if len(runs) > _CANCELS_PER_TURN:
            self._loop_thread.post(self._stop_some, runs[_CANCELS_PER_TURN:], why, insist)

    def loop_stopping(self, asked: bool) -> None:
        """Internal: called by the loop's thread when the loop has stopped."""
        runs = self._ledger.close()
        if not asked:
            log.error("bridge.loop_stopped", in_flight=len(runs))
        for run in runs:
            run.stop(LoopStopped(_NAME))

    def loop_stopped(self) -> None:
        """Internal: called by the loop's thread when nothing will run any more."""
        self._ledger.close()
        self._abandon(LoopStopped(_NAME))

    # ── anywhere ──

    def _resolve(self, run: GraphRun, answer: StreamMessage) -> None:
        if not self._remove_task(run):  # guard: another thread has resolved it
            return
        if self._events is not None:
            self._events.ended(run.id, answer)
        run.set_result(answer)

    def _remove_task(self, run: GraphRun) -> bool:
        return self._ledger.remove(run)

    def _drain(self, runs: tuple[GraphRun, ...], timeout: float, why: CleverAgentsError) -> Cleanup:
        self._stop_all(runs, why)
        wait(runs, timeout * _ASKING_SHARE)
        left = tuple(run for run in runs if not run.done())
        self._stop_all(left, why, insist=True)
        wait(left, timeout * (1 - _ASKING_SHARE))
        return _account(runs)

    def _stop_all(self, runs: tuple[GraphRun, ...], why: CleverAgentsError, insist: bool = False) -> None:
        if runs:
            self._loop_thread.post(self._stop_some, runs, why, insist)

    def _abandon(self, why: CleverAgentsError) -> None:
        for run in self._ledger.snapshot():
            log.error("graph.run_abandoned", run_id=run.id, graph=run.message.graph)
            self._resolve(run, run.message.failure(why, MessageKind.ERROR))

    def _refuse_on_the_loop(self, what: str) -> None:
        if self._loop_thread.is_current():  # guard: this wait could never end
            raise BlockingOnLoop(what)

    def _forked(self) -> bool:
        return os.getpid() != self._process

    def _new_run_id(self) -> str:
        if self._events is not None:
            return self._events.identifiers.new()
        return f"run-{next(self._run_numbers)}"


async def _execute(graph: Graph, message: StreamMessage) -> Any:
    config = {"configurable": {"thread_id": message.thread_id}} if message.thread_id else None
    return await graph.ainvoke(dict(message.content), config)


async def _ended_within(runs: tuple[GraphRun, ...], seconds: float) -> tuple[GraphRun, ...]:
    """Return the runs that have not ended in time."""
    if runs:
        loop = asyncio.get_running_loop()
        all_ended = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                _when_all_ended(runs, lambda: loop.call_soon_threadsafe(all_ended.set))
                await all_ended.wait()
    return tuple(run for run in runs if not run.done())


def _when_all_ended(runs: tuple[GraphRun, ...], act: Callable[[], object]) -> None:
    endings = count(1)  # next() is one C call, so exactly one ending is the last

    def ended(_: object) -> None:
        if next(endings) == len(runs):
            with suppress(RuntimeError):  # the waiter's loop is closed, so it no longer waits
                act()

    for run in runs:
        run.add_done_callback(ended)


def _account(runs: Iterable[GraphRun]) -> Cleanup:
    kinds = [run.result().kind if run.done() else None for run in runs]
    cancelled = kinds.count(MessageKind.CANCELLED)
    unfinished = kinds.count(None)
    return Cleanup(cancelled, len(kinds) - cancelled - unfinished, unfinished)


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class AdmissionLedger(Generic[T]):
    """A set of at most `bound` items; none is admitted after `close`.

    Thread safety:
        Owner: the bridge, which also gives the lock and the set. Any thread may call.
        Lock: `_tasks_lock` guards the set and `_closed`, for set operations only.
        Guarantee: an item is in the set from before `admit` returns until exactly one `remove` of it
            returned True; no admission succeeds after `close` took its snapshot.
    Cancel safety: a thread interrupted while it waits for room has admitted nothing.
    """

    def __init__(self, name: str, bound: int, active: set[T], tasks_lock: threading.Lock) -> None:
        if bound < 1:
            raise ValueError("the maximum number of runs in flight must be at least 1")
        self._name = name
        self._bound = bound
        self._active = active
        self._tasks_lock = tasks_lock
        self._room = threading.Condition(tasks_lock)
        self._closed = False

    def admit(self, item: T, patience_seconds: float) -> None:
        """Admit an item, waiting for room if necessary.

        Raises `Closed`, or `QueueFull` after `patience_seconds`.
        """
        with self._tasks_lock:
            if len(self._active) >= self._bound:  # guard: bounds the runs in flight
                self._room.wait_for(self._may_go_on, patience_seconds)
            if self._closed:  # guard: nothing is admitted after close took its snapshot
                raise Closed(self._name)
            if len(self._active) >= self._bound:  # guard: patience is over and there is still no room
                raise QueueFull(self._name, self._bound)
            self._active.add(item)

    def remove(self, item: T) -> bool:
        """Remove an item and return whether this call removed it.

        Only the caller that removed it may report the item's end.
        """
        with self._tasks_lock:
            if item not in self._active:  # guard: only one caller may report the item's end
                return False
            self._active.remove(item)
            self._room.notify()
            return True

    def snapshot(self) -> tuple[T, ...]:
        """Return the items in flight."""
        with self._tasks_lock:
            return tuple(self._active)

    def close(self) -> tuple[T, ...]:
        """Refuse all further items, wake the waiters, and return the items in flight."""
        with self._tasks_lock:
            self._closed = True
            self._room.notify_all()
            return tuple(self._active)

    def _may_go_on(self) -> bool:
        return self._closed or len(self._active) < self._bound
