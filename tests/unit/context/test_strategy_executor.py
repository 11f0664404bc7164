"""The guarantees of the strategy executor.

Strategies advance a fake clock or wait at gates, so nothing depends on speed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cleveragents.context.executor import CircuitBreaker, ParallelStrategyExecutor
from cleveragents.context.model.context import (
    ContextFragment,
    ContextRequest,
    ExecutionReport,
    FragmentLimits,
    StrategyReport,
    StrategyStatus,
)
from cleveragents.context.strategy import CancelSignal
from cleveragents.context.strategy_threads import ThreadCall, ThreadPool
from cleveragents.core.errors import Cancelled, Closed
from cleveragents.testing.clock import FakeClock

REQUEST = ContextRequest("where is it?")
FRAGMENT = ContextFragment("a.py", "text", 1.0, "s")
LONG = 60.0
SECONDS = 10.0


class Strategy:
    """A strategy made of a function of the cancel signal."""

    def __init__(self, name: Any, act: Callable[[CancelSignal], Any] = lambda cancelled: [FRAGMENT]) -> None:
        self.name = name
        self.calls = 0
        self._act = act

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Any:
        self.calls += 1
        return self._act(cancelled)


class Signal:
    """A cancel signal that a test sets."""

    is_cancelled = False


class Bench:
    """An executor on a fake clock, and a gate at which strategies hang until the test is over."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.gate = threading.Event()
        self.breaker = CircuitBreaker(failure_threshold=1, clock=self.clock.monotonic)
        self.executor = ParallelStrategyExecutor(self.breaker, clock=self.clock.monotonic, **options)

    def run(self, *strategies: Any, **options: Any) -> ExecutionReport:
        options.setdefault("deadline_seconds", SECONDS)
        return self.executor.execute(strategies, REQUEST, **options)

    def hangs(self, name: str, after_seconds: float = SECONDS) -> Strategy:
        """Let the deadline pass, and then do not return."""

        def hang(cancelled: CancelSignal) -> list[ContextFragment]:
            self.clock.advance(after_seconds)
            self.gate.wait(LONG)
            return [FRAGMENT]

        return Strategy(name, hang)

    def circuit(self, name: str) -> Any:
        return self.breaker.statistics().circuits[name]

    def wait_until_no_straggler_is_left(self) -> None:
        self.gate.set()
        turn = threading.Event()
        while self.executor.statistics().stragglers:
            turn.wait(0.001)


@pytest.fixture
def bench_of() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield make
    for bench in made:
        bench.gate.set()
        assert bench.executor.close(LONG) == ()
        assert bench.executor.statistics().threads == 0


@pytest.fixture
def bench(bench_of: Callable[..., Bench]) -> Bench:
    return bench_of()


def statuses(report: ExecutionReport) -> list[StrategyStatus]:
    return [strategy.status for strategy in report.strategies]


def only(report: ExecutionReport) -> StrategyReport:
    (strategy,) = report.strategies
    return strategy


# ── Reports ───────────────────────────────────────────────────────────────────────────────────────


def test_gives_what_there_is_by_the_deadline_in_the_order_asked(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(max_workers=1)  # so that the others are done when the last one lets the deadline pass

    def fail(cancelled: CancelSignal) -> Any:
        raise LookupError("no index")

    others = [Strategy("good"), Strategy("empty", lambda c: ()), Strategy("bad", fail)]
    report = bench.run(*others, bench.hangs("hung"))
    assert statuses(report) == [
        StrategyStatus.USED,
        StrategyStatus.EMPTY,
        StrategyStatus.FAILED,
        StrategyStatus.LATE,
    ]
    assert [s.name for s in report.strategies] == ["good", "empty", "bad", "hung"]
    assert report.fragments == (FRAGMENT,)
    assert report.strategies[2].error == "LookupError: no index"
    assert report.strategies[3].error == "hung did not end within 10 s"


def test_no_strategies_is_an_empty_report(bench: Bench) -> None:
    assert bench.run() == ExecutionReport(())


def test_an_open_breaker_is_reported_and_its_strategy_not_called(bench: Bench) -> None:
    bench.breaker.record_failure("s")
    strategy = Strategy("s")
    report = only(bench.run(strategy))
    assert report.status is StrategyStatus.BREAKER_OPEN
    assert report.error is not None
    assert "30.0 s" in report.error
    assert strategy.calls == 0


def test_the_default_breaker_follows_the_executors_clock() -> None:
    clock = FakeClock()
    with ParallelStrategyExecutor(clock=clock.monotonic) as executor:
        for _ in range(3):
            executor.circuit_breaker.record_failure("s")
        clock.advance(30.0)
        assert statuses(executor.execute([Strategy("s")], REQUEST, deadline_seconds=SECONDS)) == [
            StrategyStatus.USED
        ]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("which", ["deadline_seconds", "strategy_seconds"])
def test_refuses_an_invalid_deadline(bench: Bench, which: str, seconds: float) -> None:
    with pytest.raises(ValueError, match="deadline"):
        bench.run(Strategy("s"), **{which: seconds})


# ── Strategies that misbehave ─────────────────────────────────────────────────────────────────────


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("even its message")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (GeneratorExit(), "GeneratorExit: "),
        (Unspeakable(), "Unspeakable"),
        (ValueError("x" * 10_000), "ValueError: " + "x" * 488),
    ],
)
def test_an_error_of_a_strategy_does_not_affect_others(bench: Bench, error: BaseException, told: str) -> None:
    def fail(cancelled: CancelSignal) -> Any:
        raise error

    report = bench.run(Strategy("bad", fail), Strategy("good"))
    assert statuses(report) == [StrategyStatus.FAILED, StrategyStatus.USED]
    assert report.strategies[0].error == told
    assert bench.circuit("bad").failures == 1


def fragment(**changes: Any) -> ContextFragment:
    return ContextFragment(**{"path": "a", "text": "t", "score": 1.0, "strategy": "s", **changes})


class Sly(ContextFragment):
    """A subclass may run any code when a field is read."""


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        7,
        "text",
        [None],
        [fragment(text=b"bytes")],
        [fragment(path=None)],
        [fragment(score="high")],
        [fragment(score=float("nan"))],
        [fragment(), object()],
        [Sly("a", "t", 1.0, "s")],
        [object.__new__(ContextFragment)],
    ],
)
def test_garbage_is_a_failure(bench: Bench, garbage: Any) -> None:
    report = only(bench.run(Strategy("bad", lambda cancelled: garbage)))
    assert (report.status, report.fragments) == (StrategyStatus.FAILED, ())
    assert bench.breaker.is_open("bad")


def test_more_than_the_limits_is_cut_off_best_first(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(limits=FragmentLimits(fragments=3, characters=100))

    def endless(cancelled: CancelSignal) -> Iterator[ContextFragment]:
        while True:
            yield FRAGMENT

    report = bench.run(
        Strategy("endless", endless),
        Strategy("wordy", lambda c: [fragment(text="x" * 90), fragment(text="y" * 90)]),
        Strategy("huge", lambda c: [fragment(text="x" * 101)]),
        Strategy("exact", lambda c: [FRAGMENT] * 3),
    )
    kept = [(s.status.value, len(s.fragments), s.truncated) for s in report.strategies]
    assert kept == [("used", 3, True), ("used", 1, True), ("failed", 0, False), ("used", 3, False)]


@pytest.mark.parametrize("limit", ["fragments", "characters"])
def test_limits_are_at_least_one(limit: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FragmentLimits(**{limit: 0})


def test_a_strategy_without_a_name_is_reported(bench: Bench) -> None:
    class Nameless(Strategy):
        @property
        def name(self) -> str:
            raise RuntimeError("no name")

        @name.setter
        def name(self, name: str) -> None: ...

    report = bench.run(Nameless(""), Strategy(7), Strategy("good"))
    assert statuses(report) == [StrategyStatus.FAILED, StrategyStatus.FAILED, StrategyStatus.USED]
    assert [s.name for s in report.strategies] == ["Nameless", "Strategy", "good"]


# ── Deadlines and stragglers ──────────────────────────────────────────────────────────────────────


def test_a_late_answer_changes_nothing(bench: Bench) -> None:
    signals: list[CancelSignal] = []
    hung = bench.hangs("s")
    act = hung._act
    hung._act = lambda cancelled: (signals.append(cancelled), act(cancelled))[1]
    report = only(bench.run(hung))
    assert report.status is StrategyStatus.LATE
    assert signals[0].is_cancelled, "it must stop"
    before = bench.circuit("s")
    assert (before.failures, before.in_flight) == (1, 0)
    bench.wait_until_no_straggler_is_left()
    assert bench.circuit("s") == before


def test_a_strategys_time_limit_starts_with_it(bench: Bench) -> None:
    report = only(bench.run(bench.hangs("s", after_seconds=2.0), strategy_seconds=2.0))
    assert (report.status, report.error) == (StrategyStatus.LATE, "s did not end within 2 s")
    assert bench.clock.monotonic() == 1000.0 + 2.0


def test_a_strategy_that_got_its_thread_late_does_not_fail(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(max_workers=1)
    slow = Strategy("slow", lambda cancelled: bench.clock.advance(9.0) or [FRAGMENT])
    report = bench.run(slow, bench.hangs("starved", after_seconds=1.0))
    assert statuses(report) == [StrategyStatus.USED, StrategyStatus.LATE]
    assert (bench.circuit("starved").released, bench.circuit("starved").failures) == (1, 0)


@pytest.mark.parametrize("max_stragglers", [0, 1])
def test_a_strategy_without_a_thread_never_starts(
    bench_of: Callable[..., Bench], max_stragglers: int
) -> None:
    bench = bench_of(max_workers=1, max_stragglers=max_stragglers)
    waiting = Strategy("waiting")
    report = bench.run(bench.hangs("hung"), waiting)
    assert statuses(report) == [StrategyStatus.LATE, StrategyStatus.SATURATED]
    bench.wait_until_no_straggler_is_left()
    assert bench.executor.close(LONG) == ()
    assert waiting.calls == 0
    assert (bench.circuit("waiting").released, bench.circuit("waiting").in_flight) == (1, 0)


def test_stragglers_are_replaced_up_to_the_bound_and_then_reported(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(max_workers=1, max_stragglers=1)
    assert statuses(bench.run(bench.hangs("a"))) == [StrategyStatus.LATE]
    assert statuses(bench.run(Strategy("b"))) == [StrategyStatus.USED], "the straggler was replaced"
    assert statuses(bench.run(bench.hangs("c"))) == [StrategyStatus.LATE]
    assert bench.executor.statistics().stragglers == 2
    refused = Strategy("d")
    assert statuses(bench.run(refused)) == [StrategyStatus.SATURATED], "at once: the clock stands still"
    assert (refused.calls, bench.circuit("d").in_flight) == (0, 0)
    bench.wait_until_no_straggler_is_left()
    assert statuses(bench.run(Strategy("e"))) == [StrategyStatus.USED], "threads went back to use"
    assert bench.executor.statistics().threads_started == 2


def test_a_full_queue_is_saturated_at_once(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(max_workers=1, max_stragglers=0, max_queued=1)
    begun = threading.Event()

    def hold(cancelled: CancelSignal) -> list[ContextFragment]:
        begun.set()
        bench.gate.wait(LONG)
        return [FRAGMENT]

    held: list[ExecutionReport] = []
    caller = threading.Thread(target=lambda: held.append(bench.run(Strategy("held", hold))))
    caller.start()
    assert begun.wait(LONG)
    queued: list[ExecutionReport] = []
    second = threading.Thread(target=lambda: queued.append(bench.run(Strategy("queued"))))
    second.start()
    turn = threading.Event()
    while not bench.executor.statistics().queued:
        turn.wait(0.001)
    assert statuses(bench.run(Strategy("refused"))) == [StrategyStatus.SATURATED]
    bench.gate.set()
    caller.join(LONG)
    second.join(LONG)
    assert statuses(held[0]) + statuses(queued[0]) == [StrategyStatus.USED] * 2


def test_threads_are_used_again(bench: Bench) -> None:
    for _ in range(20):
        bench.run(Strategy("a"), Strategy("b"))
    assert bench.executor.statistics().threads_started <= 2


# ── Cancellation and closing ──────────────────────────────────────────────────────────────────────


def test_a_run_cancelled_before_its_start_calls_no_strategy(bench: Bench) -> None:
    signal = Signal()
    signal.is_cancelled = True
    strategy = Strategy("s")
    assert statuses(bench.run(strategy, cancelled=signal)) == [StrategyStatus.CANCELLED]
    assert strategy.calls == 0


def test_a_cancel_keeps_results_and_counts_no_failure(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(max_workers=1)
    signal = Signal()

    def cancel_and_hang(cancelled: CancelSignal) -> list[ContextFragment]:
        signal.is_cancelled = True
        assert cancelled.is_cancelled
        bench.gate.wait(LONG)
        return [FRAGMENT]

    report = bench.run(
        Strategy("done"), Strategy("hung", cancel_and_hang), Strategy("waiting"), cancelled=signal
    )
    assert statuses(report) == [StrategyStatus.USED, StrategyStatus.CANCELLED, StrategyStatus.CANCELLED]
    for name in ("hung", "waiting"):
        assert (bench.circuit(name).released, bench.circuit(name).in_flight) == (1, 0)


def test_an_answer_that_came_before_the_cancel_was_seen_is_kept(bench: Bench) -> None:
    class CancelledOnceTheAnswerIsThere:
        looks = 0

        @property
        def is_cancelled(self) -> bool:
            self.looks += 1
            if self.looks == 1:  # before it begins
                return False
            bench.gate.set()
            turn = threading.Event()
            while not bench.executor.statistics().idle:
                turn.wait(0.001)
            return True

    report = bench.run(bench.hangs("s", 0.0), cancelled=CancelledOnceTheAnswerIsThere())
    assert statuses(report) == [StrategyStatus.USED]
    assert bench.circuit("s").successes == 1


def test_a_strategy_that_says_it_was_cancelled_has_not_failed(bench: Bench) -> None:
    def stop(cancelled: CancelSignal) -> Any:
        raise Cancelled("by itself")

    report = only(bench.run(Strategy("s", stop)))
    assert (report.status, report.error) == (StrategyStatus.CANCELLED, "Cancelled: cancelled: by itself")
    assert not bench.breaker.is_open("s")


def test_an_interrupted_caller_gives_its_permits_back(bench: Bench) -> None:
    class Interrupts:
        looks = 0

        @property
        def is_cancelled(self) -> bool:
            self.looks += 1
            if self.looks > 2:
                raise KeyboardInterrupt
            return False

    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.hangs("s", 0.0), cancelled=Interrupts())
    assert (bench.circuit("s").in_flight, bench.circuit("s").released) == (0, 1)
    bench.wait_until_no_straggler_is_left()


def test_close_refuses_new_work_and_names_what_still_runs(bench: Bench) -> None:
    bench.run(bench.hangs("hung"))
    assert bench.executor.close(0.0) == ("hung",)
    with pytest.raises(Closed):
        bench.run(Strategy("s"))
    bench.gate.set()
    assert bench.executor.close(LONG) == ()
    assert bench.executor.statistics().threads == 0


def test_close_withdraws_what_waits(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(max_workers=1)
    left: list[tuple[str, ...]] = []

    def close(cancelled: CancelSignal) -> list[ContextFragment]:
        left.append(bench.executor.close(0.0))
        return [FRAGMENT]

    waiting = Strategy("waiting")
    report = bench.run(Strategy("closes", close), waiting)
    assert statuses(report) == [StrategyStatus.USED, StrategyStatus.CANCELLED]
    assert report.strategies[1].error == "the executor was closed"
    assert left == [("closes",)]
    assert (waiting.calls, bench.circuit("waiting").released) == (0, 1)


# ── The pool ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wrong", [{"max_workers": 0}, {"max_stragglers": -1}, {"max_queued": 0}])
def test_refuses_invalid_thread_limits(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        ThreadPool(**{"max_workers": 1, "max_stragglers": 0, "max_queued": 1, **wrong})


def test_collect_waits_for_an_end() -> None:
    pool: ThreadPool[str] = ThreadPool(max_workers=1, max_stragglers=0, max_queued=1)
    batch = pool.batch()
    collecting = threading.Event()
    call = ThreadCall("s", lambda: str(collecting.wait(LONG)), batch)
    assert pool.submit(call)
    opener = threading.Thread(target=collecting.set)
    opener.start()
    assert pool.collect(batch, LONG) == [call]
    assert pool.collect(batch, 0.0) == [], "each is given once"
    opener.join()
    assert pool.close(LONG) == ()


def test_an_idle_thread_ends_by_itself() -> None:
    pool: ThreadPool[int] = ThreadPool(max_workers=1, max_stragglers=0, max_queued=1, idle_seconds=0.0)
    batch = pool.batch()
    pool.submit(ThreadCall("s", lambda: 1, batch))
    pool.collect(batch, LONG)
    turn = threading.Event()
    while pool.statistics().threads:
        turn.wait(0.001)


def test_a_system_without_threads_is_saturated_and_recovers() -> None:
    refuse = True
    threads: list[threading.Thread] = []

    def start(target: Callable[[], None], name: str) -> None:
        if refuse:
            raise RuntimeError("can't start new thread")
        threads.append(threading.Thread(target=target, name=name))
        threads[-1].start()

    pool: ThreadPool[int] = ThreadPool(max_workers=1, max_stragglers=0, max_queued=1, start_thread=start)
    batch = pool.batch()
    assert not pool.submit(ThreadCall("s", lambda: 1, batch))
    assert (pool.statistics().threads, pool.statistics().queued) == (0, 0)
    refuse = False
    assert pool.submit(ThreadCall("s", lambda: 2, batch))
    assert [call.answer for call in pool.collect(batch, LONG)] == [2]
    assert pool.close(LONG) == ()
    threads[0].join(LONG)


def test_a_straggler_beyond_the_bound_keeps_its_place() -> None:
    pool: ThreadPool[bool] = ThreadPool(max_workers=1, max_stragglers=0, max_queued=1)
    batch = pool.batch()
    begun, gate = threading.Event(), threading.Event()
    hung = ThreadCall("hung", lambda: begun.set() or gate.wait(LONG), batch)
    waiting = ThreadCall("waiting", lambda: True, batch)
    assert pool.submit(hung)
    assert begun.wait(LONG)
    assert pool.submit(waiting)
    pool.abandon(hung)
    assert pool.statistics().threads_started == 1
    gate.set()
    assert pool.collect(batch, LONG) == [waiting], "its thread went back to use"
    assert pool.close(LONG) == ()


@pytest.mark.timeout(100)
def test_a_replaced_straggler_ends_when_it_returns() -> None:
    pool: ThreadPool[bool] = ThreadPool(max_workers=1, max_stragglers=1, max_queued=1)
    batch = pool.batch()
    begun, gate, end = threading.Event(), threading.Event(), threading.Event()
    hung = ThreadCall("hung", lambda: begun.set() or gate.wait(LONG), batch)
    assert pool.submit(hung)
    assert begun.wait(LONG)
    pool.abandon(hung)
    assert pool.submit(ThreadCall("next", lambda: end.wait(LONG), batch))
    assert pool.statistics().threads == 2
    gate.set()
    turn = threading.Event()
    while pool.statistics().threads != 1:
        turn.wait(0.001)
    end.set()
    assert pool.close(LONG) == ()


def test_a_call_taken_by_another_thread_survives_a_failed_thread_start() -> None:
    begun, gate, took = threading.Event(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def start(target: Callable[[], None], name: str) -> None:
        if threads:
            gate.set()
            assert took.wait(LONG)
            raise RuntimeError("can't start new thread")
        threads.append(threading.Thread(target=target, name=name))
        threads[0].start()

    pool: ThreadPool[bool] = ThreadPool(max_workers=2, max_stragglers=0, max_queued=2, start_thread=start)
    batch = pool.batch()
    assert pool.submit(ThreadCall("first", lambda: begun.set() or gate.wait(LONG), batch))
    assert begun.wait(LONG)
    assert pool.submit(ThreadCall("second", lambda: took.set() or True, batch))
    ended: list[str] = []
    while len(ended) < 2:
        ended += [call.name for call in pool.collect(batch, LONG)]
    assert ended == ["first", "second"]
    assert pool.close(LONG) == ()
    threads[0].join(LONG)


def test_a_replacement_that_does_not_start_leaves_the_queue_to_the_others() -> None:
    begun, gate = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def start(target: Callable[[], None], name: str) -> None:
        if threads:
            raise RuntimeError("can't start new thread")
        threads.append(threading.Thread(target=target, name=name))
        threads[0].start()

    pool: ThreadPool[bool] = ThreadPool(max_workers=1, max_stragglers=1, max_queued=1, start_thread=start)
    batch = pool.batch()
    hung = ThreadCall("hung", lambda: begun.set() or gate.wait(LONG), batch)
    waiting = ThreadCall("waiting", lambda: True, batch)
    assert pool.submit(hung)
    assert begun.wait(LONG)
    assert pool.submit(waiting)
    pool.abandon(hung)
    assert pool.statistics().threads == 1
    gate.set()
    assert pool.collect(batch, LONG) == [waiting]
    assert pool.close(LONG) == ()
    threads[0].join(LONG)
