"""The journal of applies and undos: the planned change of every file, stored before it happens.

  staging ─▶ prepared ─▶ done
    └──────────┴─────▶ undone

`staging`: a directory for new contents may exist, but no file of the user was touched. `prepared`: files may
have been moved, and the journal has the old and new state of each. `done` and `undone` are final. An entry is
open until `ended_at` is set, which happens when its temporary files are gone from the resource.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict
from sqlalchemy import Connection, RowMapping, bindparam, select, update

from cleveragents.access.model.project import branch_of, remote_of
from cleveragents.apply.exchange import Metadata
from cleveragents.apply.ports import ApplyRecord, Rename
from cleveragents.core.change import FileState
from cleveragents.core.clock import Clock
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import Fence, IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.store.rows import ensure_owned
from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.outbox import append_many_to_outbox, append_to_outbox
from cleveragents.storage.tables import applies

__all__ = [
    "DONE",
    "PREPARED",
    "STAGING",
    "UNDONE",
    "ApplyJournal",
    "CommitFacts",
    "Conclusion",
    "Journal",
    "JournalEntry",
    "MovedFile",
]

STAGING = "staging"
PREPARED = "prepared"
DONE = "done"
UNDONE = "undone"

_INSERT = applies.insert()
_PREPARE = (
    update(applies)
    .where(applies.c.id == bindparam("apply_id"), applies.c.state == STAGING)
    .values(state=PREPARED, journal=bindparam("text"))
)
_END = (
    update(applies)
    .where(applies.c.id == bindparam("apply_id"), applies.c.state.in_((STAGING, PREPARED)))
    .values(state=bindparam("ended"))
)
_CLOSE = update(applies).where(applies.c.id == bindparam("apply_id")).values(ended_at=bindparam("moment"))
_OPEN = select(applies).where(applies.c.ended_at.is_(None)).order_by(applies.c.number)
_ONE = select(applies).where(applies.c.id == bindparam("apply_id"))
_DONE_OF_PLAN = (
    select(applies)
    .where(applies.c.plan_id == bindparam("plan_id"), applies.c.state == DONE)
    .order_by(applies.c.number.desc())
    .limit(1)
)
_OF_PLAN = select(applies).where(applies.c.plan_id == bindparam("plan_id")).order_by(applies.c.number.desc())
_DONE_OF_RESOURCE = (
    select(applies)
    .where(applies.c.resource == bindparam("resource"), applies.c.state == DONE)
    .order_by(applies.c.number.desc())
    .limit(bindparam("count"))
)


class MovedFile(Struct, frozen=True):
    """One file: git's states before and after, and the fingerprints of the exact bytes before and after."""

    path: str
    before: FileState | None
    after: FileState | None
    was: str
    becomes: str


class CommitFacts(Struct, frozen=True):
    """The effect of a commit on the repository: the move of the ref, and the hashes of the index."""

    git_directory: str
    ref: str
    old: str
    new: str
    index_before: str
    index_after: str


class Journal(Struct, frozen=True):
    """Everything needed to complete or undo an apply without the sandbox.

    `staging` holds new contents before the swap and old ones after it; `scratch`, in the git directory, holds
    the new index. `made` are new directories; `emptied` are directories that deletions may empty, with their
    metadata (only permissions in journals of earlier versions). `home` names the state directory of the
    applying process. `metadata` is that of each changed or deleted file; journals of earlier versions have
    none. `permissions` are for directories that an undo recreates. `renames` are the renames that the merge
    followed. `submodules` lists each submodule whose directory is created or removed, and whether it exists
    afterwards.
    """

    staging: str
    scratch: str = ""
    base: str = ""
    ours: str = ""
    merged: str = ""
    files: tuple[MovedFile, ...] = ()
    made: tuple[str, ...] = ()
    emptied: Mapping[str, Metadata | int] = field(default_factory=dict)
    commit: CommitFacts | None = None
    home: str = ""
    metadata: Mapping[str, Metadata] = field(default_factory=dict)
    permissions: Mapping[str, Metadata | int] = field(default_factory=dict)
    renames: tuple[Rename, ...] = ()
    submodules: Mapping[str, bool] = field(default_factory=dict)


class JournalEntry(Struct, frozen=True):
    """A row of the journal."""

    id: str
    plan_id: str
    resource: str
    kind: str
    state: str
    journal: Journal

    @property
    def record(self) -> ApplyRecord:
        """The summary of the entry's changes."""
        made, journal = self.journal.commit, self.journal
        changed = {*(file.path for file in journal.files), *journal.submodules}
        return ApplyRecord(self.kind, len(changed), None if made is None else made.new, journal.renames)


Conclusion = Callable[[Connection, JournalEntry, bool], None]
"""A callback in the transaction that ends an apply, with its entry and whether it is done, to store other
state together with it.
"""


class ApplyJournal:
    """The journal on a `Database`. Holds no other state, so any thread may share it."""

    def __init__(
        self,
        database: Database,
        identifiers: IdentifierSource,
        clock: Clock,
        conclusion: Conclusion | None = None,
    ) -> None:
        self._database = database
        self._identifiers = identifiers
        self._clock = clock
        self._conclusion = conclusion

    def begin(self, entry: JournalEntry) -> None:
        """Start an entry. From now on, recovery finds everything that a crash may leave behind."""
        self._database.write(lambda connection: self._insert(connection, entry, STAGING))

    def prepare(self, entry: JournalEntry) -> None:
        """Record the planned moves. From now on, files may be moved."""
        text = _encoded(entry.journal)
        event = self._event(EventType.APPLY_STARTED, entry)

        def unit(connection: Connection) -> None:
            connection.execute(_PREPARE, {"apply_id": entry.id, "text": text})
            append_to_outbox(connection, event)

        self._database.write(unit)

    def announce(self, entry: JournalEntry, fence: Fence | None) -> None:
        """Start and prepare an entry in one step, for a push, which touches no local file. Raises
        `StaleFence`.
        """
        event = self._event(EventType.APPLY_STARTED, entry)

        def unit(connection: Connection) -> None:
            ensure_owned(connection, fence)  # guard: a worker that lost the job must not push
            self._insert(connection, entry, PREPARED)
            append_to_outbox(connection, event)

        self._database.write(unit)

    def end(
        self, entry: JournalEntry, *, done: bool, left_alone: Sequence[str] = (), fence: Fence | None = None
    ) -> bool:
        """End the entry as done or undone; return False if it had already ended. Raises `StaleFence`."""
        facts: dict[str, JsonValue] = {"done": done, "left_alone": [_shown(path) for path in left_alone]}
        event = self._event(EventType.APPLY_ENDED, entry, facts)
        values = {"apply_id": entry.id, "ended": DONE if done else UNDONE}

        def unit(connection: Connection) -> bool:
            ensure_owned(connection, fence)
            if connection.execute(_END, values).rowcount == 0:  # guard: an entry ends once
                return False
            if entry.state != STAGING:
                append_to_outbox(connection, event)
            if self._conclusion is not None:
                self._conclusion(connection, entry, done)
            return True

        return self._database.write(unit)

    def close(self, entry: JournalEntry) -> None:
        """Close the entry, after its temporary files were removed from the resource."""
        values = {"apply_id": entry.id, "moment": self._moment()}
        self._database.write(lambda connection: connection.execute(_CLOSE, values).rowcount)

    def record_empty(self, entry: JournalEntry, fence: Fence | None = None) -> None:
        """Record an apply without changes. Raises `StaleFence`."""
        events = [
            self._event(EventType.APPLY_STARTED, entry),
            self._event(EventType.APPLY_ENDED, entry, {"done": True, "left_alone": []}),
        ]

        def unit(connection: Connection) -> None:
            ensure_owned(connection, fence)
            self._insert(connection, entry, DONE, self._moment())
            append_many_to_outbox(connection, events)
            if self._conclusion is not None:
                self._conclusion(connection, entry, True)

        self._database.write(unit)

    def open_entries(self, *, remote: bool | None = None) -> list[JournalEntry]:
        """Return the open entries, including those of living processes. With `remote`, return only those of
        remotes (True) or directories (False).
        """
        found = self._entries(_OPEN, {})
        return [one for one in found if remote is None or remote == (remote_of(one.resource) is not None)]

    def since_last_done(self, plan_id: str) -> list[JournalEntry]:
        """Return the plan's entries after its last completed apply or undo, newest first."""
        found = self._entries(_OF_PLAN, {"plan_id": plan_id})
        return list(takewhile(lambda entry: entry.state != DONE, found))

    def get(self, apply_id: str) -> JournalEntry | None:
        found = self._entries(_ONE, {"apply_id": apply_id})
        return found[0] if found else None

    def last_of_plan(self, plan_id: str) -> JournalEntry | None:
        """Return the plan's last completed apply or undo."""
        found = self._entries(_DONE_OF_PLAN, {"plan_id": plan_id})
        return found[0] if found else None

    def latest(self, resource: str, count: int) -> list[JournalEntry]:
        """Return the last completed entries of the resource, newest first."""
        return self._entries(_DONE_OF_RESOURCE, {"resource": resource, "count": count})

    def _entries(self, query: Any, parameters: Mapping[str, object]) -> list[JournalEntry]:
        with self._database.read() as connection:
            return [_entry_of(row) for row in connection.execute(query, parameters).mappings()]

    def _insert(
        self, connection: Connection, entry: JournalEntry, state: str, ended_at: int | None = None
    ) -> None:
        row = {
            "id": entry.id,
            "plan_id": entry.plan_id,
            "resource": entry.resource,
            "kind": entry.kind,
            "state": state,
            "journal": _encoded(entry.journal),
            "started_at": self._moment(),
            "ended_at": ended_at,
        }
        connection.execute(_INSERT, row)

    def _moment(self) -> int:
        return microseconds(self._clock.now())

    def _event(
        self, kind: EventType, entry: JournalEntry, facts: Mapping[str, JsonValue] | None = None
    ) -> DomainEvent:
        commit = entry.journal.commit
        payload: dict[str, JsonValue] = {
            "apply_id": entry.id,
            "kind": entry.kind,
            "files": len(entry.journal.files),
            "commit": commit.new if commit else None,
            "branch": branch_of(commit.ref) if commit else None,
            **(facts or {}),
        }
        return DomainEvent(kind, entry.plan_id, self._identifiers.new(), self._clock.now(), payload)


def _shown(path: str) -> str:
    """Return the path as text: a file name may be invalid Unicode."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _encoded(journal: Journal) -> str:
    # By hand, because `asdict` copies every value of a thousand files; ASCII, because a file's name may be
    # invalid Unicode.
    facts: dict[str, object] = {
        "staging": journal.staging,
        "scratch": journal.scratch,
        "base": journal.base,
        "ours": journal.ours,
        "merged": journal.merged,
        "files": [
            (file.path, _pair(file.before), _pair(file.after), file.was, file.becomes)
            for file in journal.files
        ],
        "made": journal.made,
        "emptied": _folder_fields(journal.emptied),
        "commit": asdict(journal.commit) if journal.commit else None,
    }
    if journal.permissions:
        facts["permissions"] = _folder_fields(journal.permissions)
    if journal.metadata:
        facts["metadata"] = {path: _metadata_fields(one) for path, one in journal.metadata.items()}
    if journal.home:
        facts["home"] = journal.home
    if journal.submodules:
        facts["submodules"] = dict(journal.submodules)
    if journal.renames:
        facts["renames"] = [(rename.old, rename.new) for rename in journal.renames]
    return json.dumps(facts, separators=(",", ":"))


def _pair(state: FileState | None) -> tuple[int, str] | None:
    return (state.mode, state.content) if state else None


def _entry_of(row: RowMapping) -> JournalEntry:
    return JournalEntry(
        row["id"], row["plan_id"], row["resource"], row["kind"], row["state"], _journal_of(row["journal"])
    )


def _journal_of(text: str) -> Journal:
    facts = json.loads(text)
    files = tuple(
        MovedFile(path, _state(before), _state(after), was, becomes)
        for path, before, after, was, becomes in facts.pop("files")
    )
    commit = facts.pop("commit")
    return Journal(
        **facts
        | {
            "files": files,
            "made": tuple(facts["made"]),
            "emptied": _folders(facts["emptied"]),
            "permissions": _folders(facts.get("permissions", {})),
            "commit": CommitFacts(**commit) if commit else None,
            "metadata": {path: _metadata(fields) for path, fields in facts.get("metadata", {}).items()},
            "renames": tuple(Rename(old, new) for old, new in facts.get("renames", ())),
        }
    )


def _metadata_fields(metadata: Metadata) -> list[object]:
    attributes = {name: b64encode(value).decode("ascii") for name, value in metadata.attributes}
    return [metadata.mode, metadata.uid, metadata.gid, attributes]


def _metadata(fields: tuple[int, int, int, Mapping[str, str]]) -> Metadata:
    mode, uid, gid, attributes = fields
    return Metadata(mode, uid, gid, tuple((name, b64decode(value)) for name, value in attributes.items()))


def _folder_fields(folders: Mapping[str, Metadata | int]) -> dict[str, object]:
    return {path: one if isinstance(one, int) else _metadata_fields(one) for path, one in folders.items()}


def _folders(fields: Mapping[str, Any]) -> dict[str, Metadata | int]:
    return {path: one if isinstance(one, int) else _metadata(one) for path, one in fields.items()}


def _state(pair: tuple[int, str] | None) -> FileState | None:
    return FileState(*pair) if pair else None
