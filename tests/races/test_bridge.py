"""The bridge under explored interleavings and under load; the same tests catch its predecessors.

The explorers run the code that only threads decide: the admission ledger, and the delivery of a stream's
answers. Code that needs a real loop is tested with real graphs, on the bridge and on its predecessors.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from cleveragents.actors.bridge.answer_stream import _Delivery
from cleveragents.actors.bridge.bridge import AdmissionLedger, RxPyLangGraphBridge
from cleveragents.actors.bridge.loop_thread import NodeThreads
from cleveragents.actors.streams.message import MessageKind, StreamMessage
from cleveragents.core.errors import Closed, QueueFull
from tests.bridge_graphs import LIMIT, Gate, State, async_increment, chain, request
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.races.naive_bridge import (
    LockOnlyBridge,
    LockOnlyLedger,
    PredecessorBridge,
    PredecessorLedger,
    SemaphoreThreads,
)

EFFORT = 120


# Submits wait with deadlines.
OnVirtualTime = partial(Scenario, clock="virtual")


# ── the ledger ──


def our_ledger(bound: int = 1000) -> AdmissionLedger[str]:
    return AdmissionLedger("ledger", bound, set(), threading.Lock())


MakeLedger = Callable[..., Any]


class World:
    """A ledger, and the answers to its callers."""

    def __init__(self, ledger: Any) -> None:
        self.ledger = ledger
        self.told: dict[str, Any] = {}

    def admit(self, item: str, patience_seconds: float = 0.0) -> None:
        try:
            self.ledger.admit(item, patience_seconds)
        except (Closed, QueueFull) as refusal:
            self.told[item] = type(refusal).__name__
        else:
            self.told[item] = "admitted"

    def close(self) -> None:
        try:
            self.told["snapshot"] = self.ledger.close()
        except RuntimeError as error:
            self.told["snapshot"] = (f"RuntimeError: {error}",)

    def remove(self, item: str, who: str) -> None:
        self.told[who] = self.ledger.remove(item)


def a_submit_meets_a_close(make: MakeLedger) -> Scenario[World]:
    """Refused, or in the snapshot: anything else would be a late task."""
    return OnVirtualTime(
        name="a submit meets a close",
        setup=lambda: World(make()),
        workers=[lambda world: world.admit("run"), World.close],
        outcome=lambda world: (world.told["run"], "run" in world.told["snapshot"]),
        allowed=lambda outcome: outcome in {("admitted", True), ("Closed", False)},
        reachable=frozenset({("admitted", True), ("Closed", False)}),
    )


def two_submits_meet_one_place(make: MakeLedger) -> Scenario[World]:
    """Exactly one of them gets it."""
    return OnVirtualTime(
        name="two submits meet one place",
        setup=lambda: World(make(1)),
        workers=[lambda world: world.admit("a"), lambda world: world.admit("b")],
        outcome=lambda world: (world.told["a"], world.told["b"]),
        allowed=lambda outcome: sorted(outcome) == ["QueueFull", "admitted"],
        reachable=frozenset({("QueueFull", "admitted"), ("admitted", "QueueFull")}),
    )


def two_speak_for_one_end(make: MakeLedger) -> Scenario[World]:
    """The loop ends a run while a close abandons it: exactly one of them resolves the future."""

    def setup() -> World:
        world = World(make())
        world.admit("run")
        return world

    return OnVirtualTime(
        name="two speak for one end",
        setup=setup,
        workers=[lambda w: w.remove("run", "loop"), lambda w: w.remove("run", "close")],
        outcome=lambda world: (world.told["loop"], world.told["close"]),
        allowed=lambda outcome: sorted(outcome) == [False, True],
        reachable=frozenset({(True, False), (False, True)}),
    )


def an_end_meets_a_snapshot(make: MakeLedger) -> Scenario[World]:
    """A snapshot while runs end contains those that have not, and never fails."""

    def setup() -> World:
        world = World(make())
        world.admit("a")
        world.admit("b")
        return world

    def outcome(world: World) -> Any:
        return tuple(sorted(world.told["snapshot"])), "a" in world.ledger.snapshot()

    return OnVirtualTime(
        name="an end meets a snapshot",
        setup=setup,
        workers=[lambda w: w.remove("a", "loop"), World.close],
        outcome=outcome,
        allowed=lambda outcome: outcome in {(("a", "b"), False), (("b",), False)},
        reachable=frozenset({(("a", "b"), False), (("b",), False)}),
    )


def a_waiting_submit_meets_an_end_and_a_close(make: MakeLedger) -> Scenario[World]:
    """A waiting submit gets room or the close, and is in the snapshot or refused."""

    def setup() -> World:
        world = World(make(1))
        world.admit("first")
        return world

    return OnVirtualTime(
        name="a waiting submit meets an end and a close",
        setup=setup,
        workers=[
            lambda world: world.admit("second", 1000.0),
            lambda world: world.remove("first", "loop"),
            World.close,
        ],
        outcome=lambda world: (world.told["second"], "second" in world.told["snapshot"]),
        allowed=lambda outcome: outcome in {("admitted", True), ("Closed", False)},
        reachable=frozenset({("admitted", True), ("Closed", False)}),
    )


def a_waiting_submit_meets_an_end(make: MakeLedger) -> Scenario[World]:
    """The place of a run that ended goes to one that waits."""

    def setup() -> World:
        world = World(make(1))
        world.admit("first")
        return world

    return OnVirtualTime(
        name="a waiting submit meets an end",
        setup=setup,
        workers=[lambda w: w.admit("second", 1000.0), lambda w: w.remove("first", "loop")],
        outcome=lambda world: (world.told["second"], world.ledger.snapshot()),
        allowed=lambda outcome: outcome == ("admitted", ("second",)),
    )


SCENARIOS = [
    a_submit_meets_a_close,
    two_submits_meet_one_place,
    two_speak_for_one_end,
    an_end_meets_a_snapshot,
    a_waiting_submit_meets_an_end_and_a_close,
    a_waiting_submit_meets_an_end,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_ledger_holds(scenario: Callable[[MakeLedger], Scenario[World]]) -> None:
    assert_holds(scenario(our_ledger), effort=EFFORT)


@pytest.mark.parametrize(
    ("scenario", "make"),
    [
        (a_submit_meets_a_close, PredecessorLedger),
        (a_submit_meets_a_close, LockOnlyLedger),
        (two_submits_meet_one_place, PredecessorLedger),
        (two_submits_meet_one_place, LockOnlyLedger),
        (two_speak_for_one_end, PredecessorLedger),
        (an_end_meets_a_snapshot, PredecessorLedger),
        (a_waiting_submit_meets_an_end_and_a_close, LockOnlyLedger),
    ],
)
def test_catches_the_task_sets_of_earlier_implementations(
    scenario: Callable[[MakeLedger], Scenario[World]], make: MakeLedger
) -> None:
    assert_caught(scenario(make), effort=EFFORT)


# ── the delivery of answers ──


class NoLoop:
    """A bridge whose loop has ended: every caller delivers for itself."""

    def is_current(self) -> bool:
        return False

    def post(self, *_: Any) -> bool:
        return False


class Run(Future[StreamMessage]):
    """Like a graph run: a cancellation is a request."""

    asked = False

    def cancel(self) -> bool:
        self.asked = True
        return True


class Stream:
    """A delivery, the futures of its runs, and an observer that detects overlaps."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.heard: list[str] = []
        self.inside = 0
        self.overlapped = False
        self.delivery = _Delivery(self, self._submit, NoLoop())

    def _submit(self, message: StreamMessage) -> Run:
        run = Run()
        self.runs[message.id] = run
        return run

    def on_next(self, answer: StreamMessage) -> None:
        self._hear(answer.id)

    def on_completed(self) -> None:
        self._hear("end")

    def _hear(self, what: str) -> None:
        inside = self.inside + 1
        self.inside = inside
        self.overlapped = self.overlapped or inside != 1
        self.heard.append(what)
        self.inside = inside - 1

    def answer(self, name: str) -> None:
        run = self.runs[name]
        run.set_result(StreamMessage(name, "graph"))

    def dispose(self) -> None:
        self.delivery.dispose()

    def request(self, name: str) -> None:
        self.delivery.request(StreamMessage(name, "graph"))


def stream_of(*names: str) -> Stream:
    stream = Stream()
    for name in names:
        stream.request(name)
    return stream


def answers_meet_the_end_of_the_source() -> Scenario[Stream]:
    return OnVirtualTime(
        name="answers meet the end of the source",
        setup=lambda: stream_of("a", "b"),
        workers=[
            lambda stream: stream.answer("a"),
            lambda stream: stream.answer("b"),
            lambda stream: stream.delivery.source_ended(),
        ],
        outcome=lambda stream: (stream.overlapped, tuple(stream.heard)),
        allowed=lambda outcome: outcome in {(False, ("a", "b", "end")), (False, ("b", "a", "end"))},
        reachable=frozenset({(False, ("a", "b", "end")), (False, ("b", "a", "end"))}),
    )


def a_request_meets_an_answer() -> Scenario[Stream]:
    """Every request is counted until it is answered: the end comes once, and last."""

    def source(stream: Stream) -> None:
        stream.request("b")
        stream.answer("b")
        stream.delivery.source_ended()

    return OnVirtualTime(
        name="a request meets an answer",
        setup=lambda: stream_of("a"),
        workers=[lambda stream: stream.answer("a"), source],
        outcome=lambda stream: (stream.overlapped, tuple(stream.heard), len(stream.delivery._runs)),
        allowed=lambda outcome: outcome in {(False, ("a", "b", "end"), 0), (False, ("b", "a", "end"), 0)},
        reachable=frozenset({(False, ("a", "b", "end"), 0), (False, ("b", "a", "end"), 0)}),
    )


def the_end_meets_dispose() -> Scenario[Stream]:
    return OnVirtualTime(
        name="the end meets dispose",
        setup=Stream,
        workers=[lambda stream: stream.delivery.source_ended(), Stream.dispose],
        outcome=lambda stream: tuple(stream.heard),
        allowed=lambda outcome: outcome in {(), ("end",)},
        reachable=frozenset({(), ("end",)}),
    )


def a_request_meets_dispose() -> Scenario[Stream]:
    """Its run is cancelled, or was never made."""

    def outcome(stream: Stream) -> Any:
        run = stream.runs.get("a")
        return "never made" if run is None else "cancelled" if run.asked else "forgotten"

    return OnVirtualTime(
        name="a request meets dispose",
        setup=Stream,
        workers=[lambda stream: stream.request("a"), Stream.dispose],
        outcome=outcome,
        allowed=lambda outcome: outcome in {"never made", "cancelled"},
        reachable=frozenset({"never made", "cancelled"}),
    )


@pytest.mark.parametrize(
    "scenario",
    [
        answers_meet_the_end_of_the_source,
        a_request_meets_an_answer,
        the_end_meets_dispose,
        a_request_meets_dispose,
    ],
)
def test_the_delivery_holds(scenario: Callable[[], Scenario[Stream]]) -> None:
    assert_holds(scenario(), effort=EFFORT // 3)


# ── the threads of synchronous nodes ──


MakeThreads = Callable[[int, Callable[[Any], None]], Any]


class NodePool:
    """Threads of which only the number is real: a worker of the scenario plays the first, after a call."""

    def __init__(self, make: MakeThreads) -> None:
        self.threads = make(64, lambda future: None)
        self.started = 0
        self.submit()
        self.threads._next_call()

    def submit(self) -> None:
        if self.threads._enqueue(lambda: None):
            self.started += 1

    def take_and_hang(self) -> None:
        self.threads._next_call()


def a_submit_meets_a_thread_that_becomes_idle_and_hangs(make: MakeThreads) -> Scenario[NodePool]:
    """No thread is idle then, whatever was reported meanwhile, and the next call needs a new one."""

    def outcome(pool: NodePool) -> tuple[int, int]:
        before = pool.started
        pool.submit()
        return before, pool.started

    return OnVirtualTime(
        name="a submit meets a thread that becomes idle and hangs",
        setup=lambda: NodePool(make),
        workers=[NodePool.submit, NodePool.take_and_hang],
        outcome=outcome,
        allowed=lambda outcome: outcome in {(1, 2), (2, 3)},
        reachable=frozenset({(1, 2), (2, 3)}),
    )


def test_no_call_waits_behind_a_hung_one_while_there_is_room_for_a_thread() -> None:
    assert_holds(a_submit_meets_a_thread_that_becomes_idle_and_hangs(NodeThreads), effort=EFFORT)


def test_a_naive_count_of_idle_threads_is_caught() -> None:
    assert_caught(a_submit_meets_a_thread_that_becomes_idle_and_hangs(SemaphoreThreads), effort=EFFORT)


# ── with real graphs, beside the predecessors ──


class WatchedSelector(selectors.DefaultSelector):
    """Reports when its loop is about to sleep until it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = threading.Event()

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            self.asleep.set()
        return super().select(timeout)


class Served:
    """A predecessor on a loop that another thread serves. Debug mode, which would detect this, is off."""

    def __init__(self, make: Callable[..., Any], node: Callable[[State], Any]) -> None:
        self.selector = WatchedSelector()
        self.loop = asyncio.SelectorEventLoop(self.selector)
        self.loop.set_debug(False)
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.bridge = make(chain(node), self.loop)

    def __enter__(self) -> Served:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result(LIMIT)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(LIMIT)
        self.loop.close()

    def submit(self) -> Any:
        return self.bridge.create_future_task(request())

    def fall_asleep(self) -> None:
        """Let the loop wake, run everything that is ready, and sleep again."""
        self.selector.asleep.clear()
        self.loop.call_soon_threadsafe(lambda: None)
        assert self.selector.asleep.wait(LIMIT)

    def clean_up(self) -> None:
        self.bridge.cleanup_tasks()

    def end(self) -> int:
        """Return the number of live tasks at the moment it returns."""

        async def end() -> int:
            await self.bridge.cleanup_tasks_async()
            return len(asyncio.all_tasks()) - 1

        return asyncio.run_coroutine_threadsafe(end(), self.loop).result(LIMIT)


class Ours:
    """Our bridge, for the same tests."""

    def __init__(self, node: Callable[[State], Any]) -> None:
        self.bridge = RxPyLangGraphBridge({"graph": chain(node)})

    def __enter__(self) -> Ours:
        return self

    def __exit__(self, *_: object) -> None:
        self.bridge.close()

    def submit(self) -> Any:
        return self.bridge.create_future_task(request())

    def fall_asleep(self) -> None:
        """Do nothing: callers need not care whether it sleeps."""

    def clean_up(self) -> None:
        self.bridge.cleanup_tasks(LIMIT)

    def end(self) -> int:
        self.bridge.close(LIMIT)
        return len(asyncio.all_tasks(self.bridge._loop_thread.loop))


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


KINDS = [
    pytest.param(Ours, True, id="ours"),
    pytest.param(partial(Served, PredecessorBridge), False, id="predecessor"),
    pytest.param(partial(Served, LockOnlyBridge), False, id="lock only"),
]
LONG_ENOUGH = {True: LIMIT, False: 0.2}


@pytest.mark.parametrize(("kind", "holds"), KINDS)
def test_a_run_submitted_to_a_sleeping_loop_starts(kind: Callable[..., Any], holds: bool) -> None:
    gate = Gate()
    with kind(gate.hold) as subject:
        subject.fall_asleep()
        subject.submit()
        assert gate.entered.acquire(timeout=LONG_ENOUGH[holds]) is holds


@pytest.mark.parametrize(("kind", "holds"), KINDS)
def test_a_cleanup_of_a_sleeping_loop_is_delivered(kind: Callable[..., Any], holds: bool) -> None:
    gate = Gate()
    ended = threading.Event()
    with kind(gate.hold) as subject:
        subject.submit().add_done_callback(lambda _: ended.set())
        subject.fall_asleep()
        gate.wait_entered()
        subject.fall_asleep()
        subject.clean_up()
        assert ended.wait(LONG_ENOUGH[holds]) is holds


@pytest.mark.parametrize(("kind", "holds"), KINDS)
def test_nothing_is_alive_after_the_end_although_a_cleanup_submits(
    kind: Callable[..., Any], holds: bool
) -> None:
    gate = Gate()
    late: list[Any] = []

    async def submit_when_cancelled(state: State) -> State:
        try:
            await gate.hold(state)
        except asyncio.CancelledError:
            if not late:
                with suppress(Closed):
                    late.append(subject.submit())
            raise
        return {}

    with kind(submit_when_cancelled) as subject:
        subject.submit()
        subject.fall_asleep()
        gate.wait_entered()
        assert (subject.end() == 0) is holds


# ── load ──


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_every_submit_is_answered_or_refused_during_a_cleanup(interval: float) -> None:
    threads, submits = 8, 100
    gate = Gate()
    told: list[Counter[str]] = [Counter() for _ in range(threads)]

    async def fail(state: State) -> State:
        raise ValueError

    def sync_node(state: State) -> State:
        return {"n": 0}

    graphs = {
        "fine": chain(async_increment),
        "fail": chain(fail),
        "hold": chain(gate.hold),
        "sync": chain(sync_node),
    }
    names = list(graphs)
    bridge = RxPyLangGraphBridge(graphs, max_in_flight=16, admission_seconds=0.05)
    bridge._loop_thread.loop.set_debug(False)

    def work(number: int) -> None:
        runs = []
        for n in range(submits):
            try:
                runs.append(bridge.create_future_task(request(names[(number + n) % len(names)], n)))
            except (QueueFull, Closed):
                told[number]["refused"] += 1
            if n % 10 == number:
                bridge.cleanup_tasks(LIMIT)
        bridge.cleanup_tasks(LIMIT)
        if number == 0:
            bridge.close(LIMIT)
        told[number].update(run.result(LIMIT).kind.value for run in runs)

    with switch_interval(interval):
        hammer(work, threads=threads)
    total = sum(told, Counter())
    assert total.total() == threads * submits
    assert set(total) <= {"refused", "result", "error", "cancelled"}
    assert total["cancelled"], "the clean-ups met nothing"
    assert not bridge._active_tasks
    assert not bridge._loop_thread._thread.is_alive()


def test_futures_that_are_cancelled_from_other_threads_all_resolve() -> None:
    gate = Gate()
    with RxPyLangGraphBridge({"hold": chain(gate.hold)}, max_in_flight=200) as bridge:
        runs = [bridge.create_future_task(request("hold", n)) for n in range(80)]

        def work(number: int) -> None:
            for run in runs[number::4]:
                run.cancel()

        hammer(work)
        assert {run.result(LIMIT).kind for run in runs} == {MessageKind.CANCELLED}
        assert not bridge._active_tasks
