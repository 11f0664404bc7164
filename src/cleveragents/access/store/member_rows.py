"""Members of projects as rows, for stores that change them in a transaction of their own."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select
from sqlalchemy.sql.dml import Insert

from cleveragents.access.model.project import DEFAULT_PROJECT
from cleveragents.access.model.user import Role
from cleveragents.changes.store.rows import is_storable
from cleveragents.core.errors import UnknownProject
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.service_tables import members, projects

__all__ = ["hold_project", "put_member", "roles_of"]

_KEYS = ["project", "user_id"]


def hold_project(connection: Connection, name: str, *, alone: bool = False) -> None:
    """Keep the project from being removed until the transaction is over. `UnknownProject`.

    `alone` waits for all others that hold it: for removing it, and for names that must be unique in it.
    """
    if name == DEFAULT_PROJECT and not alone:
        return  # it is never removed
    row = None
    if is_storable(name):
        query = select(projects.c.name).where(projects.c.name == name).with_for_update(read=not alone)
        row = connection.execute(query).first()
    if row is None:  # guard: nothing is added to what was removed
        raise UnknownProject(name)


def put_member(connection: Connection, project: str, user_id: str, role: Role) -> None:
    """Give the user that role in the project, whatever it was."""
    inserted = _insert(connection.dialect.name)
    connection.execute(inserted, {"project": project, "user_id": user_id, "role": role.value})


def roles_of(connection: Connection, user_ids: Collection[str]) -> dict[str, dict[str, Role]]:
    """Return the role of each of the users in each of their projects."""
    found: dict[str, dict[str, Role]] = {user_id: {} for user_id in user_ids}
    for row in connection.execute(select(members).where(members.c.user_id.in_(user_ids))):
        found[row.user_id][row.project] = Role(row.role)
    return found


def _insert(dialect: str) -> Insert:
    row = insert_into(members, dialect)
    return row.on_conflict_do_update(index_elements=_KEYS, set_={"role": row.excluded.role})
