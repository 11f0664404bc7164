"""Puts a circuit breaker's openings and closings on the event bus.

Half-open is a moment, not news: who needs it listens to the breaker itself.
"""

from __future__ import annotations

from cleveragents.core.breaker_state import BreakerState, BreakerTransition
from cleveragents.core.clock import Clock
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.event_ports import EventPublisher
from cleveragents.core.identifiers import IdentifierSource

__all__ = ["BreakerEvents"]

_TYPES = {BreakerState.OPEN: EventType.BREAKER_OPENED, BreakerState.CLOSED: EventType.BREAKER_CLOSED}


class BreakerEvents:
    """A breaker's `on_transition`: emits in the order in which the breaker announces.

    It is called by whoever runs a strategy, and he has a deadline: so it never waits for room on the bus. An
    event that is refused is lost, which the breaker logs with its name and the bus counts.
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
