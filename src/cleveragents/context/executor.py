"""The context pipeline's executor: strategies at once, by a deadline, with a breaker for each.

`CircuitBreaker` decides who may be called; `ParallelStrategyExecutor` has them called on the threads of
`strategy_threads`, each invocation being looked after by a `strategy_execution`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from cleveragents.context.model.context import ContextRequest, ExecutionReport, FragmentLimits
from cleveragents.context.strategy import CancelSignal, ContextStrategy
from cleveragents.context.strategy_execution import (
    StrategyCrew,
    StrategyExecution,
    Terms,
)
from cleveragents.context.strategy_threads import CrewStatistics, ThreadCrew
from cleveragents.core.circuit_breaker import CircuitBreaker, Permit

__all__ = ["CircuitBreaker", "ParallelStrategyExecutor", "Permit"]


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
        self._crew: StrategyCrew = ThreadCrew(
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
        terms = Terms(
            request=request,
            deadline_seconds=deadline_seconds,
            strategy_seconds=deadline_seconds if strategy_seconds is None else strategy_seconds,
            cancelled=cancelled,
            limits=self._limits,
            clock=self._clock,
        )
        return self._execute_parallel(strategies, terms)

    def _execute_parallel(self, strategies: Sequence[ContextStrategy], terms: Terms) -> ExecutionReport:
        return StrategyExecution(terms, self._circuit_breaker, self._crew).run(strategies)

    def statistics(self) -> CrewStatistics:
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
