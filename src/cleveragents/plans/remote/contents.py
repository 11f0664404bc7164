"""Contents of changed files in the database, for plans that another machine may continue.

A sandbox holds the contents of its plan's changes and is lost with its machine. For a plan on a remote, each
content is also stored in the database before the record that names it, so that no record lacks its content.

Every tree of plans has its own copies, even of equal contents. So the deletion of a tree never removes
contents that another tree is about to record.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, delete, func, or_, select

from cleveragents.core.change import GITLINK, ChangeEntry, Changeset, RecordedChange
from cleveragents.core.errors import UnknownPlan
from cleveragents.plans.model.plan import PlanState
from cleveragents.sandboxes.rows import READY
from cleveragents.storage.columns import microseconds
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.service_tables import contents
from cleveragents.storage.tables import plans, sandboxes

if TYPE_CHECKING:
    from cleveragents.changes.execution_context import ChangesetStore
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.storage.database import Database

__all__ = ["ContentKeepingStore", "ContentLocation", "SqlContents", "ensure_kept"]

_PORTION = 100
_LEVEL = 1
_STATE = select(plans.c.state)
_HOMES = (
    select(sandboxes.c.home).join(plans, plans.c.id == sandboxes.c.plan_id).where(sandboxes.c.state == READY)
)


class SqlContents(Struct, frozen=True):
    """Contents of trees of plans, by their git object names. Its only state is the database."""

    database: Database

    def lacking(self, root_id: str, names: Collection[str]) -> set[str]:
        """Return the names that are not stored for the tree."""
        wanted = set(names)
        for portion in _portions(sorted(wanted)):
            query = select(contents.c.digest).where(*_of(root_id, portion))
            with self.database.read() as connection:
                wanted -= set(connection.execute(query).scalars())
        return wanted

    def keep(self, root_id: str, found: Mapping[str, bytes]) -> None:
        """Store the contents; existing ones stay. Raises `UnknownPlan` if the tree was deleted."""
        rows = [
            {"root_id": root_id, "digest": name, "content": zlib.compress(data, _LEVEL)}
            for name, data in sorted(found.items())
        ]

        def unit(connection: Connection) -> None:
            ensure_kept(connection, root_id)  # guard: otherwise nothing would ever delete them
            _insert(connection, rows)

        if rows:
            self.database.write(unit)

    def trees(self) -> list[str]:
        """Return the root plans with stored contents."""
        with self.database.read() as connection:
            return list(connection.execute(select(contents.c.root_id).distinct()).scalars())

    def homes_since(self, moment: datetime) -> tuple[set[str], set[str]]:
        """Return two sets: the state directories with a sandbox, and of these the ones that created a sandbox
        after `moment`.
        """
        latest = select(sandboxes.c.home, func.max(sandboxes.c.created_at)).group_by(sandboxes.c.home)
        with self.database.read() as connection:
            found = [(home, at) for home, at in connection.execute(latest) if home is not None]
        return {home for home, _ in found}, {home for home, at in found if at > microseconds(moment)}

    def forget(self, root_id: str, *, lost: Collection[str] = (), dry_run: bool = False) -> int:
        """Delete the contents of an ended tree, unless it still has a sandbox; return how many were deleted.
        Sandboxes in the `lost` state directories do not count. Without a sandbox the tree can no longer be
        viewed or undone, so its contents are not needed.
        """
        of_tree = contents.c.root_id == root_id
        counted = select(func.count()).select_from(contents).where(of_tree)

        def unit(connection: Connection) -> int:
            state = connection.execute(_STATE.where(plans.c.id == root_id)).scalar()
            needed = state is not None and not PlanState(state).ended
            homes = set(connection.execute(_HOMES.where(_in_tree(root_id))).scalars())
            if needed or homes - set(lost):  # guard: an undo on another machine builds a sandbox from them
                return 0
            found: int = connection.execute(counted).scalar_one()
            if not dry_run:
                # Sandboxes stay registered: a machine that was only switched off can still undo its plan.
                connection.execute(delete(contents).where(of_tree))
            return found

        return self.database.write(unit)

    def read(self, root_id: str, names: Collection[str]) -> dict[str, bytes]:
        """Return the contents that are stored for the tree."""
        found: dict[str, bytes] = {}
        for portion in _portions(sorted(set(names))):
            query = select(contents.c.digest, contents.c.content).where(*_of(root_id, portion))
            with self.database.read() as connection:
                found.update({row[0]: zlib.decompress(row[1]) for row in connection.execute(query)})
        return found


class ContentLocation(Struct, frozen=True):
    """The sandbox that holds the contents of a plan, and the root plan whose tree they are stored for."""

    sandbox: Sandbox
    root_id: str


class ContentKeepingStore(Struct, frozen=True):
    """`ChangesetStore` that stores contents before it records changes. `keeper_of` returns the location of a
    changeset's contents; None for a plan whose contents are not stored in the database.
    """

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
        # One at a time: the changes of a plan may exceed the memory.
        for name in sorted(self.contents.lacking(keeper.root_id, named)):
            found = {name: keeper.sandbox.content(name)}
            self.contents.keep(keeper.root_id, found)  # guard: before the record, not after


def ensure_kept(connection: Connection, root_id: str) -> None:
    """Raise `UnknownPlan` if the plan was deleted; otherwise lock it. A concurrent deletion, and other
    callers of this function, wait until the transaction ends.
    """
    held = select(plans.c.number).where(plans.c.id == root_id).with_for_update()
    if connection.execute(held).first() is None:
        raise UnknownPlan(root_id)


def _in_tree(root_id: str) -> ColumnElement[bool]:
    return or_(plans.c.root_id == root_id, plans.c.id == root_id)


def _of(root_id: str, names: Sequence[str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return contents.c.root_id == root_id, contents.c.digest.in_(names)


def _insert(connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    # Another process may store the same content at this moment.
    connection.execute(insert_into(contents, connection.dialect.name).on_conflict_do_nothing(), rows)


def _portions(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + _PORTION] for start in range(0, len(names), _PORTION)]
