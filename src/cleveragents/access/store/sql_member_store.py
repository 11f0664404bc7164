"""Members of projects and their roles on a database.

Members of projects as rows, for stores that change them in a transaction of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, select
from sqlalchemy.sql.dml import Insert

from cleveragents.access.model.project import DEFAULT_PROJECT, Member
from cleveragents.access.model.user import Role
from cleveragents.core.errors import UnknownProject, UnknownUser
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.storage.columns import is_storable
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.service_tables import members, projects, users

__all__ = ["SqlMemberStore", "hold_project", "put_member", "roles_of"]


_KEYS = ["project", "user_id"]


class SqlMemberStore:
    """The members of each project. Every method is one transaction, with its event in the outbox.

    Stateless but for the database, so any thread may share it.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def list(self, project: str) -> Sequence[Member]:
        """Return the members by name. `UnknownProject`."""
        found = (
            select(users.c.name, members.c.role)
            .join(users, users.c.id == members.c.user_id)
            .where(members.c.project == project)
            .order_by(users.c.name)
        )
        with self._database.read() as connection:
            known = select(projects.c.name).where(projects.c.name == project)
            if not is_storable(project) or connection.execute(known).first() is None:
                raise UnknownProject(project)
            return [Member(row.name, Role(row.role)) for row in connection.execute(found)]

    def set(self, project: str, name: str, role: Role, *, now: datetime) -> Member:
        """Add a user to the project, or change their role in it, from the next request on.
        `UnknownProject`, `UnknownUser`."""
        event = DomainEvent(
            EventType.MEMBER_SET, project, self._identifiers.new(), now, {"name": name, "role": role.value}
        )

        def unit(connection: Connection) -> None:
            hold_project(connection, project)
            put_member(connection, project, _user_id(connection, name), role)
            append_to_outbox(connection, event)

        self._database.write(unit)
        return Member(name, role)

    def remove(self, project: str, name: str, *, now: datetime) -> None:
        """Remove a user from the project, from the next request on. `UnknownProject`; `UnknownUser` if they
        are no member."""
        event = DomainEvent(EventType.MEMBER_REMOVED, project, self._identifiers.new(), now, {"name": name})

        def unit(connection: Connection) -> None:
            hold_project(connection, project)
            ours = members.c.project == project, members.c.user_id == _user_id(connection, name)
            if connection.execute(delete(members).where(*ours).returning(members.c.role)).first() is None:
                raise UnknownUser(name)
            append_to_outbox(connection, event)

        self._database.write(unit)


def _user_id(connection: Connection, name: str) -> str:
    """The id of the user, who is not removed until the transaction is over. `UnknownUser`."""
    row = None
    if is_storable(name):
        query = select(users.c.id).where(users.c.name == name).with_for_update(read=True)
        row = connection.execute(query).first()
    if row is None:
        raise UnknownUser(name)
    user_id: str = row.id
    return user_id


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
