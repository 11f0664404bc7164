"""The context pipeline's executor: strategies at once, by a deadline, with a breaker for each.

`CircuitBreaker` decides who may be called; `ParallelStrategyExecutor` has them called on the threads of
`strategy_threads`, each invocation being looked after by a `strategy_execution`.

One invocation of the strategy executor: begins strategies, waits for them, accounts for each.

What a strategy returns is judged on the strategy's own thread, because even looking at it can hang or
raise. Permits are settled by the thread that called `execute` alone, after the crew has said under its lock
whether an answer came in time: so a late answer can change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from types import TracebackType
from typing import Final

from cleveragents.context.model.context import (
    ContextRequest,
    ExecutionReport,
    FragmentLimits,
    KeptFragments,
    StrategyReport,
    StrategyStatus,
    keep_within,
)
from cleveragents.context.strategy import CancelSignal, ContextStrategy
from cleveragents.context.strategy_threads import (
    ThreadCall,
    ThreadCallState,
    ThreadPool,
    ThreadPoolStatistics,
)
from cleveragents.core.circuit_breaker import CANCELLATIONS, CircuitBreaker, Permit
from cleveragents.core.errors import BreakerOpen, DeadlineExceeded

__all__ = [
    "CircuitBreaker",
    "ExecutionOptions",
    "ParallelStrategyExecutor",
    "Permit",
    "StrategyCrew",
    "StrategyExecution",
]


_LOOK_SECONDS: Final = 0.02  # nothing wakes us when a cancel signal is set, so it is looked at this often
_MAX_ERROR_CHARACTERS: Final = 500


class ParallelStrategyExecutor:
    """Runs strategies at once on at most `max_workers` threads, shared by all who call `execute`.

    It is back by the deadline whatever the strategies do. One that hangs keeps its thread, which is
    replaced; after `max_stragglers` of them no more are, and when hung ones hold every thread, strategies
    are reported as saturated at once. Code that never releases the GIL cannot be left behind: a strategy
    bounds its inputs and regular expressions itself.

    Thread safety:
        Owner: whoever made it closes it; any number of threads may execute at once.
        Lock: none of its own; the breaker and the crew of threads have theirs, never held together.
        Guarantee: each strategy of each execution is reported exactly once, and what ends after it was
            reported changes neither the report nor the breaker.
    Cancel safety: an execution that is cancelled or interrupted gives its permits back uncounted; what
        it had begun runs on as a straggler, sees its cancel signal, and is not waited for.
    """

    def __init__(
        self,
        circuit_breaker: CircuitBreaker | None = None,
        max_workers: int = 4,
        *,
        max_stragglers: int = 8,
        max_queued: int = 256,
        limits: FragmentLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._circuit_breaker = circuit_breaker or CircuitBreaker(clock=clock)
        self._limits = limits or FragmentLimits()
        self._clock = clock
        self._crew: StrategyCrew = ThreadPool(
            max_workers=max_workers, max_stragglers=max_stragglers, max_queued=max_queued
        )

    @property
    def circuit_breaker(self) -> CircuitBreaker:
        return self._circuit_breaker

    def execute(
        self,
        strategies: Sequence[ContextStrategy],
        request: ContextRequest,
        *,
        deadline_seconds: float,
        strategy_seconds: float | None = None,
        cancelled: CancelSignal | None = None,
    ) -> ExecutionReport:
        """What the strategies found within `deadline_seconds`, and what became of each, in their order.

        `strategy_seconds` bounds each one from when it begins. `ValueError` for a time that is not above 0
        and finite; `Closed` after `close`.
        """
        terms = ExecutionOptions(
            request=request,
            deadline_seconds=deadline_seconds,
            strategy_seconds=deadline_seconds if strategy_seconds is None else strategy_seconds,
            cancelled=cancelled,
            limits=self._limits,
            clock=self._clock,
        )
        return self._execute_parallel(strategies, terms)

    def _execute_parallel(
        self, strategies: Sequence[ContextStrategy], terms: ExecutionOptions
    ) -> ExecutionReport:
        return StrategyExecution(terms, self._circuit_breaker, self._crew).run(strategies)

    def statistics(self) -> ThreadPoolStatistics:
        """The threads as they are at one moment; the breaker has its own."""
        return self._crew.statistics()

    def close(self, timeout: float = 5.0) -> tuple[str, ...]:
        """Refuses new executions and waits for the strategies that run, up to `timeout` seconds.

        Those not begun are reported to their callers as cancelled. Returns the names of the strategies that
        still run; no other thread is left.
        """
        return self._crew.close(timeout)

    def __enter__(self) -> ParallelStrategyExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """What one execution asks, and how long it may take."""

    request: ContextRequest
    deadline_seconds: float
    strategy_seconds: float
    cancelled: CancelSignal | None
    limits: FragmentLimits
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        for seconds in (self.deadline_seconds, self.strategy_seconds):
            if not (isfinite(seconds) and seconds > 0):
                raise ValueError(f"a deadline is a finite time above 0, not {seconds}")

    @property
    def is_cancelled(self) -> bool:
        return self.cancelled is not None and self.cancelled.is_cancelled


class StrategyExecution:
    """Not thread-safe: used by the thread that called `execute`; `_Attempt` says what others touch."""

    def __init__(self, terms: ExecutionOptions, breaker: CircuitBreaker, crew: StrategyCrew) -> None:
        self._terms = terms
        self._breaker = breaker
        self._crew = crew
        self._batch = crew.batch()
        self._until = terms.clock() + terms.deadline_seconds
        self._reports: dict[int, StrategyReport] = {}
        self._waiting: dict[ThreadCall[_Answer], _Attempt] = {}

    def run(self, strategies: Sequence[ContextStrategy]) -> ExecutionReport:
        """Returns when every strategy is reported, at the deadline at the latest."""
        try:
            for index, strategy in enumerate(strategies):
                self._begin(index, strategy)
            while self._waiting:
                left = max(0.0, self._until - self._terms.clock())
                for call in self._crew.collect(self._batch, min(left, _LOOK_SECONDS)):
                    self._settle(call)
                self._leave_behind()
        finally:
            # Only an interrupt of this thread comes here with strategies that are not accounted for.
            for call, _ in self._latest_first():
                self._leave(call, StrategyStatus.CANCELLED, self._terms.clock())
        return ExecutionReport(tuple(self._reports[index] for index in range(len(self._reports))))

    def _begin(self, index: int, strategy: ContextStrategy) -> None:
        name = _name_of(strategy)
        if name is None:
            problem = "a strategy needs a name"
            report = StrategyReport(type(strategy).__name__, StrategyStatus.FAILED, error=problem)
        elif self._terms.is_cancelled:
            report = StrategyReport(name, StrategyStatus.CANCELLED)
        else:
            try:
                permit = self._breaker.acquire(name)
            except BreakerOpen as refused:
                report = StrategyReport(name, StrategyStatus.BREAKER_OPEN, error=str(refused))
            else:
                attempt = _Attempt(index, name, permit, strategy, self._terms)
                call = ThreadCall(name, attempt.retrieve, self._batch)
                self._waiting[call] = attempt
                if not self._crew.submit(call):
                    self._report(call, StrategyStatus.SATURATED, error="no thread is free")
                    permit.release()
                return
        self._reports[index] = report

    def _settle(self, call: ThreadCall[_Answer]) -> None:
        """Accounts for a call that ended by itself, or that `close` withdrew."""
        permit = self._waiting[call].permit
        answer = call.answer
        if answer is None:
            permit.release()
            self._report(call, StrategyStatus.CANCELLED, error="the executor was closed")
        elif answer.kept is None:
            _ = permit.release() if answer.cancelled else permit.failure()
            status = StrategyStatus.CANCELLED if answer.cancelled else StrategyStatus.FAILED
            self._report(call, status, seconds=answer.seconds, error=answer.problem)
        else:
            permit.success()
            status = StrategyStatus.USED if answer.kept.fragments else StrategyStatus.EMPTY
            self._report(call, status, seconds=answer.seconds, kept=answer.kept)

    def _leave_behind(self) -> None:
        """Gives up whatever is cancelled or out of time."""
        cancelled = self._terms.is_cancelled
        now = self._terms.clock()
        for call, attempt in self._latest_first():
            if cancelled:
                self._leave(call, StrategyStatus.CANCELLED, now)
            elif now >= self._until or attempt.ran_until(now) >= self._terms.strategy_seconds:
                self._leave(call, StrategyStatus.LATE, now)

    def _latest_first(self) -> list[tuple[ThreadCall[_Answer], _Attempt]]:
        """Whoever waits for a thread comes before whoever has one, lest leaving that one begin this one."""
        return list(reversed(self._waiting.items()))

    def _leave(self, call: ThreadCall[_Answer], status: StrategyStatus, now: float) -> None:
        attempt = self._waiting[call]
        attempt.given_up = True
        was = self._crew.abandon(call)
        if was not in (
            ThreadCallState.QUEUED,
            ThreadCallState.RUNNING,
        ):  # guard: its answer came first; collect it
            return
        ran = attempt.ran_until(now)
        late = DeadlineExceeded(attempt.name, self._fair_share)
        if status is StrategyStatus.CANCELLED:
            attempt.permit.release()
            self._report(call, status, seconds=ran)
        elif was is ThreadCallState.QUEUED:
            attempt.permit.release()
            self._report(call, StrategyStatus.SATURATED, error="no thread was free in time")
        else:
            # One that got its thread when most of the time was over is late, but not to blame.
            _ = attempt.permit.failure(late) if ran * 2 >= self._fair_share else attempt.permit.release()
            self._report(call, status, seconds=ran, error=str(late))

    @property
    def _fair_share(self) -> float:
        return min(self._terms.strategy_seconds, self._terms.deadline_seconds)

    def _report(
        self,
        call: ThreadCall[_Answer],
        status: StrategyStatus,
        *,
        seconds: float = 0.0,
        error: str | None = None,
        kept: KeptFragments | None = None,
    ) -> None:
        attempt = self._waiting.pop(call)
        kept = kept or KeptFragments((), truncated=False)
        self._reports[attempt.index] = StrategyReport(
            attempt.name, status, kept.fragments, seconds, error, kept.truncated
        )


class _Attempt:
    """One strategy in one execution; to the strategy it is the cancel signal.

    Shared by two threads without a lock: `began` is written once by the crew's, `given_up` once by the
    caller's, and each is one attribute that the other only reads.
    """

    __slots__ = ("_strategy", "_terms", "began", "given_up", "index", "name", "permit")

    def __init__(
        self, index: int, name: str, permit: Permit, strategy: ContextStrategy, terms: ExecutionOptions
    ) -> None:
        self.index = index
        self.name = name
        self.permit = permit
        self.began: float | None = None
        self.given_up = False
        self._strategy = strategy
        self._terms = terms

    @property
    def is_cancelled(self) -> bool:
        return self.given_up or self._terms.is_cancelled

    def ran_until(self, now: float) -> float:
        began = self.began
        return 0.0 if began is None else now - began

    def retrieve(self) -> _Answer:
        """On a thread of the crew: whatever the strategy does, this returns (if the strategy ever does)."""
        began = self._terms.clock()
        self.began = began
        answer = _Answer()
        with answer:
            found = self._strategy.retrieve(self._terms.request, self)
            answer.kept = keep_within(found, self._terms.limits)
        answer.seconds = self._terms.clock() - began
        return answer


class _Answer:
    """What came of a strategy. As a context manager it takes in anything raised, `SystemExit` included.

    It keeps no exception, whose frames would keep the strategy's data.
    """

    __slots__ = ("cancelled", "kept", "problem", "seconds")

    def __init__(self) -> None:
        self.kept: KeptFragments | None = None
        self.problem: str | None = None
        self.cancelled = False
        self.seconds = 0.0

    def __enter__(self) -> _Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            return False
        self.cancelled = isinstance(error, CANCELLATIONS)
        self.problem = type(error).__name__
        with suppress(BaseException):  # even its __str__ is the strategy's code
            self.problem = f"{self.problem}: {error}"[:_MAX_ERROR_CHARACTERS]
        return True


StrategyCrew = ThreadPool[_Answer]


def _name_of(strategy: ContextStrategy) -> str | None:
    name: object = None
    with suppress(Exception):
        name = strategy.name
    return name if isinstance(name, str) and name else None
