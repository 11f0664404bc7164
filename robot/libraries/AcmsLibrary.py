"""Keywords for the strategy executor under concurrent pipeline invocations."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from cleveragents.context.executor import CircuitBreaker, ParallelStrategyExecutor
from cleveragents.context.model.context import ContextFragment, ContextRequest, ExecutionReport
from cleveragents.testing.clock import FakeClock
from tests.leaks import take_baseline
from tests.races.hammer import hammer

LONG = 60.0
DEADLINE = 10.0


class Strategy:
    """Does what its name says; a hung one lets the time run out first."""

    def __init__(self, name: str, library: AcmsLibrary) -> None:
        self.name = name
        self._library = library

    def retrieve(self, request: ContextRequest, cancelled: Any) -> list[ContextFragment]:
        with _COUNTING:
            self._library.calls[self.name] += 1
        if self.name == "failing":
            raise ValueError("as it does")
        if self.name == "hung":
            self._library.clock.advance(DEADLINE)
            self._library.gate.wait(LONG)
        return [ContextFragment("a.py", "text", 1.0, self.name)] if self.name == "good" else []


_COUNTING = threading.Lock()


class AcmsLibrary:
    """One executor per test."""

    ROBOT_LIBRARY_SCOPE = "TEST"

    def open_an_executor(self, max_workers: int, failure_threshold: int) -> None:
        self._baseline = take_baseline()
        self.clock = FakeClock()
        now = self.clock.monotonic
        self._breaker = CircuitBreaker(failure_threshold=failure_threshold, clock=now)
        self._executor = ParallelStrategyExecutor(self._breaker, max_workers=max_workers, clock=now)
        self.gate = threading.Event()
        self.calls: Counter[str] = Counter()
        self._reports: list[ExecutionReport] = []

    def close_the_executor(self) -> None:
        self.gate.set()
        left = self._executor.close(LONG)
        assert left == (), f"still running: {left}"
        leaks = self._baseline.leaks()
        assert not leaks, f"left behind: {leaks}"

    def invoke_concurrently(self, invocations: int, times: int, strategies: str) -> None:
        chosen = [Strategy(name, self) for name in strategies.split(",")]

        def invoke(number: int) -> None:
            for _ in range(times):
                request = ContextRequest(f"question of {number}")
                self._reports.append(self._executor.execute(chosen, request, deadline_seconds=DEADLINE))

        hammer(invoke, threads=invocations)
        assert len(self._reports) == invocations * times

    def leave_a_hung_strategy_behind(self) -> None:
        hung = Strategy("hung", self)
        report = self._executor.execute([hung], ContextRequest("q"), deadline_seconds=DEADLINE)
        assert [s.status.value for s in report.strategies] == ["late"], report

    def release_the_hung_strategies(self) -> None:
        self.gate.set()

    def every_invocation_reported(self, statuses: str) -> None:
        seen = {tuple(s.status.value for s in report.strategies) for report in self._reports}
        assert seen == {tuple(statuses.split(","))}, seen

    def every_invocation_used(self, name: str) -> None:
        for report in self._reports:
            assert {s.name: s.status.value for s in report.strategies}[name] == "used", report

    def breaker_counts(self, name: str, successes: int, failures: int) -> None:
        circuit = self._breaker.statistics().circuits[name]
        assert (circuit.successes, circuit.failures) == (successes, failures), circuit

    def breaker_is_open_for(self, name: str) -> None:
        assert self._breaker.is_open(name)

    def breaker_opened_once_for(self, name: str) -> None:
        assert self._breaker.statistics().circuits[name].opened == 1

    def calls_equal_admissions(self, name: str) -> None:
        circuit = self._breaker.statistics().circuits[name]
        assert circuit.admitted == self.calls[name], (circuit, self.calls)
        assert circuit.failures + circuit.stale == circuit.admitted, circuit
        assert circuit.admitted + circuit.refused == len(self._reports), circuit

    def at_most_threads_were_started(self, count: int) -> None:
        assert self._executor.statistics().threads_started <= count

    def executor_has_stragglers(self, count: int) -> None:
        assert self._executor.statistics().stragglers == count

    def executor_has_no_thread_after_close(self) -> None:
        assert self._executor.close(LONG) == ()
        assert self._executor.statistics().threads == 0
