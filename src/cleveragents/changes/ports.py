"""Where changesets are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cleveragents.core.change import ChangeEntry, Changeset, RecordedChange

__all__ = ["ChangesetStore"]


class ChangesetStore(Protocol):
    """Changesets and their entries. Every method may be called from any thread.

    Started means kept: when `start` returns, the changeset survives a kill -9. Recorded means kept, too.
    The handle is the identity: an entry lands in the changeset it names, or the call raises.
    """

    def start(self, plan_id: str) -> str:
        """A new open changeset of the plan; returns its id."""
        ...

    def record(self, changeset_id: str, entry: ChangeEntry, *, key: str | None = None) -> RecordedChange:
        """Appends the entry with the next sequence number (gapless, from 1).

        A repeated `key` returns what it recorded the first time and appends nothing; with another
        entry it raises `DuplicateKey`. `ChangesetClosed`, `UnknownChangeset`.
        """
        ...

    def record_all(
        self, changeset_id: str, entries: Sequence[ChangeEntry], *, key: str | None = None
    ) -> Sequence[RecordedChange]:
        """Appends the entries in order, all of them or none, in one step: what one command changed.

        With a `key`, entry n is kept under `key#n`, so that a repeated call records nothing twice.
        Raises what `record` raises.
        """
        ...

    def close(self, changeset_id: str) -> Changeset:
        """Seals the changeset; closing twice is harmless. `UnknownChangeset`."""
        ...

    def get(self, changeset_id: str) -> Changeset:
        """The changeset as it stands. `UnknownChangeset`."""
        ...

    def entries(self, changeset_id: str) -> Sequence[RecordedChange]:
        """What was recorded, in order. `UnknownChangeset`."""
        ...

    def of_plan(self, plan_id: str, *, after: str | None = None) -> Sequence[Changeset]:
        """All changesets of a plan, oldest first, or those begun after that one; empty if there are none.

        What the latter costs does not depend on how many were begun before. `UnknownChangeset`.
        """
        ...
