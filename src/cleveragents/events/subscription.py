"""One handler's place on the bus: who may call it, who is calling it, and when that has ended.

The promise that nothing starts after an unsubscribe returned is made here, once, for inline and ordered
delivery alike: a call enters itself in `_calls` *before* it looks whether the subscription is open, and
an unsubscribe closes it *before* it looks who is in there. So either the call sees that it is closed, or
the unsubscribe sees the call. Both lists of steps meet in `list.append` and `list.copy`, which are atomic
with the GIL and, by the list's own lock, without it: no lock of ours is taken per call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import ClassVar

from cleveragents.core.event import DomainEvent, EventHandler, EventType

__all__ = ["BusStatistics", "DeliveryTally", "Detach", "Subscription", "known_type"]


@dataclass(frozen=True, slots=True)
class BusStatistics:
    """A snapshot. `failures`, `dropped` and `refused` count since the bus was made, `waiting` is now.

    `dropped` were emitted and then not delivered to one subscriber; `refused` were not emitted at all,
    because somebody had no room for them.
    """

    emitted: int
    subscriptions: int
    failures: int
    dropped: int
    refused: int
    waiting: int


class DeliveryTally:
    """What went wrong in deliveries, counted for a whole bus, so that counts outlive subscriptions.

    Thread safety:
        Owner: the bus. Lock: `_lock` guards `failures` and `refused`, for an addition at a time; `dropped`
            is counted by `put` alone, which the bus calls under its own lock.
        Guarantee: no failure, no drop and no refusal goes uncounted.
    Cancel safety: no call waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.failures = 0
        self.dropped = 0
        self.refused = 0

    def count_failure(self) -> None:
        """One handler call raised."""
        with self._lock:
            self.failures += 1

    def count_refusal(self) -> None:
        """One emit was refused for want of room."""
        with self._lock:
            self.refused += 1

    def count_drop(self) -> None:
        """One event was dropped from a full queue. For whoever holds the bus's lock."""
        self.dropped += 1


Detach = Callable[["Subscription", bool, float], bool]
"""`(subscription, wait, timeout)`: the bus's part of an unsubscribe."""


class Subscription:
    """A handler subscribed to one type of event, or to all (`event_type` None).

    Thread safety:
        Owner: the bus that returned it; any thread may unsubscribe it.
        Lock: `_idle_lock` is for waiting until calls have ended; it is never held while the handler
            runs. `_calls` and `_open` need none, as the module says.
        Guarantee: after `shut`, no call begins that a following `wait_idle` does not see.
    Cancel safety: a call that raises, whatever it raises, leaves `_calls`.
    """

    __slots__ = (
        "_calls",
        "_detach",
        "_idle",
        "_idle_lock",
        "_open",
        "_tally",
        "event_type",
        "handler",
        "number",
    )

    # What the handler may raise without anybody noticing.
    _failures: ClassVar[type[BaseException]] = Exception

    def __init__(
        self,
        event_type: EventType | None,
        handler: EventHandler,
        number: int,
        detach: Detach,
        tally: DeliveryTally,
    ) -> None:
        self.event_type = event_type
        self.handler = handler
        self.number = number
        self._detach = detach
        self._tally = tally
        self._open = True
        self._calls: list[int] = []
        self._idle_lock = threading.Lock()
        self._idle = threading.Condition(self._idle_lock)

    def unsubscribe(self, *, wait: bool = True, timeout: float = 5.0) -> bool:
        """As `ReactiveEventBus.unsubscribe` of this subscription."""
        return self._detach(self, wait, timeout)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.unsubscribe()

    def deliver(self, event: DomainEvent, me: int) -> None:
        """Calls the handler on this thread, whose ident is `me`, unless the subscription was shut.

        The handler's exceptions are logged and counted; they reach nobody else. KeyboardInterrupt and
        its like pass through to the emitter, from an inline handler.
        """
        calls = self._calls
        calls.append(me)
        try:
            if self._open:  # guard: nothing starts after an unsubscribe returned
                self.handler(event)
        except BaseException as error:
            if not isinstance(error, self._failures):
                raise
            self._report(event, error)
        finally:
            calls.remove(me)
            if not self._open:
                self._announce_idle()

    def shut(self) -> None:
        """No call begins from now on."""
        self._open = False

    def wait_idle(self, timeout: float) -> bool:
        """Whether, within the timeout, no other thread is in the handler. For a subscription that is shut."""
        me = get_ident()
        with self._idle_lock:
            return self._idle.wait_for(lambda: not self._called_elsewhere(me), timeout)

    def _called_elsewhere(self, me: int) -> bool:
        # A copy, because a list that shrinks under an iteration makes it skip.
        return any(caller != me for caller in self._calls.copy())

    def _announce_idle(self) -> None:
        with self._idle_lock:
            self._idle.notify_all()

    def _report(self, event: DomainEvent, error: BaseException) -> None:
        self._tally.count_failure()
        import structlog

        structlog.get_logger(__name__).warning(
            "event.handler_failed",
            event_type=event.event_type.value,
            sequence=event.sequence,
            handler=getattr(self.handler, "__qualname__", repr(self.handler)),
            error_type=type(error).__name__,
            error=str(error),
        )


def known_type(event_type: EventType | str | None) -> EventType | None:
    """The type of that name; None, for all types, as it is. `UnknownEventType`."""
    if event_type is None or isinstance(event_type, EventType):
        return event_type
    return EventType.parse(event_type)
