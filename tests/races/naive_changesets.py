"""Naive contexts that the same tests must catch: "the latest" as an address, with and without locks.

Each is the reported class, reduced to its race; `record_change` also returns the store's record, so that a
test can see where the entry went.
"""

from __future__ import annotations

import threading

from cleveragents.changes.execution_context import ChangesetStore
from cleveragents.core.change import ChangeEntry, Changeset, RecordedChange
from cleveragents.core.errors import NoActiveChangeset

__all__ = ["LockOnlyContext", "NaiveChangesetStore", "NaiveContext", "OneBigLockContext"]


class NaiveContext:
    """The predecessor: a plain list, no lock."""

    def __init__(self, plan_id: str, changeset_store: ChangesetStore) -> None:
        self._plan_id = plan_id
        self._changeset_store = changeset_store
        self._active_changeset_ids: list[str] = []

    def start_changeset(self) -> str:
        changeset_id = self._changeset_store.start(self._plan_id)
        self._active_changeset_ids.append(changeset_id)
        return changeset_id

    def record_change(self, entry: ChangeEntry) -> RecordedChange:
        if not self._active_changeset_ids:
            raise NoActiveChangeset(self._plan_id)
        changeset_id = self._active_changeset_ids[-1]
        return self._changeset_store.record(changeset_id, entry)


class LockOnlyContext:
    """The suggested fix: a lock around the append, and around the guard with `[-1]`."""

    def __init__(self, plan_id: str, changeset_store: ChangesetStore) -> None:
        self._plan_id = plan_id
        self._changeset_store = changeset_store
        self._active_changeset_ids: list[str] = []
        self._changeset_lock = threading.Lock()

    def start_changeset(self) -> str:
        changeset_id = self._changeset_store.start(self._plan_id)
        with self._changeset_lock:
            self._active_changeset_ids.append(changeset_id)
        return changeset_id

    def record_change(self, entry: ChangeEntry) -> RecordedChange:
        with self._changeset_lock:
            if not self._active_changeset_ids:
                raise NoActiveChangeset(self._plan_id)
            changeset_id = self._active_changeset_ids[-1]
        return self._changeset_store.record(changeset_id, entry)


class OneBigLockContext:
    """One lock around everything, including the store; the latest changeset is still used as an address."""

    def __init__(self, plan_id: str, changeset_store: ChangesetStore) -> None:
        self._plan_id = plan_id
        self._changeset_store = changeset_store
        self._active_changeset_ids: list[str] = []
        self._changeset_lock = threading.Lock()

    def start_changeset(self) -> str:
        with self._changeset_lock:
            changeset_id = self._changeset_store.start(self._plan_id)
            self._active_changeset_ids.append(changeset_id)
            return changeset_id

    def record_change(self, entry: ChangeEntry) -> RecordedChange:
        with self._changeset_lock:
            if not self._active_changeset_ids:
                raise NoActiveChangeset(self._plan_id)
            return self._changeset_store.record(self._active_changeset_ids[-1], entry)


class NaiveChangesetStore:
    """A store that looks, counts and appends in three steps."""

    def __init__(self) -> None:
        self._changesets: dict[str, Changeset] = {}
        self._entries: dict[str, list[RecordedChange]] = {}

    def start(self, plan_id: str) -> str:
        changeset_id = f"changeset-{len(self._changesets) + 1}"
        self._changesets[changeset_id] = Changeset(changeset_id, plan_id)
        self._entries[changeset_id] = []
        return changeset_id

    def record(self, changeset_id: str, entry: ChangeEntry, *, key: str | None = None) -> RecordedChange:
        for earlier in self._entries[changeset_id]:
            if key is not None and earlier.key == key:
                return earlier.repeated(entry)
        longer, recorded = self._changesets[changeset_id].appended(entry, key)
        self._entries[changeset_id].append(recorded)
        self._changesets[changeset_id] = longer
        return recorded

    def close(self, changeset_id: str) -> Changeset:
        self._changesets[changeset_id] = self._changesets[changeset_id].sealed()
        return self._changesets[changeset_id]

    def get(self, changeset_id: str) -> Changeset:
        return self._changesets[changeset_id]

    def entries(self, changeset_id: str) -> tuple[RecordedChange, ...]:
        return tuple(self._entries[changeset_id])

    def of_plan(self, plan_id: str) -> tuple[Changeset, ...]:
        return tuple(c for c in self._changesets.values() if c.plan_id == plan_id)
