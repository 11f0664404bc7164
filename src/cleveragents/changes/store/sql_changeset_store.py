"""Changesets in a database: durable when the call returns, with many records per commit.

A commit costs about the same for one record as for many. So the records of concurrent threads are written
together: one query for their changesets, one insert, one commit. Each caller still gets its own answer. A
refused record does not fail the commit.

A path is text in Python and bytes in the file system. A path that is not UTF-8 has lone surrogates, which no
database stores. Such a path, and a path that itself begins with a quote, is stored as a JSON string, which is
plain ASCII and begins with a quote. Every other path is stored as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import BindParameter, Connection, Row, Select, bindparam, func, select, update

from cleveragents.core.change import ChangeEntry, Changeset, RecordedChange, keys_of_batch
from cleveragents.core.clock import Clock, SystemClock
from cleveragents.core.errors import ChangesetClosed, DuplicateKey, UnknownChangeset
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.storage.columns import ensure_storable, is_storable
from cleveragents.storage.database import Database
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in, row_of
from cleveragents.storage.tables import change_entries, changesets

__all__ = ["SqlChangesetStore", "change_row", "recorded_of"]


_LENGTH = (
    select(func.coalesce(func.max(change_entries.c.sequence), 0))
    .where(change_entries.c.changeset_id == changesets.c.id)
    .scalar_subquery()
)
_LOOK: Select[tuple[str, str, bool, int]] = select(
    changesets.c.id, changesets.c.plan_id, changesets.c.closed, _LENGTH.label("length")
)
_BY_ID = _LOOK.where(changesets.c.id == bindparam("id"))
_NUMBER = select(changesets.c.number).where(changesets.c.id == bindparam("id"))
# Numbers begin at 1, so 0 selects all.
_OF_PLAN = _LOOK.where(
    changesets.c.plan_id == bindparam("plan_id"), changesets.c.number > bindparam("after")
).order_by(changesets.c.number)
_IDS: BindParameter[str] = bindparam("ids", expanding=True)
# In the order of their ids, so that two transactions never deadlock.
_HOLD = select(changesets.c.id).where(changesets.c.id.in_(_IDS)).order_by(changesets.c.id).with_for_update()
_THESE = _LOOK.where(changesets.c.id.in_(_IDS))
_KEYED = select(change_entries).where(
    change_entries.c.changeset_id.in_(_IDS), change_entries.c.key.in_(bindparam("keys", expanding=True))
)
_ENTRIES = (
    select(change_entries)
    .where(change_entries.c.changeset_id == bindparam("id"))
    .order_by(change_entries.c.sequence)
)
_APPEND = change_entries.insert()
_START = changesets.insert()
_SEAL = update(changesets).where(changesets.c.id == bindparam("changeset_id")).values(closed=True)
_Refusal = ChangesetClosed | DuplicateKey | UnknownChangeset


class _Record(Struct, frozen=True):
    """The arguments of one `record` call."""

    changeset_id: str
    entry: ChangeEntry
    key: str | None

    def ensure_storable(self) -> None:
        """Raise an error for values that no database can store, before they make the shared transaction of
        other callers fail.
        """
        _ensure_possible(self.changeset_id)
        entry = self.entry
        ensure_storable(
            f"a change of {entry.path!r}",
            {
                "key": self.key,
                "before_hash": entry.before_hash,
                "after_hash": entry.after_hash,
                "tool_call_id": entry.tool_call_id,
            },
        )


class SqlChangesetStore:
    """`ChangesetStore` on a `Database`. Stateless but for the database, so any thread may share it.

    The start and the close of a changeset are stored with their events, in one transaction.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource, clock: Clock | None = None) -> None:
        self._database = database
        self._identifiers = identifiers
        self._clock = clock or SystemClock()

    def start(self, plan_id: str) -> str:
        ensure_storable("a new changeset", {"plan_id": plan_id})
        changeset = Changeset(self._identifiers.new(), plan_id)
        event = self._event(EventType.CHANGESET_STARTED, changeset)

        def unit(connection: Connection) -> str:
            connection.execute(_START, {"id": changeset.id, "plan_id": plan_id, "closed": False})
            append_to_outbox(connection, event)
            return changeset.id

        return self._database.write(unit)

    def record(self, changeset_id: str, entry: ChangeEntry, *, key: str | None = None) -> RecordedChange:
        wanted = _Record(changeset_id, entry, key)
        wanted.ensure_storable()
        answer = self._database.write_joined(_record_all, wanted)
        if not isinstance(answer, RecordedChange):
            raise answer
        return answer

    def record_all(
        self, changeset_id: str, entries: Sequence[ChangeEntry], *, key: str | None = None
    ) -> Sequence[RecordedChange]:
        pairs = zip(entries, keys_of_batch(key, len(entries)), strict=True)
        wanted = [_Record(changeset_id, entry, entry_key) for entry, entry_key in pairs]
        for record in wanted:
            record.ensure_storable()

        def unit(connection: Connection) -> list[RecordedChange]:
            recorded: list[RecordedChange] = []
            for answer in _record_all(connection, wanted):
                if not isinstance(answer, RecordedChange):  # guard: all or none
                    raise answer
                recorded.append(answer)
            return recorded

        return self._database.write(unit)

    def close(self, changeset_id: str) -> Changeset:
        _ensure_possible(changeset_id)

        def unit(connection: Connection) -> Changeset:
            _hold(connection, [changeset_id])
            changeset = _one(connection, changeset_id)
            if changeset.closed:  # guard: a changeset is closed once, with one event
                return changeset
            connection.execute(_SEAL, {"changeset_id": changeset_id})
            append_to_outbox(connection, self._event(EventType.CHANGESET_CLOSED, changeset))
            return changeset.sealed()

        return self._database.write(unit)

    def get(self, changeset_id: str) -> Changeset:
        _ensure_possible(changeset_id)
        with self._database.read() as connection:
            return _one(connection, changeset_id)

    def entries(self, changeset_id: str) -> Sequence[RecordedChange]:
        _ensure_possible(changeset_id)

        def load(connection: Connection) -> Sequence[RecordedChange]:
            rows = connection.execute(_ENTRIES, {"id": changeset_id}).all()
            if not rows:
                _one(connection, changeset_id)
            return [recorded_of(row) for row in rows]

        return self._database.read_shared(("entries", changeset_id), load)

    def of_plan(self, plan_id: str, *, after: str | None = None) -> Sequence[Changeset]:
        if not is_storable(plan_id):
            return []

        def load(connection: Connection) -> Sequence[Changeset]:
            number = 0 if after is None else _number_of(connection, after)
            rows = connection.execute(_OF_PLAN, {"plan_id": plan_id, "after": number}).all()
            return [_changeset_of(row) for row in rows]

        return self._database.read_shared(("changesets", plan_id, after), load)

    def _event(self, kind: EventType, changeset: Changeset) -> DomainEvent:
        facts: dict[str, JsonValue] = {"plan_id": changeset.plan_id, "length": changeset.length}
        return DomainEvent(kind, changeset.id, self._identifiers.new(), self._clock.now(), facts)


def _ensure_possible(changeset_id: str) -> None:
    if not is_storable(changeset_id):
        raise UnknownChangeset(changeset_id)


def _hold(connection: Connection, ids: Sequence[str]) -> None:
    """Lock these changesets until the end of the transaction, so that no other transaction adds entries to
    them or closes them.
    """
    # A separate statement: one that waited for a lock still sees the rows from before it waited.
    if connection.dialect.name != "sqlite":  # there the transaction is the only writer
        connection.execute(_HOLD, {"ids": ids})


def _one(connection: Connection, changeset_id: str) -> Changeset:
    row = connection.execute(_BY_ID, {"id": changeset_id}).first()
    if row is None:
        raise UnknownChangeset(changeset_id)
    return _changeset_of(row)


def _number_of(connection: Connection, changeset_id: str) -> int:
    _ensure_possible(changeset_id)
    number: int | None = connection.execute(_NUMBER, {"id": changeset_id}).scalar()
    if number is None:
        raise UnknownChangeset(changeset_id)
    return number


def _changeset_of(row: Row[tuple[str, str, bool, int]]) -> Changeset:
    return Changeset(row.id, row.plan_id, row.closed, row.length)


def _record_all(connection: Connection, records: Sequence[_Record]) -> Sequence[RecordedChange | _Refusal]:
    """Return one answer for each record, in order; a refusal is an answer and affects no other record."""
    ids = sorted({record.changeset_id for record in records})
    _hold(connection, ids)
    held = {row.id: _changeset_of(row) for row in connection.execute(_THESE, {"ids": ids})}
    known = _keyed(connection, ids, records)
    answers: list[RecordedChange | _Refusal] = []
    appended: list[RecordedChange] = []
    for record in records:
        try:
            answers.append(_decide(record, held, known, appended))
        except (ChangesetClosed, DuplicateKey, UnknownChangeset) as refusal:
            answers.append(refusal)
    if appended:
        connection.execute(_APPEND, [change_row(change) for change in appended])
    return answers


def _keyed(
    connection: Connection, ids: Sequence[str], records: Sequence[_Record]
) -> dict[tuple[str, str | None], RecordedChange]:
    keys = sorted({record.key for record in records if record.key is not None})
    if not keys:
        return {}
    rows = connection.execute(_KEYED, {"ids": ids, "keys": keys}).all()
    return {(row.changeset_id, row.key): recorded_of(row) for row in rows}


def _decide(
    record: _Record,
    held: dict[str, Changeset],
    known: dict[tuple[str, str | None], RecordedChange],
    appended: list[RecordedChange],
) -> RecordedChange:
    changeset = held.get(record.changeset_id)
    if changeset is None:  # guard: the handle is the identity
        raise UnknownChangeset(record.changeset_id)
    earlier = known.get((record.changeset_id, record.key))
    if earlier is not None:  # guard: a retry appends nothing
        return earlier.repeated(record.entry)
    held[record.changeset_id], recorded = changeset.appended(record.entry, record.key)
    if record.key is not None:
        known[record.changeset_id, record.key] = recorded
    appended.append(recorded)
    return recorded


def change_row(change: RecordedChange) -> dict[str, object]:
    """Return the columns of a recorded change."""
    entry = change.entry
    return row_of(
        entry,
        changeset_id=change.changeset_id,
        sequence=change.sequence,
        path=_kept(entry.path),
        old_path=None if entry.old_path is None else _kept(entry.old_path),
        key=change.key,
    )


def recorded_of(row: Row[tuple[object, ...]]) -> RecordedChange:
    """Return the recorded change of a row."""
    columns = row._mapping
    old_path = None if columns["old_path"] is None else _path(columns["old_path"])
    entry = record_in(ChangeEntry, columns, path=_path(columns["path"]), old_path=old_path)
    return RecordedChange(columns["changeset_id"], columns["sequence"], entry, columns["key"])


def _kept(path: str) -> str:
    return path if is_storable(path) and not path.startswith('"') else json.dumps(path)


def _path(kept: str) -> str:
    if not kept.startswith('"'):
        return kept
    path: str = json.loads(kept)
    return path
