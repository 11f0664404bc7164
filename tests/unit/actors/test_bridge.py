"""The guarantees of the bridge about runs, shown on real LangGraph graphs."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
from cleveragents.actors.bridge.graph_run import RunEvents
from cleveragents.actors.bridge.loop_thread import NodeThreads
from cleveragents.actors.streams.message import MessageKind, StreamMessage
from cleveragents.core.errors import (
    Cancelled,
    Closed,
    DeadlineExceeded,
    GraphFailed,
    NeedsHuman,
    QueueFull,
    UnknownGraph,
)
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.events.reactive import ReactiveEventBus
from cleveragents.testing.clock import CountingIdentifiers, FakeClock
from tests.bridge_graphs import LIMIT, Gate, State, async_increment, branches, chain, request, sync_increment


@contextmanager
def bridge_over(*nodes: Callable[[State], Any], **options: Any) -> Iterator[RxPyLangGraphBridge]:
    with RxPyLangGraphBridge({"graph": chain(*nodes)}, **options) as bridge:
        yield bridge


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


# ── answers ──


def test_async_and_sync_nodes_answer_with_the_final_state() -> None:
    with bridge_over(async_increment, sync_increment, async_increment) as bridge:
        answer = bridge.create_future_task(request(number=4)).result(LIMIT)
    assert answer == StreamMessage("message-4", "graph", {"n": 7, "seen": []}, MessageKind.RESULT)


def test_parallel_branches_all_contribute() -> None:
    async def left(state: State) -> State:
        return {"seen": ["left"]}

    def right(state: State) -> State:
        return {"seen": ["right"]}

    with RxPyLangGraphBridge({"graph": branches(left, right)}) as bridge:
        answer = bridge.create_future_task(request()).result(LIMIT)
    assert sorted(answer.content["seen"]) == ["left", "right"]


def test_a_raising_node_is_an_error_message_and_the_next_run_is_unharmed() -> None:
    async def odd_ones_fail(state: State) -> State:
        if state["n"] % 2:
            raise ValueError("odd")
        return {"n": 0}

    with bridge_over(odd_ones_fail) as bridge:
        failed, fine = (bridge.create_future_task(request(number=n)).result(LIMIT) for n in (1, 2))
    assert failed.kind is MessageKind.ERROR
    assert isinstance(failed.error, GraphFailed)
    assert isinstance(failed.error.__cause__, ValueError)
    assert "odd" in str(failed.error)
    assert fine.kind is MessageKind.RESULT


@pytest.mark.parametrize("exit_error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("colour", ["async", "sync"])
def test_a_node_that_exits_does_not_affect_other_runs(
    gate: Gate, exit_error: type[BaseException], colour: str
) -> None:
    async def leave(state: State) -> State:
        raise exit_error

    def leave_thread(state: State) -> State:
        raise exit_error

    leaving = chain(leave if colour == "async" else leave_thread)
    with RxPyLangGraphBridge({"leave": leaving, "hold": chain(gate.hold)}) as bridge:
        held = bridge.create_future_task(request("hold"))
        gate.wait_entered()
        left = bridge.create_future_task(request("leave")).result(LIMIT)
        gate.open()
        assert held.result(LIMIT).kind is MessageKind.RESULT
    assert left.kind is MessageKind.ERROR
    assert exit_error.__name__ in str(left.error)


def test_an_output_that_is_not_a_mapping_is_wrapped() -> None:
    class Echo:
        async def ainvoke(self, input_: Any, config: Any = None) -> Any:
            return "plain"

    with RxPyLangGraphBridge({"graph": Echo()}) as bridge:
        assert bridge.create_future_task(request()).result(LIMIT).content == {"output": "plain"}


def test_an_unknown_graph_is_refused_with_the_known_ones() -> None:
    with bridge_over(async_increment) as bridge, pytest.raises(UnknownGraph, match=r"'grap'.*graph"):
        bridge.create_future_task(request("grap"))


def test_time_over_is_a_timeout_message() -> None:
    with bridge_over(Gate().hold, timeout_seconds=0.01) as bridge:
        answer = bridge.create_future_task(request()).result(LIMIT)
    assert answer.kind is MessageKind.TIMEOUT
    assert isinstance(answer.error, DeadlineExceeded)


def test_a_run_that_ended_in_time_is_not_stopped_later(gate: Gate) -> None:
    with bridge_over(async_increment, timeout_seconds=LIMIT) as bridge:
        assert bridge.create_future_task(request()).result(LIMIT).kind is MessageKind.RESULT


def test_the_context_of_the_caller_travels_and_does_not_spread() -> None:
    who = contextvars.ContextVar("who", default="nobody")

    async def ask(state: State) -> State:
        answer = who.get()
        who.set("the node")
        return {"seen": [answer]}

    def ask_thread(state: State) -> State:
        return {"seen": [who.get()]}

    with bridge_over(ask, ask_thread) as bridge:
        who.set("alice")
        first = bridge.create_future_task(request())
        who.set("bob")
        second = bridge.create_future_task(request())
        assert first.result(LIMIT).content["seen"] == ["alice", "alice"]
        assert second.result(LIMIT).content["seen"] == ["bob", "bob"]
        assert who.get() == "bob"


def test_thread_id_finds_the_conversation_of_a_graph_with_a_checkpointer() -> None:
    builder = StateGraph(State)
    builder.add_node("note", lambda state: {"seen": [str(state["n"])]})
    builder.add_edge(START, "note")
    builder.add_edge("note", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    with RxPyLangGraphBridge({"graph": graph}) as bridge:
        for n, thread in ((1, "a"), (2, "b"), (3, "a")):
            message = StreamMessage(str(n), "graph", {"n": n}, thread_id=thread)
            answer = bridge.create_future_task(message).result(LIMIT)
    assert answer.content["seen"] == ["1", "3"]


def test_a_node_may_submit_a_run_of_its_own_bridge() -> None:
    async def delegate(state: State) -> State:
        run = bridge.create_future_task(request("inner", state["n"]))
        answer = await asyncio.wrap_future(run)
        return {"n": answer.content["n"]}

    graphs = {"outer": chain(delegate), "inner": chain(async_increment)}
    with RxPyLangGraphBridge(graphs) as bridge:
        assert bridge.create_future_task(request("outer", 5)).result(LIMIT).content["n"] == 6


# ── the set of active tasks and its limit ──


def test_a_run_is_active_from_before_its_future_is_returned_until_before_it_resolves(gate: Gate) -> None:
    with bridge_over(gate.hold) as bridge:
        run = bridge.create_future_task(request())
        assert run in bridge._active_tasks
        gate.open()
        run.result(LIMIT)
        assert not bridge._active_tasks


def test_at_the_bound_patience_ends_with_queue_full(gate: Gate) -> None:
    with bridge_over(gate.hold, max_in_flight=2, admission_seconds=0.01) as bridge:
        runs = [bridge.create_future_task(request()) for _ in range(2)]
        with pytest.raises(QueueFull):
            bridge.create_future_task(request())
        gate.open()
        assert {run.result(LIMIT).kind for run in runs} == {MessageKind.RESULT}
        assert bridge.create_future_task(request()).result(LIMIT).kind is MessageKind.RESULT


def test_at_the_bound_a_submit_waits_for_room(gate: Gate) -> None:
    with bridge_over(gate.hold, max_in_flight=1, admission_seconds=LIMIT) as bridge:
        first = bridge.create_future_task(request())
        gate.wait_entered()
        answers = []
        second = threading.Thread(
            target=lambda: answers.append(bridge.create_future_task(request(number=9)).result(LIMIT))
        )
        second.start()
        gate.open()
        second.join(LIMIT)
        assert first.result(LIMIT).kind is MessageKind.RESULT
    assert [answer.content["n"] for answer in answers] == [10]


def test_a_thread_that_runs_a_loop_is_never_made_to_wait_for_room(gate: Gate) -> None:
    async def submit_two() -> None:
        bridge.create_future_task(request())
        with pytest.raises(QueueFull):
            bridge.create_future_task(request())

    with bridge_over(gate.hold, max_in_flight=1, admission_seconds=10 * LIMIT) as bridge:
        asyncio.run(submit_two())


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RxPyLangGraphBridge({}, max_in_flight=0)


# ── cancelling ──


def test_a_cancelled_run_resolves_only_after_its_nodes_have_cleaned_up(gate: Gate) -> None:
    with bridge_over(gate.clean_up_slowly) as bridge:
        run = bridge.create_future_task(request())
        gate.wait_entered()
        assert run.cancel()
        assert gate.cleaning.wait(LIMIT)
        assert not run.done()
        assert run.cancel(), "asking again is allowed and must not break into the clean-up"
        gate.open()
        answer = run.result(LIMIT)
        assert gate.cleaned.is_set()
        assert not run.cancel()
    assert answer.kind is MessageKind.CANCELLED
    assert isinstance(answer.error, Cancelled)
    assert run.exception() is None


def test_a_cancelled_run_resolves_only_after_its_synchronous_node_has_left_its_thread(gate: Gate) -> None:
    with bridge_over(gate.hold_thread) as bridge:
        run = bridge.create_future_task(request())
        gate.wait_entered()
        run.cancel()
        # A second run passes through the loop after the cancellation, so the latter was delivered.
        bridge._graphs["other"] = chain(async_increment)
        bridge.create_future_task(request("other")).result(LIMIT)
        assert not run.done()
        gate.open()
        assert run.result(LIMIT).kind is MessageKind.CANCELLED
        assert gate.cleaned.is_set()


def test_a_run_cancelled_at_once_never_starts_or_ends_cancelled(gate: Gate) -> None:
    with bridge_over(gate.hold) as bridge:
        runs = [bridge.create_future_task(request()) for _ in range(20)]
        for run in runs:
            run.cancel()
        assert {run.result(LIMIT).kind for run in runs} == {MessageKind.CANCELLED}


def test_tasks_that_a_node_left_behind_end_with_the_run(gate: Gate) -> None:
    left: list[asyncio.Task[State]] = []

    async def leave_a_task(state: State) -> State:
        left.append(asyncio.create_task(gate.clean_up_slowly(state)))
        await asyncio.sleep(0)
        return {"n": 1}

    with bridge_over(leave_a_task) as bridge:
        run = bridge.create_future_task(request())
        assert gate.cleaning.wait(LIMIT)
        assert not run.done()
        gate.open()
        assert run.result(LIMIT).kind is MessageKind.RESULT
        assert gate.cleaned.is_set()


# ── events ──


class Recorder:
    def __init__(self) -> None:
        self.events: list[DomainEvent] = []

    def emit(self, event: DomainEvent, *, wait: bool = True) -> int:
        self.events.append(event)
        return len(self.events)


class Broken:
    def emit(self, event: DomainEvent, *, wait: bool = True) -> int:
        raise RuntimeError("no room")


def test_every_run_is_announced_once_at_each_end(gate: Gate) -> None:
    async def fail(state: State) -> State:
        raise ValueError("secret")

    recorder = Recorder()
    graphs = {"fine": chain(async_increment), "fail": chain(fail), "hold": chain(gate.hold)}
    events = RunEvents(recorder, CountingIdentifiers(), FakeClock())
    with RxPyLangGraphBridge(graphs, events=events) as bridge:
        fine = bridge.create_future_task(request("fine"))
        fine.result(LIMIT)
        failed = bridge.create_future_task(request("fail"))
        failed.result(LIMIT)
        held = bridge.create_future_task(request("hold"))
        gate.wait_entered()
        held.cancel()
        held.result(LIMIT)
    assert [(event.event_type, event.subject) for event in recorder.events] == [
        (EventType.GRAPH_RUN_STARTED, fine.id),
        (EventType.GRAPH_RUN_SUCCEEDED, fine.id),
        (EventType.GRAPH_RUN_STARTED, failed.id),
        (EventType.GRAPH_RUN_FAILED, failed.id),
        (EventType.GRAPH_RUN_STARTED, held.id),
        (EventType.GRAPH_RUN_CANCELLED, held.id),
    ]
    failure = recorder.events[3].payload
    assert failure == {"graph": "fail", "message_id": "message-1", "error": "GraphFailed"}


def test_a_run_that_needs_a_person_is_announced_as_paused() -> None:
    async def ask(state: State) -> State:
        raise NeedsHuman("plan-1", "run `pytest -q`")

    recorder = Recorder()
    events = RunEvents(recorder, CountingIdentifiers(), FakeClock())
    with RxPyLangGraphBridge({"ask": chain(ask)}, events=events) as bridge:
        bridge.create_future_task(request("ask")).result(LIMIT)
    assert [event.event_type for event in recorder.events][-1] is EventType.GRAPH_RUN_PAUSED


def test_a_publisher_that_fails_costs_no_answer() -> None:
    events = RunEvents(Broken(), CountingIdentifiers(), FakeClock())
    with bridge_over(async_increment, events=events) as bridge:
        assert bridge.create_future_task(request()).result(LIMIT).kind is MessageKind.RESULT


def test_a_call_without_a_thread_never_runs_and_fails_its_run() -> None:
    class NoMoreThreads(NodeThreads):
        def _add_thread(self) -> None:
            raise RuntimeError("can't start new thread")

    futures: list[Future[Any]] = []
    threads = NoMoreThreads(4, futures.append)
    with pytest.raises(RuntimeError, match="new thread"):
        threads.submit(print)
    assert futures[0].cancelled()
    threads.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        threads.submit(print)


def test_a_full_queue_on_the_bus_holds_up_no_run() -> None:
    full = threading.Event()
    leave = threading.Event()

    def stand_still(_: DomainEvent) -> None:
        full.set()
        leave.wait(LIMIT)

    bus = ReactiveEventBus(block_seconds=10 * LIMIT)
    bus.subscribe(None, stand_still, ordered=True, bound=1)
    events = RunEvents(bus, CountingIdentifiers(), FakeClock())
    with bridge_over(async_increment, events=events) as bridge, structlog.testing.capture_logs() as logs:
        first = bridge.create_future_task(request())
        assert full.wait(LIMIT)
        runs = [first, *(bridge.create_future_task(request()) for _ in range(3))]
        assert {run.result(LIMIT).kind for run in runs} == {MessageKind.RESULT}
    leave.set()
    bus.close()
    lost = [entry["event_type"] for entry in logs if entry["event"] == "graph.event_lost"]
    assert len(lost) == bus.statistics().refused == 8 - bus.statistics().emitted
    assert bus.statistics().refused


# ── processes ──


def test_in_a_forked_child_the_bridge_counts_as_closed(gate: Gate) -> None:
    with bridge_over(gate.hold) as bridge:
        run = bridge.create_future_task(request())
        gate.wait_entered()
        with bridge._tasks_lock, warnings.catch_warnings():
            # A fork while another thread holds the lock: the child must not even try to take it.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            os._exit(_child_sees_closed(bridge))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        gate.open()
        assert run.result(LIMIT).kind is MessageKind.RESULT


def _child_sees_closed(bridge: RxPyLangGraphBridge) -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)  # a child that waits for the lost owner of the lock is killed, and this is noticed
    # `with` released the child's copy of the lock on the way out; take it, as a lost owner would.
    bridge._tasks_lock.acquire()
    try:
        bridge.create_future_task(request())
    except Closed:
        bridge.close()
        bridge.cleanup_tasks()
        asyncio.run(bridge.cleanup_tasks_async())
        return 0
    return 1
