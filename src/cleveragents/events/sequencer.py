"""The sequencer: gives events their position in the order that all processes share.

The sequencer assigns positions inside the transaction that makes them visible, in the process that holds the
lock: when position n is visible, every position below n is visible, too. (The numbers of a database sequence
are assigned before the commit, so a reader that continues after the last number it has seen would miss
transactions that commit late.)

The order of the steps matters: commit the rows, attest them in the head file, release the lock, acknowledge.
A crash after the commit leaves rows that no head attests; the next sequencer verifies that they continue the
chain from the head and attests them.

Several state directories may share a database. The head and key are in one of them, the *home* of the log,
which assigns all positions; processes of the others leave their events in the outbox, durably, and never need
the key. The first directory that opens an unused database becomes its home. If a database in use names no
home, the directory that has a head becomes its home.

Reading the log tolerates any content. SQLite stores any value in any column: bytes, or text that is not
UTF-8. Such a row is reported as changed, and does not make the whole log unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from sqlalchemy import Connection, LargeBinary, Select, bindparam, cast, delete, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from cleveragents.core.errors import AuditElsewhere, AuditLogBroken, CleverAgentsError, DuplicateKey
from cleveragents.core.event import PreparedEvent
from cleveragents.core.faults import FaultPoints
from cleveragents.events.chain import EMPTY, LogRow, Tip, extend, follow_chain
from cleveragents.events.head import HeadFile
from cleveragents.storage.database import Database
from cleveragents.storage.prepared_statement import prepared
from cleveragents.storage.service_tables import audit_home
from cleveragents.storage.tables import events, jobs, outbox, plans

__all__ = [
    "AuditHome",
    "Placed",
    "Sequencer",
    "is_unused",
    "last_of",
    "lock_audit_log",
    "log_rows",
    "rows_after",
]


Placed = int | CleverAgentsError
"""A position, or the error that prevented it."""
_OUTBOX_BATCH = 1000
_PAGE = 1000
_WAITING = select(outbox).order_by(outbox.c.number).limit(_OUTBOX_BATCH)
_LAST = select(events.c.position, events.c.hash).order_by(events.c.position.desc()).limit(1)
_LAST_ROW = select(events).order_by(events.c.position.desc()).limit(1)
_INSERT = events.insert().values({column.name: bindparam(column.name) for column in events.columns})
_DELETE = delete(outbox).where(outbox.c.number == bindparam("sequenced"))

_NOBODY = "(unknown)"
_ADVISORY_LOCK = 0x41756469  # "Audi": one number for every process of ours
_ONE = {"number": 1}

_AS_BYTES = tuple(cast(column, LargeBinary) for column in events.columns if column is not events.c.position)


class _Repeated(Exception):
    """An event of the batch is already in the log."""


class _Pending(NamedTuple):
    number: int
    event: PreparedEvent


class _Sequenced(NamedTuple):
    tip: Tip
    placed: list[Placed]
    more: bool


class Sequencer:
    """Moves the outbox, and events passed to it, into the audit log.

    Thread safety:
        Owner: the audit log that built it; any thread and any number of processes may sequence concurrently.
        Lock: the head's file lock, from before the transaction until the head is written; PostgreSQL's
            advisory lock besides, in the transaction, for sequencers of other machines. It has no state.
        Guarantee: positions count 1, 2, 3… without a gap, become visible in that order, and every position
            that `sequence` returned is attested.
    Cancel safety: interrupted anywhere, it leaves a log that the next call repairs.
    """

    def __init__(
        self,
        database: Database,
        head: HeadFile,
        *,
        timeout: float,
        faults: FaultPoints,
        home: AuditHome | None = None,
    ) -> None:
        self._database = database
        self._head = head
        self._home = home
        self._timeout = timeout
        self._faults = faults

    def sequence(self, batch: Sequence[PreparedEvent] = (), *, wait: bool = True) -> list[Placed]:
        """Assign positions to the events in the outbox, then to the batch; return those of the batch.

        An event that is already in the log keeps its position; if its content differs, its result is
        `DuplicateKey`. Raises `AuditLogBroken` if the log does not match its head, and `AuditElsewhere` if
        another home has the log; in both cases no event is placed. Raises `StoreBusy` if other sequencers
        hold the lock for the whole timeout or, without `wait`, at this moment.
        """
        while True:
            done = self._sequence_some(batch, self._timeout if wait else 0.0)
            if not done.more:
                return done.placed

    def is_idle(self) -> bool:
        """Return whether there is nothing to place and nothing to attest at this moment."""
        if not self._head.exists():
            return False
        head = self._head.load()
        with self._database.read() as connection:
            waiting = connection.execute(select(outbox.c.number).limit(1)).first()
            return waiting is None and last_of(connection) == head

    def begin(self) -> None:
        """Attest the log of an unused database as empty.

        Does nothing if there is a head, if another home has the log, or if the database is in use.
        """
        with self._head.exclusively(self._timeout):
            if not self._head.exists():
                self._begin_if_unused()

    def attested(self) -> Tip:
        """Attest rows that a crash left unattested, and return the head. Raises `AuditLogBroken`."""
        with self._head.exclusively(self._timeout):
            head = self._begun()
            with self._database.read() as connection:
                tip = _tip(connection, head)
            if tip != head:
                self._head.store(tip)
            return tip

    def adopt(self) -> Tip:
        """Attest the current log if it is a valid chain: for a restored database or a lost head."""
        with self._head.exclusively(self._timeout), self._database.read() as connection:
            tip = follow_chain(EMPTY, rows_after(connection, 0))
            self._head.store(tip)
            import structlog

            structlog.get_logger(__name__).warning("audit.log_adopted", rows=tip.rows)
            return tip

    def _sequence_some(self, batch: Sequence[PreparedEvent], timeout: float) -> _Sequenced:
        with self._head.exclusively(timeout):
            head = self._begun()
            done = self._write(head, batch)
            self._faults.reach("audit.sequence.after_commit")
            if done.tip != head:
                self._head.store(done.tip)
        return done

    def _begun(self) -> Tip:
        """Return the head; create one for the empty log of an unused database.

        Raises `AuditLogBroken` if a database in use has lost its head; `adopt` creates a new head.
        """
        if self._head.exists():
            return self._head.load()
        if not self._begin_if_unused():  # guard: removing the head must not get another log attested
            with self._database.read() as connection:
                raise AuditLogBroken(last_of(connection).rows, f"the head file {self._head.path} is missing")
        return EMPTY

    def _begin_if_unused(self) -> bool:
        if self._home is not None:
            begins = self._home.take_unused()
        else:
            with self._database.read() as connection:
                begins = is_unused(connection)
        if begins:
            self._head.store(EMPTY)
        return begins

    def _write(self, head: Tip, batch: Sequence[PreparedEvent]) -> _Sequenced:
        try:
            return self._database.write(lambda connection: self._append(connection, head, batch))
        except _Repeated:
            return self._database.write(lambda connection: self._append_new(connection, head, batch))

    def _append(self, connection: Connection, head: Tip, batch: Sequence[PreparedEvent]) -> _Sequenced:
        pending, more = self._begin(connection)
        tip = _tip(connection, head)
        wanted = _wanted(pending, batch, more)
        rows = extend(tip, wanted)
        placed: list[Placed] = [row.position for row in rows[len(pending) :]]
        self._finish(connection, pending, rows)
        return _Sequenced(_end(tip, rows), placed, more)

    def _append_new(self, connection: Connection, head: Tip, batch: Sequence[PreparedEvent]) -> _Sequenced:
        """Like `_append`, but slower: checks for each event whether it is already in the log."""
        pending, more = self._begin(connection)
        tip = _tip(connection, head)
        wanted = _wanted(pending, batch, more)
        known = _known(connection, wanted)
        new: dict[str, PreparedEvent] = {}
        for event in wanted:
            if event.event_id not in known:
                new.setdefault(event.event_id, event)
        rows = extend(tip, new.values())
        known.update({row.event_id: row for row in rows})
        placed = [_place(known[event.event_id], event) for event in wanted]
        for refused in (place for place in placed[: len(pending)] if not isinstance(place, int)):
            import structlog

            structlog.get_logger(__name__).error("audit.event_refused", error=str(refused))
        self._finish(connection, pending, rows)
        return _Sequenced(_end(tip, rows), placed[len(pending) :], more)

    def _begin(self, connection: Connection) -> tuple[list[_Pending], bool]:
        lock_audit_log(connection)
        if self._home is not None:
            self._home.ensure_here(connection)
        waiting = prepared(_WAITING, connection.dialect.name).run(connection, {}).plain
        pending = [_Pending(row[0], PreparedEvent(*row[1:])) for row in waiting]
        return pending, len(pending) == _OUTBOX_BATCH

    def _finish(self, connection: Connection, pending: list[_Pending], rows: list[LogRow]) -> None:
        if rows:
            try:
                inserting = prepared(_INSERT, connection.dialect.name)
                inserting.run_each(connection, [row._asdict() for row in rows])
            except IntegrityError as error:
                raise _Repeated from error
        if pending:
            # One by one: below the highest number there may be rows of transactions that commit later.
            deleting = prepared(_DELETE, connection.dialect.name)
            deleting.run_each(connection, [{"sequenced": number} for number, _ in pending])
        self._faults.reach("audit.sequence.before_commit")


def rows_after(connection: Connection, position: int, *, page: int = _PAGE) -> Iterator[LogRow]:
    """Yield the rows above this position, in order, a page at a time."""
    while True:
        query = select(events).where(events.c.position > position).order_by(events.c.position).limit(page)
        rows = log_rows(connection, query)
        yield from rows
        if len(rows) < page:
            return
        position = rows[-1].position


def last_of(connection: Connection) -> Tip:
    """Return the end of the log according to its last row."""
    try:
        found = prepared(_LAST, connection.dialect.name).run(connection, {}).plain
    except OperationalError:
        if connection.dialect.name != "sqlite":  # a lost connection gets no further query
            raise
        rows = log_rows(connection, _LAST_ROW)
        found = [(row.position, row.hash) for row in rows]
    return Tip(*found[0]) if found else EMPTY


def _tip(connection: Connection, head: Tip) -> Tip:
    """Return the verified end of the log, which is beyond the head after a crash or a write elsewhere."""
    last = last_of(connection)
    return last if last == head else _chain_on(connection, head, last)


def _chain_on(connection: Connection, head: Tip, last: Tip) -> Tip:
    if last.rows < head.rows:
        raise AuditLogBroken(last.rows + 1, f"the row is missing; the head attests {head.rows} rows")
    if head != EMPTY:
        query = select(events).where(events.c.position == head.rows)
        if [row.hash for row in log_rows(connection, query)] != [head.hash]:
            raise AuditLogBroken(head.rows, "the row differs from the one that the head attests")
    return follow_chain(head, rows_after(connection, head.rows))


def _wanted(pending: list[_Pending], batch: Sequence[PreparedEvent], more: bool) -> list[PreparedEvent]:
    # Events that this process put into the outbox before it appended the batch come first, all of them.
    events_pending = [event for _, event in pending]
    return events_pending if more else [*events_pending, *batch]


def _known(connection: Connection, wanted: Sequence[PreparedEvent]) -> dict[str, LogRow]:
    found: dict[str, LogRow] = {}
    for start in range(0, len(wanted), 500):
        ids = [event.event_id for event in wanted[start : start + 500]]
        query = select(events).where(events.c.event_id.in_(ids))
        found.update({row.event_id: row for row in log_rows(connection, query)})
    return found


def _place(row: LogRow, event: PreparedEvent) -> Placed:
    same = PreparedEvent(*row[1:6]) == event
    return row.position if same else DuplicateKey(event.event_id)


def _end(tip: Tip, rows: list[LogRow]) -> Tip:
    return Tip(rows[-1].position, rows[-1].hash) if rows else tip


class AuditHome(Struct, frozen=True):
    """The database row that names the home of the log. Has no state of its own: any thread may share it."""

    database: Database
    home: str

    def is_elsewhere(self, *, has_head: bool) -> bool:
        """Return whether another state directory is the home of the log.

        If there is no home yet, this state directory becomes it if the database is unused or `has_head`.
        """
        with self.database.read() as connection:
            holder = _holder(connection)
        if holder is None:
            holder = self.database.write(lambda connection: self._taken(connection, has_head))
        return holder != self.home

    def ensure_here(self, connection: Connection) -> None:
        """Raise `AuditElsewhere` if another home has the log.

        Call it in the transaction that sequences, which holds the lock: the home cannot move meanwhile.
        """
        holder = _holder(connection)
        if holder != self.home:  # guard: this key attests all events that are sequenced here
            raise AuditElsewhere(holder or _NOBODY)

    def ensure_attested_here(self) -> None:
        """Raise `AuditElsewhere` if another home attests the log. For verification."""
        with self.database.read() as connection:
            holder = _holder(connection)
        if holder not in (None, self.home):
            raise AuditElsewhere(str(holder))

    def take_unused(self) -> bool:
        """Make this directory the home of an unused database; return False if the database is in use."""

        def unit(connection: Connection) -> bool:
            lock_audit_log(connection)
            holder = _holder(connection)
            if holder not in (None, self.home) or not is_unused(connection):
                return False
            if holder is None:
                connection.execute(insert(audit_home), {**_ONE, "home": self.home})
            return True

        return self.database.write(unit)

    def move_here(self) -> None:
        """Make this directory the home of the log; the previous home notices in its next transaction."""

        def unit(connection: Connection) -> None:
            lock_audit_log(connection)
            connection.execute(delete(audit_home))
            connection.execute(insert(audit_home), {**_ONE, "home": self.home})

        self.database.write(unit)

    def _taken(self, connection: Connection, has_head: bool) -> str | None:
        lock_audit_log(connection)
        holder = _holder(connection)
        if holder is not None:  # guard: the first home stays
            return holder
        if not has_head and not is_unused(connection):
            return None
        connection.execute(insert(audit_home), {**_ONE, "home": self.home})
        return self.home


def lock_audit_log(connection: Connection) -> None:
    """Exclude all other sequencers, on any machine, until the transaction ends."""
    if connection.dialect.name != "sqlite":  # SQLite allows only one write transaction
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK})


def is_unused(connection: Connection) -> bool:
    """Return whether the database holds no plan, no job, and no event in the outbox or the log."""
    columns = (plans.c.id, jobs.c.id, outbox.c.number, events.c.position)
    return not any(connection.execute(select(column).limit(1)).first() for column in columns)


def _holder(connection: Connection) -> str | None:
    found: str | None = connection.execute(select(audit_home.c.home)).scalar()
    return found


def log_rows(connection: Connection, query: Select[Any]) -> list[LogRow]:
    """Return the rows of a query on `events`. A value that is not text is replaced by a value that matches no
    hash.
    """
    try:
        return [_row(*found) for found in connection.execute(query)]
    except OperationalError:
        if connection.dialect.name != "sqlite":
            raise
    found_as_bytes = connection.execute(query.with_only_columns(events.c.position, *_AS_BYTES))
    return [_row(position, *map(_decoded, values)) for position, *values in found_as_bytes]


def _row(position: int, *values: object) -> LogRow:
    return LogRow(position, *(value if isinstance(value, str) else repr(value) for value in values))


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
