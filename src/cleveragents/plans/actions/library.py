"""All available actions: built-in ones, the user's, and the repository's.

If two actions have the same name, the first in this order is used, so a repository cannot replace a built-in
action or one of the user's. Untrusted actions of the repository are listed, but `get` refuses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from msgspec.structs import replace as changed
from sqlalchemy import Connection, Row, bindparam, delete, select

from cleveragents.access.trust.repository_files import ACTIONS_DIRECTORY, action_paths
from cleveragents.access.trust.sql_trust_store import SqlTrustStore
from cleveragents.core.actions.model import BUILTIN_NAMESPACE, Action
from cleveragents.core.clock import Clock, SystemClock
from cleveragents.core.errors import (
    ActionExists,
    ConfigurationError,
    InvalidAction,
    NotTrusted,
    UnknownAction,
)
from cleveragents.plans.actions.builtins import builtin_action, builtin_actions
from cleveragents.plans.actions.loader import load_action
from cleveragents.plans.ports.plans import ActionListing, ActionOrigin, StoredAction
from cleveragents.storage.columns import ensure_storable, is_storable, microseconds, moment
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.tables import actions

__all__ = ["ActionLibrary", "SqlActionStore"]


_BY_NAME = select(actions).where(actions.c.name == bindparam("wanted"))
_ALL = select(actions).order_by(actions.c.name)
_REMOVE = delete(actions).where(actions.c.name == bindparam("wanted")).returning(actions.c.name)
_CHANGED = ("document", "created_at")


class ActionLibrary:
    """The actions known in one repository, or in none. Stateless: any thread may share it. `tools` are the
    names of the existing tools; without them, tool names are not checked.
    """

    def __init__(
        self,
        database: Database,
        resource_root: Path | None,
        trust: SqlTrustStore,
        *,
        tools: Collection[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = SqlActionStore(database, clock)
        self._root = resource_root
        self._trust = trust
        self._tools = tools

    def get(self, name: str) -> Action:
        """Return an action. Raises `UnknownAction` with the closest name, `NotTrusted`, or `InvalidAction` if
        its file is broken.
        """
        shipped = builtin_action(name)
        if shipped is not None:
            return shipped
        stored = self._store.get(name)
        if stored is not None:
            return load_action(stored.document, f"action {name}", tools=self._tools)
        for listing in self._of_repository():
            if listing.name == name:
                return self._given_out(listing)
        near = get_close_matches(name, [listing.name for listing in self.list()], n=1)
        raise UnknownAction(name, near[0] if near else None)

    def list(self) -> Sequence[ActionListing]:
        """Return all actions in order of precedence. Invalid actions have a `problem`."""
        found = [
            ActionListing(action.name, ActionOrigin.BUILTIN, "shipped", True, action)
            for action in builtin_actions()
        ]
        found += [self._of_user(stored) for stored in self._store.list()]
        names = {listing.name for listing in found}
        for listing in self._of_repository():
            hidden = listing.name in names
            why = f"hidden by another action named {listing.name}"
            found.append(changed(listing, problem=listing.problem or why) if hidden else listing)
            names.add(listing.name)
        return found

    def create(self, text: str | bytes, source: str, *, replace: bool = False) -> Action:
        """Store an action of the user. Raises `InvalidAction` with every mistake; `ActionExists` unless
        `replace` is set.
        """
        action = load_action(text, source, tools=self._tools)
        _ensure_own_namespace(action, source)
        self._store.put(action.name, action.document, replace=replace)
        return action

    def delete(self, name: str) -> None:
        """Delete an action of the user. Raises `UnknownAction`; `ConfigurationError` for other actions."""
        if self._store.delete(name):
            return
        found = next((listing for listing in self.list() if listing.name == name), None)
        if found is None:
            near = get_close_matches(name, [stored.name for stored in self._store.list()], n=1)
            raise UnknownAction(name, near[0] if near else None)
        if found.origin is ActionOrigin.BUILTIN:
            raise ConfigurationError(f"action {name}", "is built in and cannot be deleted")
        raise ConfigurationError(f"action {name}", f"is part of the repository; delete {found.source}")

    def _of_user(self, stored: StoredAction) -> ActionListing:
        try:
            action = load_action(stored.document, f"action {stored.name}", tools=self._tools)
        except InvalidAction as error:
            problem = "; ".join(error.problems)
            return ActionListing(stored.name, ActionOrigin.USER, "yours", True, problem=problem)
        return ActionListing(stored.name, ActionOrigin.USER, "yours", True, action)

    def _of_repository(self) -> Iterator[ActionListing]:
        if self._root is None:
            return
        for path in action_paths(self._root):
            yield self._brought(self._root, path)

    def _brought(self, root: Path, path: str) -> ActionListing:
        # Before the file is read, only its path names the action.
        stem = path.removeprefix(ACTIONS_DIRECTORY + "/").removesuffix(".yaml")
        listing = ActionListing(stem, ActionOrigin.REPOSITORY, path, False)
        try:
            file = self._trust.look(root, path)
        except ConfigurationError as error:
            return changed(listing, problem=error.problem)
        if file is None:
            return changed(listing, problem="the file no longer exists")
        listing = changed(listing, trusted=file.trusted)
        try:
            # Load the bytes that were checked for trust, not the file again.
            action = load_action(file.content, path, tools=self._tools)
            _ensure_own_namespace(action, path)
        except InvalidAction as error:
            return changed(listing, problem="; ".join(error.problems))
        return changed(listing, name=action.name, action=action)

    def _given_out(self, listing: ActionListing) -> Action:
        if not listing.trusted:  # guard: untrusted repository files run nothing
            raise NotTrusted(f"action {listing.name} ({listing.source})", str(self._root))
        if listing.action is None:
            raise InvalidAction(listing.source, (str(listing.problem),))
        return listing.action


def _ensure_own_namespace(action: Action, source: str) -> None:
    if action.namespace == BUILTIN_NAMESPACE:  # guard: built-in names mean the same everywhere
        problem = f"the namespace {BUILTIN_NAMESPACE!r} is reserved; choose another"
        raise InvalidAction(source, (problem,))


class SqlActionStore:
    """The user's actions, by name. Every method is atomic across threads and processes. Stateless, so any
    thread may share it.
    """

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def put(self, name: str, document: str, *, replace: bool = False) -> None:
        """Store the action. Raises `ActionExists` unless `replace` is set."""
        ensure_storable(f"action {name!r}", {"name": name, "document": document})
        row = {"name": name, "document": document, "created_at": microseconds(self._clock.now())}
        insert = insert_into(actions, self._database.dialect)
        changed = {column: insert.excluded[column] for column in _CHANGED}
        quietly = (
            insert.on_conflict_do_update(index_elements=["name"], set_=changed)
            if replace
            else insert.on_conflict_do_nothing()
        )
        keep = quietly.returning(actions.c.name)

        def unit(connection: Connection) -> bool:
            return connection.execute(keep, row).first() is not None

        if not self._database.write(unit):  # guard: one of two concurrent calls fails
            raise ActionExists(name)

    def get(self, name: str) -> StoredAction | None:
        if not is_storable(name):
            return None
        with self._database.read() as connection:
            row = connection.execute(_BY_NAME, {"wanted": name}).first()
        return None if row is None else _stored(row)

    def list(self) -> Sequence[StoredAction]:
        """Return all actions, by name."""
        with self._database.read() as connection:
            rows = connection.execute(_ALL).all()
        return [_stored(row) for row in rows]

    def delete(self, name: str) -> bool:
        """Delete the action and return whether it existed."""
        if not is_storable(name):
            return False

        def unit(connection: Connection) -> bool:
            return connection.execute(_REMOVE, {"wanted": name}).first() is not None

        return self._database.write(unit)


def _stored(row: Row[tuple[str, str, int]]) -> StoredAction:
    return StoredAction(row.name, row.document, moment(row.created_at))
