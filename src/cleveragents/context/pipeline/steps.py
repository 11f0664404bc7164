"""Steps of the pipeline that may hang or raise, each run on another thread with a deadline.

The strategy executor runs a step as a strategy without findings. So steps have the same abandonable threads,
deadlines and breaker as strategies. The result of a step is validated on its own thread, because even reading
it may hang; it is used only if the executor reports that it arrived in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, TypeVar

from cleveragents.context.context_parts import StrategyExecutor
from cleveragents.context.model.context import ContextFragment, ContextRequest, StrategyReport, StrategyStatus
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.errors import Closed

__all__ = ["Deadline", "StepOutcome", "attempted", "run_step"]

T = TypeVar("T")

_LONGEST_PROBLEM: Final = 300
_NOTHING_ASKED: Final = ContextRequest("")
_WORDS: Final = {
    StrategyStatus.LATE: "did not finish in time",
    StrategyStatus.CANCELLED: "was cancelled",
    StrategyStatus.BREAKER_OPEN: "is paused because it kept failing",
    StrategyStatus.SATURATED: "found no free thread",
}


class Deadline:
    """A point in time on a monotonic clock."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._until = clock() + seconds

    @property
    def left(self) -> float:
        """The seconds left until the deadline; 0 if it has passed."""
        return max(0.0, self._until - self._clock())

    def extended(self, seconds: float) -> Deadline:
        """Return a deadline that is `seconds` later."""
        later = Deadline(self._clock, 0.0)
        later._until = self._until + seconds
        return later


@dataclass(frozen=True, slots=True)
class StepOutcome(Generic[T]):
    """The outcome of a step: its result in a tuple of one element, or an empty tuple and the problem."""

    given: tuple[T, ...] = ()
    problem: str = ""


class _Step(Generic[T]):
    def __init__(self, name: str, act: Callable[[CancelSignal], T]) -> None:
        self.name = name
        self.given: tuple[T, ...] = ()
        self._act = act

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        self.given = (self._act(cancelled),)
        return ()


class _Caught:
    """A context manager that catches any exception except interrupts and keeps its message."""

    def __init__(self) -> None:
        self.problem = ""

    def __enter__(self) -> _Caught:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.problem = f"failed ({type(error).__name__})"
        with suppress(Exception):  # even its __str__ may be foreign
            self.problem = f"failed ({type(error).__name__}: {error})"[:_LONGEST_PROBLEM]
        return True


def attempted(act: Callable[[], T]) -> StepOutcome[T]:
    """Call `act` on this thread; return its result or its error."""
    caught = _Caught()
    with caught:
        return StepOutcome((act(),))
    return StepOutcome(problem=caught.problem)


def run_step(
    executor: StrategyExecutor,
    name: str,
    act: Callable[[CancelSignal], T],
    *,
    seconds: float,
    cancelled: CancelSignal | None = None,
) -> StepOutcome[T]:
    """Run `act` within `seconds`. Raises nothing except interrupts of the calling thread."""
    if seconds <= 0:
        return StepOutcome(problem="had no time left")
    step = _Step(name, act)
    try:
        report = executor.execute([step], _NOTHING_ASKED, deadline_seconds=seconds, cancelled=cancelled)
    except Closed as closed:
        return StepOutcome(problem=str(closed))
    told = report.strategies[0]
    if told.status is not StrategyStatus.EMPTY:  # guard: a late result is ignored
        return StepOutcome(problem=_problem(told))
    return StepOutcome(step.given)


def _problem(told: StrategyReport) -> str:
    return _WORDS.get(told.status) or f"failed ({told.error})"
