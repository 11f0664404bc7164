"""A circuit breaker: refuses calls to a name that keeps failing.

A call is made under a *permit*, which belongs to a generation and settles once. A lock around `is_open` and
`record_*` would not be enough: the state may change between the check and the result of the call, so a slow
call that was admitted before the breaker opened could close the breaker when it succeeds.

`BreakerEvents` publishes openings and closings on the event bus. Half-open is momentary and not published;
callers that need it listen to the breaker itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from types import MappingProxyType
from typing import Final

from cleveragents.core.clock import Clock
from cleveragents.core.errors import BreakerOpen, Cancelled
from cleveragents.core.event import DomainEvent, EventPublisher, EventType
from cleveragents.core.identifiers import IdentifierSource

__all__ = [
    "CANCELLATIONS",
    "BreakerEvents",
    "BreakerState",
    "BreakerStatistics",
    "BreakerTransition",
    "Circuit",
    "CircuitBreaker",
    "CircuitStatistics",
    "Permit",
]


CANCELLATIONS: Final = (Cancelled, asyncio.CancelledError, concurrent.futures.CancelledError)
_MAX_UNANNOUNCED: Final = 1024
_ANY_TIME: Final = 0.0  # a success needs no clock, and reading it would be a tenth of its cost


@dataclass(slots=True)
class Circuit:
    """The state of the circuit for one name, except its consecutive failures and whether it is disabled.

    Not thread-safe: guarded by the lock of the breaker that owns it.
    """

    name: str
    generation: int = 0
    half_open: bool = False
    retry_at: float = 0.0  # end of the cool-down, or of the lease of the running trial
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
        """Return a frozen copy of the totals."""
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


_Verdict = Callable[[Circuit, float], None]


class BreakerState(str, Enum):
    """Closed admits calls, open refuses them, half-open admits one at a time."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


_TYPES = {BreakerState.OPEN: EventType.BREAKER_OPENED, BreakerState.CLOSED: EventType.BREAKER_CLOSED}


class Permit:
    """Permission for one call. The first call of `success`, `failure` or `release` counts and returns True;
    any later call returns False.
    """

    __slots__ = ("_breaker", "_circuit", "_generation")

    def __init__(self, breaker: CircuitBreaker, circuit: Circuit, generation: int) -> None:
        self._breaker = breaker
        self._circuit = circuit
        self._generation: int | None = generation  # None once settled; guarded by the breaker's lock

    def success(self) -> bool:
        """Report that the call succeeded."""
        breaker = self._breaker
        return breaker._settle(self, breaker._succeed, _ANY_TIME)

    def failure(self, error: BaseException | None = None) -> bool:
        """Report that the call failed. A cancellation does not count as a failure: it releases the permit."""
        breaker = self._breaker
        verdict = breaker._release if isinstance(error, CANCELLATIONS) else breaker._fail
        return breaker._settle(self, verdict, breaker._clock())

    def release(self) -> bool:
        """Report that the call neither succeeded nor failed, because it was cancelled or never made."""
        breaker = self._breaker
        return breaker._settle(self, breaker._release, breaker._clock())


class CircuitBreaker:
    """Refuses a name after `failure_threshold` consecutive failures, then tries it one call at a time.

    An open breaker refuses calls for `cool_down_seconds`. Then it is half-open and admits one trial: success
    closes it, failure opens it again. Each transition starts a new generation, and the verdict of a permit
    counts only in its own. `record_*` need no permit and apply to the current generation; `is_open` returns
    False if the next call would be admitted as the trial. `on_transition` is called for each transition once,
    in order, one at a time, outside the lock, on the thread that made it or on one that is already
    announcing. A listener that falls 1024 transitions behind loses the oldest. One small record is kept per
    name forever, so use names of strategies, not of requests.

    Thread safety:
        Owner: the executor that built it, or the container; any thread may share it.
        Lock: `_lock` (not reentrant, never nested) guards all state; held for arithmetic only, never across
            the clock or a listener.
        Guarantee: no failure is lost, at most one trial with a valid lease is running per name, each permit
            settles once, and a call admitted before the breaker opened or was reset cannot change it.
    Cancel safety: a cancelled trial is released uncounted, and the next caller may try; a hung one loses
        its lease after `trial_lease_seconds`, so it cannot jam the breaker.
    """

    def __init__(
        self,
        failure_threshold: int = 3,
        cool_down_seconds: float = 30.0,
        trial_lease_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        on_transition: Callable[[BreakerTransition], object] | None = None,
    ) -> None:
        if failure_threshold < 1:
            raise ValueError(f"failure_threshold must be at least 1, not {failure_threshold}")
        if not (isfinite(cool_down_seconds) and cool_down_seconds >= 0):
            raise ValueError(f"cool_down_seconds must be finite and not negative, not {cool_down_seconds}")
        if not (isfinite(trial_lease_seconds) and trial_lease_seconds > 0):
            raise ValueError(
                f"trial_lease_seconds must be finite and greater than 0, not {trial_lease_seconds}"
            )
        self.failure_threshold = failure_threshold
        self.cool_down_seconds = cool_down_seconds
        self.trial_lease_seconds = trial_lease_seconds
        self._clock = clock
        self._on_transition = on_transition
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._disabled: set[str] = set()
        self._circuits: dict[str, Circuit] = {}
        self._unannounced: deque[BreakerTransition] = deque()
        self._unannounced_lost = 0
        self._announcing = False

    def acquire(self, name: str) -> Permit:
        """Return a permit for one call.

        Raises `BreakerOpen` with the time to wait while the name is refused.
        """
        with self._lock:
            if name not in self._disabled:
                circuit = self._circuit(name)
                circuit.admitted += 1
                return Permit(self, circuit, circuit.generation)
        return self._acquire_disabled(name)

    def is_open(self, name: str) -> bool:
        """Return whether a call would be refused now."""
        now = self._clock()
        with self._lock:
            return name in self._disabled and now < self._circuits[name].retry_at

    def record_success(self, name: str) -> None:
        """Record the success of a call without a permit: clears the failures and closes the circuit."""
        self._record(name, self._succeed, _ANY_TIME)

    def record_failure(self, name: str) -> None:
        """Record the failure of a call without a permit."""
        self._record(name, self._fail, self._clock())

    def reset(self, name: str) -> None:
        """Close the circuit, clear its failures and make every open permit stale."""
        with self._lock:
            circuit = self._circuit(name)
            self._forget(circuit)
        self._announce()

    def reset_all(self) -> None:
        """Reset every name in one step."""
        with self._lock:
            for circuit in self._circuits.values():
                self._forget(circuit)
        self._announce()

    def statistics(self) -> BreakerStatistics:
        """Return all circuits at one moment."""
        now = self._clock()
        with self._lock:
            circuits = {name: self._describe(circuit, now) for name, circuit in self._circuits.items()}
            return BreakerStatistics(MappingProxyType(circuits), self._unannounced_lost)

    # ── permits and verdicts ──────────────────────────────────────────────────────────────────────

    def _acquire_disabled(self, name: str) -> Permit:
        now = self._clock()
        with self._lock:
            circuit = self._circuits[name]
            if name in self._disabled:  # guard: another thread may have closed it since the first look
                wait = circuit.retry_at - now
                if wait > 0:  # guard: cooling down, or a trial is running
                    circuit.refused += 1
                    raise BreakerOpen(name, wait)
                self._begin_trial(circuit, now)
            circuit.admitted += 1
            permit = Permit(self, circuit, circuit.generation)
        self._announce()
        return permit

    def _settle(self, permit: Permit, verdict: _Verdict, now: float) -> bool:
        with self._lock:
            generation = permit._generation
            if generation is None:  # guard: a permit settles once
                return False
            permit._generation = None
            circuit = permit._circuit
            circuit.settled += 1
            if generation != circuit.generation:  # guard: the permit belongs to an older generation
                circuit.stale += 1
                return True
            verdict(circuit, now)
        if self._unannounced:
            self._announce()
        return True

    def _record(self, name: str, verdict: _Verdict, now: float) -> None:
        with self._lock:
            circuit = self._circuit(name)
            verdict(circuit, now)
        if self._unannounced:
            self._announce()

    # All below, down to _describe, are called under the lock.

    def _circuit(self, name: str) -> Circuit:
        circuit = self._circuits.get(name)
        if circuit is None:
            circuit = self._circuits[name] = Circuit(name)
        return circuit

    def _succeed(self, circuit: Circuit, _: float) -> None:
        circuit.successes += 1
        self._failures[circuit.name] = 0
        if circuit.name in self._disabled:
            self._close(circuit)

    def _fail(self, circuit: Circuit, now: float) -> None:
        name = circuit.name
        circuit.failures += 1
        failures = self._failures.get(name, 0) + 1
        self._failures[name] = failures
        if name not in self._disabled:
            if failures >= self.failure_threshold:
                self._open(circuit, now)
        elif circuit.half_open or now >= circuit.retry_at:  # a failure while open does not prolong it
            self._open(circuit, now)

    def _release(self, circuit: Circuit, now: float) -> None:
        circuit.released += 1
        circuit.retry_at = now  # so the next call may try at once; ignored while closed

    def _begin_trial(self, circuit: Circuit, now: float) -> None:
        circuit.trials += 1
        circuit.half_open = True
        circuit.retry_at = now + self.trial_lease_seconds
        self._enter(circuit, BreakerState.HALF_OPEN)

    def _open(self, circuit: Circuit, now: float) -> None:
        self._disabled.add(circuit.name)
        circuit.opened += 1
        circuit.half_open = False
        circuit.retry_at = now + self.cool_down_seconds
        self._enter(circuit, BreakerState.OPEN)

    def _close(self, circuit: Circuit) -> None:
        self._disabled.discard(circuit.name)
        circuit.half_open = False
        self._enter(circuit, BreakerState.CLOSED)

    def _forget(self, circuit: Circuit) -> None:
        self._failures.pop(circuit.name, None)
        circuit.generation += 1
        if circuit.name in self._disabled:
            self._close(circuit)

    def _enter(self, circuit: Circuit, state: BreakerState) -> None:
        circuit.generation += 1
        if self._on_transition is None:
            return
        if len(self._unannounced) >= _MAX_UNANNOUNCED:  # guard: the queue is bounded
            self._unannounced.popleft()
            self._unannounced_lost += 1
        failures = self._failures.get(circuit.name, 0)
        self._unannounced.append(BreakerTransition(circuit.name, state, circuit.generation, failures))

    def _describe(self, circuit: Circuit, now: float) -> CircuitStatistics:
        state = BreakerState.CLOSED
        if circuit.name in self._disabled:
            cooled = circuit.half_open or now >= circuit.retry_at
            state = BreakerState.HALF_OPEN if cooled else BreakerState.OPEN
        return circuit.statistics(state, self._failures.get(circuit.name, 0))

    def _announce(self) -> None:
        """Call the listener with all pending transitions; return at once if another thread is calling it."""
        while True:
            with self._lock:
                if self._announcing or not self._unannounced:  # guard: one at a time keeps the order
                    return
                self._announcing = True
                transition = self._unannounced.popleft()
            try:
                if self._on_transition is not None:
                    self._on_transition(transition)
            except BaseException as error:
                if not isinstance(error, Exception):
                    raise
                import structlog

                structlog.get_logger(__name__).warning(
                    "breaker.listener_failed", name=transition.name, error=repr(error)
                )
            finally:
                # Needs no lock: the next iteration of this loop finds transitions added while it was set.
                self._announcing = False


@dataclass(frozen=True, slots=True)
class BreakerTransition:
    """A transition of a circuit to `state`. `generation` grows with every transition of the circuit."""

    name: str
    state: BreakerState
    generation: int
    consecutive_failures: int


@dataclass(frozen=True, slots=True)
class CircuitStatistics:
    """The exact totals of one circuit.

    `successes`, `failures` and `released` count verdicts of the current generation, with or without a permit.
    `stale` counts verdicts of older generations, which changed nothing. `in_flight` counts open permits.
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


@dataclass(frozen=True, slots=True)
class BreakerStatistics:
    """All circuits at one moment; `unannounced_lost` counts transitions lost by a slow listener."""

    circuits: Mapping[str, CircuitStatistics]
    unannounced_lost: int = 0


class BreakerEvents:
    """A listener for `on_transition` that emits events in the order of the transitions.

    It is called by the thread that runs a strategy under a deadline, so it never waits for room on the bus.
    An event that the bus refuses is lost; the breaker logs the loss with the name of the circuit, and the bus
    counts it.
    """

    def __init__(self, publisher: EventPublisher, clock: Clock, identifiers: IdentifierSource) -> None:
        self._publisher = publisher
        self._clock = clock
        self._identifiers = identifiers

    def __call__(self, transition: BreakerTransition) -> None:
        event_type = _TYPES.get(transition.state)
        if event_type is None:
            return
        self._publisher.emit(
            DomainEvent(
                event_type=event_type,
                subject=transition.name,
                event_id=self._identifiers.new(),
                occurred_at=self._clock.now(),
                payload={
                    "generation": transition.generation,
                    "consecutive_failures": transition.consecutive_failures,
                },
            ),
            wait=False,
        )
