"""The executor of the context pipeline: runs strategies in parallel, with a deadline and a circuit breaker
for each.

`CircuitBreaker` decides which strategies may be called. `ParallelStrategyExecutor` calls them on the threads
of `strategy_threads`, and a `StrategyExecution` manages each invocation: it starts the strategies, waits for
them and reports each one.

The result of a strategy is validated on the strategy's own thread, because even reading it can hang or raise.
Only the thread that called `execute` settles permits, after the pool has decided under its lock whether an
answer arrived in time. So a late answer can change nothing.
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


_LOOK_SECONDS: Final = 0.02  # a cancel signal wakes no thread, so it is polled
_MAX_ERROR_CHARACTERS: Final = 500


class ParallelStrategyExecutor:
    """Runs strategies in parallel on at most `max_workers` threads, shared by all callers of `execute`.

    `execute` returns by the deadline, whatever the strategies do. A hung strategy keeps its thread; the
    thread is replaced by a new one until there are `max_stragglers` hung strategies. When hung strategies
    hold every thread, further strategies are reported as saturated immediately. Code that never releases the
    GIL cannot be abandoned, so a strategy must bound its inputs and regular expressions itself.

    Thread safety:
        Owner: the creator closes it; any number of threads may execute at once.
        Lock: none of its own; the breaker and the pool of threads have theirs, never held together.
        Guarantee: each strategy of each execution is reported exactly once, and a strategy that ends after it
            was reported changes neither the report nor the breaker.
    Cancel safety: an execution that is cancelled or interrupted gives its permits back uncounted. Strategies
        that had begun run on as stragglers, see their cancel signals, and are not waited for.
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
        self._pool: StrategyCrew = ThreadPool(
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
        """Return, within `deadline_seconds`, the results and the status of each strategy, in the order of
        `strategies`.

        `strategy_seconds` bounds each strategy from its start. Raises `ValueError` unless both times are
        finite and greater than 0, and `Closed` after `close`.
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
        return StrategyExecution(terms, self._circuit_breaker, self._pool).run(strategies)

    def statistics(self) -> ThreadPoolStatistics:
        """Return the statistics of the threads; the breaker has its own statistics."""
        return self._pool.statistics()

    def close(self, timeout: float = 5.0) -> tuple[str, ...]:
        """Refuse new executions and wait for running strategies, up to `timeout` seconds.

        Strategies that have not started are reported to their callers as cancelled. Return the names of the
        strategies that still run; no other thread is left.
        """
        return self._pool.close(timeout)

    def __enter__(self) -> ParallelStrategyExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """The request of one execution and its time limits."""

    request: ContextRequest
    deadline_seconds: float
    strategy_seconds: float
    cancelled: CancelSignal | None
    limits: FragmentLimits
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        for seconds in (self.deadline_seconds, self.strategy_seconds):
            if not (isfinite(seconds) and seconds > 0):
                raise ValueError(f"a deadline must be finite and greater than 0, not {seconds}")

    @property
    def is_cancelled(self) -> bool:
        return self.cancelled is not None and self.cancelled.is_cancelled


class StrategyExecution:
    """One invocation of the executor.

    Not thread-safe: used by the thread that called `execute`; `_Attempt` documents the fields that other
    threads access.
    """

    def __init__(self, terms: ExecutionOptions, breaker: CircuitBreaker, pool: StrategyCrew) -> None:
        self._terms = terms
        self._breaker = breaker
        self._pool = pool
        self._batch = pool.batch()
        self._until = terms.clock() + terms.deadline_seconds
        self._reports: dict[int, StrategyReport] = {}
        self._waiting: dict[ThreadCall[_Answer], _Attempt] = {}

    def run(self, strategies: Sequence[ContextStrategy]) -> ExecutionReport:
        """Return when every strategy is reported, at the deadline at the latest."""
        try:
            for index, strategy in enumerate(strategies):
                self._begin(index, strategy)
            while self._waiting:
                left = max(0.0, self._until - self._terms.clock())
                for call in self._pool.collect(self._batch, min(left, _LOOK_SECONDS)):
                    self._settle(call)
                self._leave_behind()
        finally:
            # Only an interrupt of this thread arrives here with unreported strategies.
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
                if not self._pool.submit(call):
                    self._report(call, StrategyStatus.SATURATED, error="no thread is free")
                    permit.release()
                return
        self._reports[index] = report

    def _settle(self, call: ThreadCall[_Answer]) -> None:
        """Report a call that ended by itself or was withdrawn by `close`."""
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
        """Abandon all calls that are cancelled or out of time."""
        cancelled = self._terms.is_cancelled
        now = self._terms.clock()
        for call, attempt in self._latest_first():
            if cancelled:
                self._leave(call, StrategyStatus.CANCELLED, now)
            elif now >= self._until or attempt.ran_until(now) >= self._terms.strategy_seconds:
                self._leave(call, StrategyStatus.LATE, now)

    def _latest_first(self) -> list[tuple[ThreadCall[_Answer], _Attempt]]:
        """Return all calls, queued calls first. (If a running call were abandoned first, its thread could
        start a queued call.)
        """
        return list(reversed(self._waiting.items()))

    def _leave(self, call: ThreadCall[_Answer], status: StrategyStatus, now: float) -> None:
        attempt = self._waiting[call]
        attempt.given_up = True
        was = self._pool.abandon(call)
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
            # A strategy that got its thread late exceeds the deadline, but this does not count as its
            # failure.
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
    """One strategy in one execution; for the strategy, it is the cancel signal.

    Shared by two threads without a lock: `began` is written once by the pool's thread, `given_up` once by the
    caller's, and the other thread only reads it.
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
        """Run the strategy on a thread of the pool.

        Always returns an answer, even if the strategy raises. Does not return if the strategy never ends.
        """
        began = self._terms.clock()
        self.began = began
        answer = _Answer()
        with answer:
            found = self._strategy.retrieve(self._terms.request, self)
            answer.kept = keep_within(found, self._terms.limits)
        answer.seconds = self._terms.clock() - began
        return answer


class _Answer:
    """The outcome of a strategy. As a context manager, it catches any exception, including `SystemExit`.

    It stores no exception, because the frames would keep the strategy's data alive.
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
