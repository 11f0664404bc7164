"""Contents of changed files in the database, for plans that another machine may have to go on with.

A sandbox keeps the contents of what its plan changed, and goes with its machine. For a plan on a remote each
is in the database, too, before the record that names it is: whoever has the records has the files.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from cleveragents.application.ports.changesets import ChangesetStore
from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.domain.change import ChangeEntry, Changeset, RecordedChange
from cleveragents.domain.file_state import GITLINK
from cleveragents.infrastructure.persistence.database import Database
from cleveragents.infrastructure.persistence.service_tables import contents

__all__ = ["KeepingChangesets", "SqlContents"]

_PORTION = 100
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class SqlContents:
    """Contents by the names that git has for them. Stateless but for the database."""

    database: Database

    def lacking(self, names: Collection[str]) -> set[str]:
        """Those of the names that are not kept."""
        wanted = set(names)
        for portion in _portions(sorted(wanted)):
            query = select(contents.c.digest).where(contents.c.digest.in_(portion))
            with self.database.read() as connection:
                wanted -= set(connection.execute(query).scalars())
        return wanted

    def keep(self, found: Mapping[str, bytes]) -> None:
        """Keeps them; what is kept already stays."""
        rows = [
            {"digest": name, "content": zlib.compress(data, _LEVEL)} for name, data in sorted(found.items())
        ]
        if rows:
            self.database.write(lambda connection: _insert(connection, rows))

    def read(self, names: Collection[str]) -> dict[str, bytes]:
        """Those that are kept."""
        found: dict[str, bytes] = {}
        for portion in _portions(sorted(set(names))):
            query = select(contents.c.digest, contents.c.content).where(contents.c.digest.in_(portion))
            with self.database.read() as connection:
                found.update({row[0]: zlib.decompress(row[1]) for row in connection.execute(query)})
        return found


@dataclass(frozen=True, slots=True)
class KeepingChangesets:
    """`ChangesetStore` on another one that keeps contents first. `sandbox_of` finds where a changeset's
    are; None for a plan whose contents are its machine's own matter."""

    inner: ChangesetStore
    contents: SqlContents
    sandbox_of: Callable[[str], Sandbox | None]

    def start(self, plan_id: str) -> str:
        return self.inner.start(plan_id)

    def record(self, changeset_id: str, entry: ChangeEntry, *, key: str | None = None) -> RecordedChange:
        self._keep(changeset_id, [entry])
        return self.inner.record(changeset_id, entry, key=key)

    def record_all(
        self, changeset_id: str, entries: Sequence[ChangeEntry], *, key: str | None = None
    ) -> Sequence[RecordedChange]:
        self._keep(changeset_id, entries)
        return self.inner.record_all(changeset_id, entries, key=key)

    def close(self, changeset_id: str) -> Changeset:
        return self.inner.close(changeset_id)

    def get(self, changeset_id: str) -> Changeset:
        return self.inner.get(changeset_id)

    def entries(self, changeset_id: str) -> Sequence[RecordedChange]:
        return self.inner.entries(changeset_id)

    def of_plan(self, plan_id: str, *, after: str | None = None) -> Sequence[Changeset]:
        return self.inner.of_plan(plan_id, after=after)

    def _keep(self, changeset_id: str, entries: Sequence[ChangeEntry]) -> None:
        sandbox = self.sandbox_of(changeset_id)
        if sandbox is None:
            return
        named = {one.after_hash for one in entries if one.after_hash is not None and one.mode != GITLINK}
        # One at a time: a plan may change more than fits into memory.
        for name in sorted(self.contents.lacking(named)):
            self.contents.keep({name: sandbox.content(name)})  # guard: before the record, not after


def _insert(connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    # Somebody else may keep the same at this moment.
    if connection.dialect.name == "sqlite":
        connection.execute(sqlite.insert(contents).on_conflict_do_nothing(), rows)
    else:
        connection.execute(postgresql.insert(contents).on_conflict_do_nothing(), rows)


def _portions(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + _PORTION] for start in range(0, len(names), _PORTION)]
