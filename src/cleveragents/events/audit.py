"""The audit log of all processes: durable, totally ordered, verifiable.

Events enter it in two ways: as rows of the `outbox`, in the transaction of the change they report, or through
a `DurableAuditSink` (see `sink`). The `Sequencer` assigns their positions. If several state directories share
a database, only processes of one of them, the home of the log, assign positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from cleveragents.core.errors import AuditElsewhere, AuditLogBroken, UnknownEventType
from cleveragents.core.event import AuditRecord, DomainEvent, EventType, PreparedEvent
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.json_value import FrozenObject
from cleveragents.events.chain import EMPTY, AnchorSet, LogRow, Tip, follow_chain
from cleveragents.events.head import HeadFile
from cleveragents.events.sequencer import AuditHome, Placed, Sequencer, last_of, rows_after
from cleveragents.events.verification import (
    AuditReport,
    check_anchors,
    find_problems,
    hashes_at,
)
from cleveragents.storage.database import Database
from cleveragents.storage.outbox import leave_in_outbox

__all__ = ["DurableAuditLog", "FollowSignal"]


class FollowSignal(Protocol):
    """A signal that ends `follow`: a `threading.Event`, or a cancellation token."""

    def wait(self, timeout: float | None = None) -> bool: ...


class DurableAuditLog:
    """The log in `database`, whose head and key are in `directory`.

    Any thread and any process may use it concurrently; it has no state of its own. If the `durability` of the
    database is "full", the head survives a power cut, too. A call waits at most `timeout` seconds for another
    sequencer. `home` names this state directory if others share the database. `key_file` is a key that the
    operator keeps outside `directory`.
    """

    def __init__(
        self,
        database: Database,
        directory: Path,
        *,
        durability: Literal["normal", "full"] = "normal",
        timeout: float = 30.0,
        faults: FaultPoints | None = None,
        home: str | None = None,
        key_file: Path | None = None,
    ) -> None:
        self._faults = faults or NoFaults()
        self._database = database
        fsync = durability == "full"
        self._head = HeadFile(directory, fsync=fsync, faults=self._faults, key_file=key_file)
        self._home = None if home is None else AuditHome(database, home)
        self._sequencer = Sequencer(
            database, self._head, timeout=timeout, faults=self._faults, home=self._home
        )

    @property
    def database(self) -> Database:
        """The database of the log."""
        return self._database

    def begin(self) -> None:
        """Attest that the log of an unused database is empty. Call this before the first commit.

        After this call, a database in use without a head counts as broken.
        """
        if not self.is_attested_elsewhere():
            self._sequencer.begin()

    def sequence(self, batch: Sequence[PreparedEvent]) -> list[Placed]:
        """Give positions to the events in the outbox, then to the batch. See `Sequencer.sequence`.

        If another home sequences, the batch is stored in the outbox, and each position is 0 (unknown).
        """
        if not self._is_elsewhere():
            with suppress(AuditElsewhere):  # the home moved at this moment
                return self._sequencer.sequence(batch)
        self._database.write(lambda connection: leave_in_outbox(connection, batch))
        return [0] * len(batch)

    def sequence_pending(self, *, look_first: bool = True, wait: bool = True) -> None:
        """Give positions to the events in the outbox, and attest rows that a crash left unattested.

        With `look_first`, first checks whether there are waiting events; a caller that knows of such events
        skips the check. Does nothing if another home sequences. Raises `AuditLogBroken`. Raises `StoreBusy`
        if other sequencers, which then place most of the events, hold the lock for the whole timeout or,
        without `wait`, at this moment.
        """
        if self._is_elsewhere():
            return
        with suppress(AuditElsewhere):
            if not look_first or not self._sequencer.is_idle():
                self._sequencer.sequence(wait=wait)

    def read(self, *, after: int = 0, limit: int = 1000) -> list[AuditRecord]:
        """Return up to `limit` records above position `after`, in order.

        A reader that passes the last position it got as `after` misses no record and gets none twice.
        """
        records: list[AuditRecord] = []
        with self._database.read() as connection:
            for row in rows_after(connection, after, page=max(1, min(limit, 1000))):
                if len(records) >= limit:
                    break
                records.append(_record(row))
        return records

    def follow(
        self, *, after: int = 0, stop: FollowSignal, interval_seconds: float = 0.2
    ) -> Iterator[AuditRecord]:
        """Yield all records above `after`, including future ones, until `stop` is set."""
        while True:
            self.sequence_pending()
            records = self.read(after=after)
            for record in records:
                yield record
                after = record.position
            if stop.wait(0 if records else interval_seconds):
                return

    def verify(self, anchors: Sequence[AnchorSet] = (), *, use_head: bool = True) -> AuditReport:
        """Verify the whole log and report every row that changed since it was written.

        Events in the outbox are placed first, so that none is missed. The log may grow meanwhile; one
        snapshot of it is verified.

        With anchors, and with `use_head` False or another home that attests the log, the expected end of the
        log comes from the anchors alone: no key is needed, and the outbox is not read. Raises
        `AuditElsewhere` if another home attests the log and no anchors are given.
        """
        if anchors and (not use_head or self.is_attested_elsewhere()):
            with self._database.read() as connection:
                return find_problems(connection, None, anchors)
        if self._home is not None:
            self._home.ensure_attested_here()
        with suppress(AuditLogBroken):  # found again below, and reported with all other findings
            self.sequence_pending()
        head = self._attested()
        with self._database.read() as connection:
            return find_problems(connection, head, anchors)

    def end_to_anchor(self, known: AnchorSet) -> tuple[str, Tip] | None:
        """Return the hash of the first event and the end of the log, for a new anchor; None for an empty log.

        Raises `AuditLogBroken` if the log contradicts a known anchor or the head, and must not be signed. If
        another home attests the log, the events since the last known anchor are verified instead of the head.
        """
        elsewhere = self.is_attested_elsewhere()
        if not elsewhere:
            self.sequence_pending()
        head = None if elsewhere else self._sequencer.attested()
        best = max((anchor.tip for anchor in known.anchors), default=EMPTY)
        with self._database.read() as connection:
            if known.anchors:
                hashes = hashes_at(connection, (anchor.tip.rows for anchor in known.anchors))
                valid = AnchorSet(known.source, known.anchors)
                for finding in check_anchors(valid, hashes, last_of(connection).rows):
                    raise AuditLogBroken(finding.position, finding.problem)
            tip = head or follow_chain(best, rows_after(connection, best.rows))
            return None if tip == EMPTY else (hashes_at(connection, ())[1], tip)

    def adopt(self) -> int:
        """Attest the current log, after a restored backup or a lost head; return its number of rows.

        If several state directories share the database, this directory becomes the home of the log. Raises
        `AuditLogBroken` if the log is not a valid chain: such a log must not be attested.
        """
        adopted = self._sequencer.adopt()  # first: a log that cannot be attested stays where it is
        if self._home is not None:
            self._home.move_here()
        return adopted.rows

    def _is_elsewhere(self) -> bool:
        return self._home is not None and self._home.is_elsewhere(has_head=self._head.exists())

    def is_attested_elsewhere(self) -> bool:
        """Return whether another state directory has the head of this log."""
        try:
            if self._home is not None:
                self._home.ensure_attested_here()
        except AuditElsewhere:
            return True
        return False

    def _attested(self) -> Tip | AuditLogBroken:
        try:
            return self._sequencer.attested()
        except AuditLogBroken:
            pass
        try:
            return self._head.load()
        except AuditLogBroken as error:
            return error


def _record(row: LogRow) -> AuditRecord:
    try:
        event_type = EventType.parse(row.event_type)
    except UnknownEventType as error:
        problem = (
            f"the event type {row.event_type!r} is unknown: a newer version wrote the row, or the row "
            "was changed"
        )
        raise AuditLogBroken(row.position, problem) from error
    try:
        occurred_at = datetime.fromisoformat(row.occurred_at)
        payload = FrozenObject(json.loads(row.payload))
    except (ValueError, AttributeError) as error:
        raise AuditLogBroken(
            row.position, "the content of the row was changed after it was written"
        ) from error
    event = DomainEvent(event_type, row.subject, row.event_id, occurred_at, payload)
    return AuditRecord(row.position, event, row.previous_hash, row.hash)
