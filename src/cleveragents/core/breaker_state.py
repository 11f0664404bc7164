"""What a circuit breaker says about itself: states, transitions, exact totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["BreakerState", "BreakerStatistics", "BreakerTransition", "Circuit", "CircuitStatistics"]


class BreakerState(str, Enum):
    """Closed lets calls through, open refuses them, half-open lets one through at a time."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerTransition:
    """A circuit entered `state`; `generation` grows with every transition of that name."""

    name: str
    state: BreakerState
    generation: int
    consecutive_failures: int


@dataclass(frozen=True, slots=True)
class CircuitStatistics:
    """One name's circuit, with exact totals.

    `successes`, `failures` and `released` count the verdicts of their time, with a permit or without;
    `stale` those that spoke for an older generation and changed nothing; `in_flight` permits are still out.
    """

    state: BreakerState
    consecutive_failures: int
    opened: int
    trials: int
    admitted: int
    refused: int
    in_flight: int
    successes: int
    failures: int
    released: int
    stale: int


@dataclass(slots=True)
class Circuit:
    """What a breaker keeps of one name, beside its failures in a row and whether it is disabled.

    Not thread-safe: guarded by the lock of the breaker that owns it.
    """

    name: str
    generation: int = 0
    half_open: bool = False
    retry_at: float = 0.0  # when the cool-down, or the lease of the trial that is out, ends
    opened: int = 0
    trials: int = 0
    admitted: int = 0
    refused: int = 0
    settled: int = 0
    successes: int = 0
    failures: int = 0
    released: int = 0
    stale: int = 0

    def statistics(self, state: BreakerState, consecutive_failures: int) -> CircuitStatistics:
        """A frozen copy of the totals."""
        return CircuitStatistics(
            state=state,
            consecutive_failures=consecutive_failures,
            opened=self.opened,
            trials=self.trials,
            admitted=self.admitted,
            refused=self.refused,
            in_flight=self.admitted - self.settled,
            successes=self.successes,
            failures=self.failures,
            released=self.released,
            stale=self.stale,
        )


@dataclass(frozen=True, slots=True)
class BreakerStatistics:
    """All circuits at one moment; `unannounced_lost` transitions found their listener too far behind."""

    circuits: Mapping[str, CircuitStatistics]
    unannounced_lost: int = 0
