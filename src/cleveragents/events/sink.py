"""The durable end of the event bus: a bounded queue, and one thread that stores its events.

The thread takes all queued events and sequences them in one transaction (group commit). Events that a store
temporarily refuses stay queued and are retried: an accepted event is lost only if the process dies before it
is acknowledged. Meanwhile the queue fills up and slows emitters down.

Events that other code commits to the outbox are already durable, and no caller waits for their positions. The
thread lets them accumulate for a moment, because placing many events costs little more than placing one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice

from cleveragents.core.errors import (
    AuditLogBroken,
    CleverAgentsError,
    Closed,
    DatabaseFailed,
    DeadlineExceeded,
    QueueFull,
)
from cleveragents.core.event import AuditRecord, DomainEvent, PreparedEvent
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.sequencer import Placed
from cleveragents.storage.outbox import event_row

__all__ = ["AuditReceipt", "DurableAuditSink"]

_BATCH = 2000
_IDLE_SECONDS = 5.0
_GATHER_SECONDS = 0.02
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_NAME = "the audit sink"


class AuditReceipt:
    """A handle to a future position. Written once, by the sink under its lock; any thread may wait on it."""

    __slots__ = ("_prepared", "_sink", "place")

    def __init__(self, sink: DurableAuditSink, prepared: PreparedEvent) -> None:
        self._sink = sink
        self._prepared = prepared
        self.place: Placed | None = None

    @property
    def prepared(self) -> PreparedEvent:
        """The event to store."""
        return self._prepared

    def wait(self, timeout: float | None = None) -> int:
        """Return the position of the event once it is sequenced and attested.

        Returns 0 once the event is stored for another home of the same database, which will sequence it.
        Raises `DeadlineExceeded`, or the error that prevents writing to the log (`StoreFull`,
        `AuditLogBroken`, …): the event may then not be stored. Raises `DuplicateKey` if its id was used
        before for another event.
        """
        place = self.place
        if place is None:
            place = self._sink.wait_for(self, timeout)
        if isinstance(place, CleverAgentsError):
            raise place
        return place


class DurableAuditSink:
    """`AuditSink` on a `DurableAuditLog`. Use it as a context manager, or `close` it.

    Thread safety:
        Owner: the code that built it closes it, after the bus; any thread may append.
        Lock: `_lock` guards the queue, the receipts' places and the flags; it is held for arithmetic only,
            never while the log is written. It is taken inside the bus's lock, never around it.
        Guarantee: events are stored in the order of their appends; a position that a receipt returned is
            valid after any crash; no accepted event is dropped while the process lives, until `close` gives
            up.
    Cancel safety: an abandoned wait changes nothing; the event stays queued.
    """

    def __init__(self, log: DurableAuditLog, *, bound: int = 10_000, default_timeout: float = 30.0) -> None:
        self._audit = log
        self._bound = bound
        self._default_timeout = default_timeout
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._moved = threading.Condition(self._lock)
        self._queue: deque[AuditReceipt] = deque()
        self._woken = True  # to look for events that a crash left in the outbox
        self._committed = False  # whether the outbox got events since the last check
        self._gathering = False
        self._closing = False
        self._give_up_at = float("inf")
        self._trouble: CleverAgentsError | None = None
        self._stop_listening = log.database.add_commit_listener(lambda _: self.wake())
        self._thread = threading.Thread(target=self._run, name="audit-sink", daemon=True)
        self._thread.start()

    def prepare(self, event: DomainEvent) -> PreparedEvent:
        """Return the event as the text that is stored and hashed. Raises `InvalidPayload`."""
        row = event_row(event)
        return PreparedEvent(
            row["event_id"], row["event_type"], row["subject"], row["occurred_at"], row["payload"]
        )

    def append(self, event: DomainEvent, timeout: float | None = None) -> AuditReceipt:
        """Queue the event for storage.

        If it raises `QueueFull`, `Closed` or `InvalidPayload`, the event is not stored.
        """
        prepared = self.prepare(event)
        give_up = time.monotonic() + self._seconds(timeout)
        while True:
            try:
                return self.append_nowait(prepared)
            except QueueFull:
                self.wait_for_room(give_up - time.monotonic())

    def append_nowait(self, prepared: PreparedEvent) -> AuditReceipt:
        """Queue a prepared event. Raises `QueueFull` or `Closed`."""
        receipt = AuditReceipt(self, prepared)
        with self._lock:
            if self._closing:  # guard: no thread would store it
                raise Closed(_NAME)
            if len(self._queue) >= self._bound:  # guard: the queue stays within its bound
                raise QueueFull(_NAME, self._bound)
            self._queue.append(receipt)
            self._wake()
        return receipt

    def wait_for_room(self, timeout: float) -> None:
        """Return when the queue has room or is closed.

        Raises `QueueFull`, or the error that keeps the queue full.
        """
        with self._lock:
            if self._moved.wait_for(lambda: self._closing or len(self._queue) < self._bound, timeout):
                return
            trouble = self._trouble
        raise trouble or QueueFull(_NAME, self._bound)

    def flush(self, timeout: float | None = None) -> None:
        """Return when all events appended before are sequenced and attested.

        Raises the errors of `Receipt.wait`.
        """
        waiting = self._queue.copy()  # atomic, unlike its parts
        if waiting:
            self.wait_for(waiting[-1], timeout)

    def read(self, *, after: int = 0, limit: int = 1000) -> Sequence[AuditRecord]:
        """Return sequenced records above position `after`, in order."""
        return self._audit.read(after=after, limit=limit)

    def wake(self) -> None:
        """Check the outbox, because something was committed to it."""
        with self._lock:
            self._committed = True
            self._wake()

    def wait_for(self, receipt: AuditReceipt, timeout: float | None) -> Placed:
        """Wait until the event of the receipt has a position, and return it. For `AuditReceipt.wait`."""
        seconds = self._seconds(timeout)
        with self._lock:
            self._moved.wait_for(lambda: receipt.place is not None or self._is_hopeless(), seconds)
            place = receipt.place
            trouble = self._trouble
        if place is None:
            raise trouble or DeadlineExceeded("storing an event", seconds)
        return place

    def close(self, *, timeout: float | None = None) -> None:
        """Refuse new events and store all appended events. Closing twice is harmless. If the store takes
        longer than the timeout, the remaining receipts get the error, and `close` raises it.
        """
        seconds = self._seconds(timeout)
        self._stop_listening()
        with self._lock:
            self._closing = True
            self._give_up_at = min(self._give_up_at, time.monotonic() + seconds)
            self._filled.notify()
            self._moved.notify_all()
        self._thread.join(seconds + 5.0)
        left = len(self._queue)
        if left:
            raise self._trouble or DeadlineExceeded(f"storing the last {left} events", seconds)

    def __enter__(self) -> DurableAuditSink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _seconds(self, timeout: float | None) -> float:
        return self._default_timeout if timeout is None else timeout

    def _is_hopeless(self) -> bool:
        return isinstance(self._trouble, AuditLogBroken)

    def _wake(self) -> None:
        # Signalled once, not per event: the thread checks again before it sleeps.
        if not self._woken or (self._gathering and self._queue):
            self._woken = True
            self._gathering = False
            self._filled.notify()

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while (batch := self._take()) is not None:
            if self._keep(batch):
                pause = _FIRST_PAUSE_SECONDS
                continue
            if not self._wait_to_retry(pause):
                self._abandon()
                return
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _take(self) -> list[AuditReceipt] | None:
        """Wait for events and return the queued events without removing them; None once the sink is closed
        and empty.

        The list is empty if only the outbox may have events.
        """
        with self._lock:
            while not self._queue and not self._woken:
                if self._closing:  # guard: the thread must end
                    return None
                # Also in a quiet time: another process may have died with rows in the outbox.
                self._woken = not self._filled.wait(_IDLE_SECONDS) or self._woken
            self._gathering = not self._queue
            self._filled.wait_for(lambda: self._queue or self._closing, _GATHER_SECONDS)
            self._gathering = False
            self._woken = False
            return list(islice(self._queue, _BATCH))

    def _keep(self, batch: list[AuditReceipt]) -> bool:
        try:
            if batch:
                places = self._audit.sequence([receipt.prepared for receipt in batch])
            else:
                places = []
                with self._lock:
                    committed, self._committed = self._committed, False
                self._audit.sequence_pending(look_first=not committed)
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            self._note_trouble(error)
            return False
        self._settle(batch, places)
        return True

    def _settle(self, batch: list[AuditReceipt], places: list[Placed]) -> None:
        with self._lock:
            self._trouble = None
            for receipt, place in zip(batch, places, strict=True):
                receipt.place = place
                self._queue.popleft()
            self._moved.notify_all()

    def _note_trouble(self, error: Exception) -> None:
        trouble = error if isinstance(error, CleverAgentsError) else self._unforeseen(error)
        with self._lock:
            first = self._trouble is None
            self._trouble = trouble
            self._moved.notify_all()
        if first:
            import structlog

            structlog.get_logger(__name__).warning(
                "audit.write_failed", error_type=type(error).__name__, error=str(error)
            )

    def _unforeseen(self, error: Exception) -> CleverAgentsError:
        return DatabaseFailed(self._audit.database.location, f"{type(error).__name__}: {error}")

    def _wait_to_retry(self, pause: float) -> bool:
        with self._lock:
            self._woken = True
            left = self._give_up_at - time.monotonic()
            if left <= 0:  # guard: a closed sink does not retry forever
                return False
            self._filled.wait(min(pause, left))
            return True

    def _abandon(self) -> None:
        with self._lock:
            reason = self._trouble or Closed(_NAME)
            for receipt in self._queue:
                receipt.place = reason
            self._moved.notify_all()
