"""Contents of changed files in the database, for plans that another machine may have to go on with.

A sandbox keeps the contents of what its plan changed, and goes with its machine. For a plan on a remote each
is in the database, too, before the record that names it is: whoever has the records has the files.

Every tree of plans has its own, though another may have the same: so they go with their plan, and nobody who
has kept one, and is about to record it, can lose it because somebody else's plan is forgotten.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, func, or_, select

from cleveragents.changes.execution_context import ChangesetStore
from cleveragents.core.change import GITLINK, ChangeEntry, Changeset, RecordedChange
from cleveragents.core.errors import UnknownPlan
from cleveragents.plans.model.plan import PlanState
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.rows import READY
from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.service_tables import contents
from cleveragents.storage.tables import plans, sandboxes

__all__ = ["ContentKeepingStore", "ContentLocation", "SqlContents", "ensure_kept"]

_PORTION = 100
_LEVEL = 1
_STATE = select(plans.c.state)
_HOMES = (
    select(sandboxes.c.home).join(plans, plans.c.id == sandboxes.c.plan_id).where(sandboxes.c.state == READY)
)


@dataclass(frozen=True, slots=True)
class SqlContents:
    """Contents of trees of plans, by the names that git has for them. Stateless but for the database."""

    database: Database

    def lacking(self, root_id: str, names: Collection[str]) -> set[str]:
        """Those of the names that are not kept for the tree."""
        wanted = set(names)
        for portion in _portions(sorted(wanted)):
            query = select(contents.c.digest).where(*_of(root_id, portion))
            with self.database.read() as connection:
                wanted -= set(connection.execute(query).scalars())
        return wanted

    def keep(self, root_id: str, found: Mapping[str, bytes]) -> None:
        """Keeps them; what is kept already stays. `UnknownPlan` once the tree was deleted."""
        rows = [
            {"root_id": root_id, "digest": name, "content": zlib.compress(data, _LEVEL)}
            for name, data in sorted(found.items())
        ]

        def unit(connection: Connection) -> None:
            ensure_kept(connection, root_id)  # guard: nobody would ever take them away
            _insert(connection, rows)

        if rows:
            self.database.write(unit)

    def trees(self) -> list[str]:
        """Whose contents are kept, by the plan at the top."""
        with self.database.read() as connection:
            return list(connection.execute(select(contents.c.root_id).distinct()).scalars())

    def homes_since(self, moment: datetime) -> tuple[set[str], set[str]]:
        """State directories with a sandbox, and those of them that made one since then."""
        latest = select(sandboxes.c.home, func.max(sandboxes.c.created_at)).group_by(sandboxes.c.home)
        with self.database.read() as connection:
            found = [(home, at) for home, at in connection.execute(latest) if home is not None]
        return {home for home, _ in found}, {home for home, at in found if at > microseconds(moment)}

    def forget(self, root_id: str, *, lost: Collection[str] = (), dry_run: bool = False) -> int:
        """Of a tree that has ended, and none of whose sandboxes is left anywhere but in the `lost` state
        directories, which are gone with them, or off; says how many that are. Whoever can still look at it,
        or undo it, has one of them."""
        of_tree = contents.c.root_id == root_id
        counted = select(func.count()).select_from(contents).where(of_tree)

        def unit(connection: Connection) -> int:
            state = connection.execute(_STATE.where(plans.c.id == root_id)).scalar()
            needed = state is not None and not PlanState(state).ended
            homes = set(connection.execute(_HOMES.where(_in_tree(root_id))).scalars())
            if needed or homes - set(lost):  # guard: an undo on another machine makes a sandbox of them
                return 0
            found: int = connection.execute(counted).scalar_one()
            if not dry_run:
                # Sandboxes stay known: one of a machine that was merely off for long can still undo its plan.
                connection.execute(delete(contents).where(of_tree))
            return found

        return self.database.write(unit)

    def read(self, root_id: str, names: Collection[str]) -> dict[str, bytes]:
        """Those that are kept for the tree."""
        found: dict[str, bytes] = {}
        for portion in _portions(sorted(set(names))):
            query = select(contents.c.digest, contents.c.content).where(*_of(root_id, portion))
            with self.database.read() as connection:
                found.update({row[0]: zlib.decompress(row[1]) for row in connection.execute(query)})
        return found


@dataclass(frozen=True, slots=True)
class ContentLocation:
    """Where the contents of a plan are that are to be kept, and for which tree."""

    sandbox: Sandbox
    root_id: str


@dataclass(frozen=True, slots=True)
class ContentKeepingStore:
    """`ChangesetStore` on another one that keeps contents first. `keeper_of` finds where a changeset's
    are; None for a plan whose contents are its machine's own matter."""

    inner: ChangesetStore
    contents: SqlContents
    keeper_of: Callable[[str], ContentLocation | None]

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
        keeper = self.keeper_of(changeset_id)
        if keeper is None:
            return
        named = {one.after_hash for one in entries if one.after_hash is not None and one.mode != GITLINK}
        # One at a time: a plan may change more than fits into memory.
        for name in sorted(self.contents.lacking(keeper.root_id, named)):
            found = {name: keeper.sandbox.content(name)}
            self.contents.keep(keeper.root_id, found)  # guard: before the record, not after


def ensure_kept(connection: Connection, root_id: str) -> None:
    """`UnknownPlan` once it was deleted. Whoever is about to delete it waits for the transaction, and so does
    whoever else comes here."""
    held = select(plans.c.number).where(plans.c.id == root_id).with_for_update()
    if connection.execute(held).first() is None:
        raise UnknownPlan(root_id)


def _in_tree(root_id: str) -> ColumnElement[bool]:
    return or_(plans.c.root_id == root_id, plans.c.id == root_id)


def _of(root_id: str, names: Sequence[str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return contents.c.root_id == root_id, contents.c.digest.in_(names)


def _insert(connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    # Somebody else may keep the same at this moment.
    connection.execute(insert_into(contents, connection.dialect.name).on_conflict_do_nothing(), rows)


def _portions(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + _PORTION] for start in range(0, len(names), _PORTION)]
