"""Changesets in memory: passes the contract of the durable store, but does not outlive the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cleveragents.core.change import ChangeEntry, Changeset, RecordedChange, keys_of_batch
from cleveragents.core.errors import UnknownChangeset
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.testing.clock import CountingIdentifiers

__all__ = ["InMemoryChangesetStore"]


@dataclass(frozen=True, slots=True)
class _Held:
    """A changeset and its entries, replaced together: a reader sees a consistent pair without a lock."""

    changeset: Changeset
    entries: tuple[RecordedChange, ...] = ()

    def with_entry(self, entry: ChangeEntry, key: str | None) -> tuple[_Held, RecordedChange]:
        """Return the state after the entry is recorded, and its record."""
        if key is not None:
            for earlier in self.entries:
                if earlier.key == key:  # guard: a retry appends nothing
                    return self, earlier.repeated(entry)
        longer, recorded = self.changeset.appended(entry, key)
        return _Held(longer, (*self.entries, recorded)), recorded


class InMemoryChangesetStore:
    """A `ChangesetStore` for tests and temporary plans.

    Thread safety:
        Owner: the code that made it; any thread may share it.
        Lock: `_lock` guards every change of `_held`, for arithmetic only; single look-ups need none.
        Guarantee: an entry gets the next number of the changeset it names, or the call raises; a closed
            changeset never changes again.
    Cancel safety: no call waits; an interrupted call has taken effect completely or not at all.
    """

    def __init__(self, identifiers: IdentifierSource | None = None) -> None:
        self._identifiers = identifiers or CountingIdentifiers("changeset")
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def start(self, plan_id: str) -> str:
        changeset = Changeset(self._identifiers.new(), plan_id)
        with self._lock:
            self._held[changeset.id] = _Held(changeset)
        return changeset.id

    def record(self, changeset_id: str, entry: ChangeEntry, *, key: str | None = None) -> RecordedChange:
        with self._lock:
            self._held[changeset_id], recorded = self._get(changeset_id).with_entry(entry, key)
        return recorded

    def record_all(
        self, changeset_id: str, entries: Sequence[ChangeEntry], *, key: str | None = None
    ) -> Sequence[RecordedChange]:
        recorded: list[RecordedChange] = []
        with self._lock:
            held = self._get(changeset_id)
            for entry, entry_key in zip(entries, keys_of_batch(key, len(entries)), strict=True):
                held, change = held.with_entry(entry, entry_key)
                recorded.append(change)
            self._held[changeset_id] = held
        return recorded

    def close(self, changeset_id: str) -> Changeset:
        with self._lock:
            held = self._get(changeset_id)
            sealed = held.changeset.sealed()
            self._held[changeset_id] = _Held(sealed, held.entries)
        return sealed

    def get(self, changeset_id: str) -> Changeset:
        return self._get(changeset_id).changeset

    def entries(self, changeset_id: str) -> Sequence[RecordedChange]:
        return self._get(changeset_id).entries

    def of_plan(self, plan_id: str, *, after: str | None = None) -> Sequence[Changeset]:
        with self._lock:
            ids = list(self._held)
            begun = 0 if after is None else ids.index(self._get(after).changeset.id) + 1
            found = [self._held[changeset_id].changeset for changeset_id in ids[begun:]]
        return tuple(changeset for changeset in found if changeset.plan_id == plan_id)

    def _get(self, changeset_id: str) -> _Held:
        try:
            return self._held[changeset_id]
        except KeyError:
            raise UnknownChangeset(changeset_id) from None
