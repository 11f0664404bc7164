"""The executor's threads under every interleaving the explorers can find, and under real callers.

The pool is given `start_thread`, so that a worker of the scenario plays the pool's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest

from cleveragents.context.executor import CircuitBreaker, ParallelStrategyExecutor
from cleveragents.context.model.context import ContextFragment, ContextRequest, StrategyStatus
from cleveragents.context.strategy import CancelSignal
from cleveragents.context.strategy_threads import ThreadCall, ThreadCallState, ThreadPool
from cleveragents.core.errors import Closed
from tests.races.explorers import Scenario, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval


class World:
    """A pool whose threads the scenario runs itself, and calls that record that they ran."""

    def __init__(self, max_workers: int = 1, max_stragglers: int = 1) -> None:
        self.lives: list[Callable[[], None]] = []
        self.born = threading.Event()
        self.pool: Any = ThreadPool(
            max_workers=max_workers,
            max_stragglers=max_stragglers,
            max_queued=8,
            idle_seconds=0.0,
            start_thread=self.start,
        )
        self.batch = self.pool.batch()
        self.ran: list[str] = []
        self.calls = {name: ThreadCall(name, self.function(name), self.batch) for name in ("a", "b")}
        self.notes: dict[str, Any] = {}

    def start(self, life: Callable[[], None], name: str) -> None:
        self.lives.append(life)
        self.born.set()

    def function(self, name: str) -> Callable[[], str]:
        def run() -> str:
            self.ran.append(name)
            return f"answer {name}"

        return run

    def submit(self, name: str) -> bool:
        return self.pool.submit(self.calls[name])

    def live(self) -> None:
        """Play the first thread that the pool starts, from start to end."""
        self.born.wait()
        self.lives.pop(0)()

    def finish(self) -> None:
        """Run threads that the pool started and that no worker played."""
        while self.lives:
            self.lives.pop(0)()

    def settled(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return which calls ran and which can be collected, once no thread and no queued call is left."""
        self.finish()
        now = self.pool.statistics()
        assert (now.threads, now.idle, now.stragglers, now.queued) == (0, 0, 0, 0), now
        return tuple(self.ran), tuple(call.name for call in self.batch.ended)


def note(name: str, act: Callable[[World], object]) -> Callable[[World], None]:
    def worker(world: World) -> None:
        world.notes[name] = act(world)

    return worker


def scenario(
    workers: Sequence[Callable[[World], object]],
    outcome: Callable[[World], Hashable],
    allowed: set[Any],
    setup: Callable[[World], object] = lambda world: None,
) -> Scenario[World]:
    """Return a scenario whose allowed outcomes must all be reached."""

    def build() -> World:
        world = World()
        setup(world)
        return world

    return Scenario("pool", build, workers, outcome, allowed.__contains__, frozenset(allowed))


def an_answer_is_seen_or_the_call_was_given_up() -> Scenario[World]:
    """Never both, never neither: a withdrawn call does not run, an abandoned one is not collected."""
    return scenario(
        [note("was", lambda w: w.pool.abandon(w.calls["a"])), World.live],
        lambda w: (w.notes["was"], w.settled()),
        {
            (ThreadCallState.QUEUED, ((), ())),
            (ThreadCallState.RUNNING, (("a",), ())),
            (ThreadCallState.DONE, (("a",), ("a",))),
        },
        lambda w: w.submit("a"),
    )


def a_straggler_is_replaced() -> Scenario[World]:
    """Whatever happens to the first call, the next one is run and collected."""

    def submit_both(world: World) -> None:
        world.submit("a")
        world.submit("b")

    return scenario(
        [note("was", lambda w: w.pool.abandon(w.calls["a"])), World.live],
        lambda w: (w.notes["was"], w.settled()),
        {
            (ThreadCallState.QUEUED, (("b",), ("b",))),
            (ThreadCallState.RUNNING, (("a", "b"), ("b",))),
            (ThreadCallState.DONE, (("a", "b"), ("a", "b"))),
        },
        submit_both,
    )


def a_thread_that_leaves_strands_nobody() -> Scenario[World]:
    """A call that arrives while the only thread times out gets that thread or a new one."""

    def outcome(world: World) -> Hashable:
        settled = world.settled()
        return settled, world.pool.statistics().threads_started

    return scenario(
        [World.live, lambda w: w.submit("b")],
        outcome,
        {((("a", "b"), ("a", "b")), 1), ((("a", "b"), ("a", "b")), 2)},
        lambda w: w.submit("a"),
    )


def callers_share_the_threads_there_are() -> Scenario[World]:
    def outcome(world: World) -> Hashable:
        ran, ended = world.settled()
        return world.pool.statistics().threads_started, frozenset(ran), frozenset(ended), len(ran), len(ended)

    both = frozenset({"a", "b"})
    return scenario([lambda w: w.submit("a"), lambda w: w.submit("b")], outcome, {(1, both, both, 2, 2)})


def a_close_withdraws_or_lets_run() -> Scenario[World]:
    """A call submitted during a close ends once in either case, and no thread is left."""

    def outcome(world: World) -> Hashable:
        ran, ended = world.settled()
        return world.calls["a"].state, ran, ended

    return scenario(
        [lambda w: w.submit("a"), lambda w: w.pool.close(0.0)],
        outcome,
        {(ThreadCallState.WITHDRAWN, (), ("a",))},
    )


def a_close_takes_no_call_that_runs() -> Scenario[World]:
    return scenario(
        [World.live, lambda w: w.pool.close(0.0)],
        lambda w: (w.calls["a"].state, w.settled()),
        {(ThreadCallState.WITHDRAWN, ((), ("a",))), (ThreadCallState.DONE, (("a",), ("a",)))},
        lambda w: w.submit("a"),
    )


def statistics_are_of_one_moment() -> Scenario[World]:
    """A call is never seen in the queue without the thread that was reserved for it."""

    def look(world: World) -> Hashable:
        now = world.pool.statistics()
        return now.threads, now.queued

    return scenario(
        [note("seen", look), lambda w: w.submit("a")],
        lambda w: (w.notes["seen"], w.settled()),
        {((0, 0), (("a",), ("a",))), ((1, 1), (("a",), ("a",)))},
    )


SCENARIOS = [
    an_answer_is_seen_or_the_call_was_given_up,
    a_straggler_is_replaced,
    a_thread_that_leaves_strands_nobody,
    callers_share_the_threads_there_are,
    a_close_withdraws_or_lets_run,
    a_close_takes_no_call_that_runs,
    statistics_are_of_one_moment,
]


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
def test_the_pool_holds(make: Callable[[], Scenario[World]]) -> None:
    assert_holds(make(), effort=60)


# ── Real callers, exact totals ────────────────────────────────────────────────────────────────────

CALLERS = 8
ROUNDS = 30
NAMES = ("good", "empty", "failing", "garbage")
EXPECTED = (StrategyStatus.USED, StrategyStatus.EMPTY, StrategyStatus.FAILED, StrategyStatus.FAILED)


class Counted:
    """A strategy that counts its calls, and the strategies running in parallel."""

    running = 0
    most = 0
    lock = threading.Lock()

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Any:
        with Counted.lock:
            self.calls += 1
            Counted.running += 1
            Counted.most = max(Counted.most, Counted.running)
        try:
            if self.name == "failing":
                raise ValueError(request.question)
            fragment = ContextFragment("a.py", request.question, 1.0, self.name)
            return {"good": [fragment], "empty": (), "garbage": 7}[self.name]
        finally:
            with Counted.lock:
                Counted.running -= 1


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_every_caller_gets_its_own_complete_report(interval: float) -> None:
    """No report is lost or mixed up, no more than `max_workers` run, each verdict is counted once."""
    breaker = CircuitBreaker(failure_threshold=10**9)
    strategies = [Counted(name) for name in NAMES]
    with ParallelStrategyExecutor(breaker, max_workers=4) as executor, switch_interval(interval):

        def work(number: int) -> None:
            for turn in range(ROUNDS):
                question = f"{number}/{turn}"
                report = executor.execute(strategies, ContextRequest(question), deadline_seconds=60.0)
                assert [r.name for r in report.strategies] == list(NAMES)
                assert tuple(r.status for r in report.strategies) == EXPECTED
                assert [fragment.text for fragment in report.fragments] == [question]

        hammer(work, threads=CALLERS)
        assert executor.statistics().threads_started <= 4
    total = CALLERS * ROUNDS
    assert [strategy.calls for strategy in strategies] == [total] * 4
    assert Counted.most <= 4
    circuits = breaker.statistics().circuits
    assert [circuits[name].successes for name in NAMES] == [total, total, 0, 0]
    assert [circuits[name].failures for name in NAMES] == [0, 0, total, total]
    assert not any(circuit.in_flight or circuit.stale for circuit in circuits.values())
    assert executor.statistics().threads == 0


def test_a_concurrent_close_leaves_nothing_open() -> None:
    """Each execution is refused or fully accounted for; no thread is left."""
    executor = ParallelStrategyExecutor(CircuitBreaker(failure_threshold=10**9), max_workers=2)
    strategies = [Counted(name) for name in NAMES]
    begun = threading.Barrier(CALLERS)
    refused: list[int] = []

    def work(number: int) -> None:
        begun.wait(60.0)
        if number == 0:
            assert executor.close(60.0) == ()
            return
        for _ in range(ROUNDS):
            try:
                report = executor.execute(strategies, ContextRequest("q"), deadline_seconds=60.0)
            except Closed:
                refused.append(number)
                return
            for seen, expected in zip(report.strategies, EXPECTED, strict=True):
                assert seen.status in (expected, StrategyStatus.CANCELLED)

    with switch_interval(SWITCH_INTERVALS[1]):
        hammer(work, threads=CALLERS)
    assert executor.statistics().threads == 0
    assert sorted(refused) == list(range(1, CALLERS))
    circuits = executor.circuit_breaker.statistics().circuits
    assert not any(circuit.in_flight for circuit in circuits.values())
