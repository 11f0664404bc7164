"""Follows the audit log and the output of watched plans for a whole server process, on one thread.

Local commits wake the follower at once; events of other processes are found by polling. The follower polls at
most every `COALESCE_SECONDS`, so that a burst of events is sent together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from cleveragents.access.store.sql_project_store import projects_of_events
from cleveragents.api.events import end_of_log, event_rows
from cleveragents.core.errors import AuditLogBroken, CleverAgentsError, StoreBusy
from cleveragents.events.audit import DurableAuditLog
from cleveragents.plans.ports.plans import OutputPiece, PlanOutput
from cleveragents.server.streams.frames import PAGE_FRAMES, event_frame, output_frame

if TYPE_CHECKING:
    from cleveragents.server.streams.hub import EventHub

__all__ = ["COALESCE_SECONDS", "LogFollower", "LogSource", "Source"]

COALESCE_SECONDS = 0.025

_POLL_SECONDS = 0.1
_BUSY_SECONDS = 0.0
_STAYS_BUSY = 40
"""The number of quick polls after new events were found: events of other processes also come in bursts."""

_IDLE_SECONDS = 1.0
_OUTPUT_PIECES = 500
_CLOSE_SECONDS = 10.0
log = structlog.get_logger(__name__)


class Source(Protocol):
    """A source of frames: the log, or numbered frames in tests. Several threads call it."""

    def end(self) -> int:
        """Return the position of the last event committed so far."""
        ...

    def bring_up(self) -> None:
        """Give pending events their positions, except events that another process is sequencing at this
        moment.
        """
        ...

    def frames(self, after: int) -> Sequence[bytes]:
        """Return the frames of the next positions, without a gap; at most a page."""
        ...

    def last_output(self, plan_id: str) -> int:
        """Return the number of a plan's last output."""
        ...

    def output(self, plan_id: str, after: int) -> Sequence[tuple[int, bytes]]:
        """Return the frames of a plan's output after the number, with their numbers."""
        ...


@dataclass(frozen=True, slots=True)
class LogSource:
    """The audit log of a database and the output of its plans. Any thread may use it."""

    audit: DurableAuditLog
    plan_output: PlanOutput

    def end(self) -> int:
        with suppress(AuditLogBroken):
            self.audit.sequence_pending()
        return end_of_log(self.audit.database)

    def bring_up(self) -> None:
        # Not waited for: with many plans another process usually does it, and waiting would delay the stream.
        with suppress(StoreBusy):  # guard: events placed by others are shown at once
            self.audit.sequence_pending(wait=False)

    def frames(self, after: int) -> Sequence[bytes]:
        rows = event_rows(self.audit.database, after=after, limit=PAGE_FRAMES)
        if not rows:
            return []
        projects = projects_of_events(self.audit.database, rows[0].position, rows[-1].position)
        return [event_frame(row, projects.get(row.position)) for row in rows]

    def last_output(self, plan_id: str) -> int:
        return self.plan_output.last(plan_id)

    def output(self, plan_id: str, after: int) -> Sequence[tuple[int, bytes]]:
        pieces: Sequence[OutputPiece] = self.plan_output.read(plan_id, after=after, limit=_OUTPUT_PIECES)
        return [(piece.number, output_frame(piece)) for piece in pieces]


class LogFollower:
    """Polls the source and passes new frames to the hub, in order.

    Thread safety:
        Owner: the hub that made it starts and closes it. Any thread may `wake` it.
        Lock: none; its state belongs to its own thread, which two events wake and stop.
        Guarantee: the hub gets every position after the one it was started at, once, in order, whatever
            the source raised meanwhile.
    Cancel safety: `close` waits for the poll in progress, up to a limit.
    """

    def __init__(
        self, source: Source, hub: EventHub, after: int, *, coalesce_seconds: float = COALESCE_SECONDS
    ) -> None:
        self._coalesce_seconds = coalesce_seconds
        self._source = source
        self._hub = hub
        self._position = after
        self._wakeup = threading.Event()
        self._stopping = threading.Event()
        self._said: str | None = None
        self._quick = 0
        self._thread = threading.Thread(target=self._run, name="event-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Poll now: there are new events or a new client."""
        self._wakeup.set()

    def stop(self) -> None:
        """Stop after the poll in progress."""
        self._stopping.set()
        self._wakeup.set()

    def close(self) -> None:
        self.stop()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wakeup.clear()  # before the poll, so that a wake during it is not lost
            pause = self._attempt(self._look)
            if not self._stopping.wait(self._coalesce_seconds):
                self._wakeup.wait(pause)

    def _look(self) -> float:
        """Pass new frames to the hub. Return the seconds until the next poll, unless it is woken earlier."""
        watched = self._hub.watched()
        # Read before the events, so that the events that precede a piece of output come before it
        output = {plan_id: self._source.output(plan_id, after) for plan_id, after in (watched or {}).items()}
        self._attempt(self._brought_up)
        self._quick = max(0, self._quick - 1)
        while frames := self._source.frames(self._position):
            self._quick = _STAYS_BUSY
            if not self._hub.take_events(self._position, frames):
                break
            self._position += len(frames)
        for plan_id, pieces in output.items():
            if pieces:
                self._hub.take_output(plan_id, pieces)
        self._said = None
        if watched is None:
            return _IDLE_SECONDS
        return _BUSY_SECONDS if self._quick else _POLL_SECONDS

    def _brought_up(self) -> float:
        self._source.bring_up()
        return 0.0

    def _attempt(self, step: Callable[[], float]) -> float:
        try:
            return step()
        except CleverAgentsError as error:
            # The database will be back, and a broken log can still be read; logged once.
            if str(error) != self._said:
                self._said = str(error)
                log.warning("server.events_not_followed", error=self._said)
        except Exception:
            log.exception("server.events_not_followed")
        return _POLL_SECONDS
