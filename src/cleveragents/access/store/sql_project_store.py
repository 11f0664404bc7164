"""Projects, resources and members in a database, and the project of a plan, job or event in SQL.

The project is NULL for rows without a project (users, tokens, workers, trust) and for rows of unknown kinds.
Only server admins see such rows, so a new kind of event or job is hidden from other users until it is added
to this module.

Names of projects and resources can be reused. An event about a name belongs to the current project or
resource of that name only if the event is not older than the project or resource.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, case, delete, func, null, select
from sqlalchemy.sql.dml import Insert, ReturningInsert

from cleveragents.access.model.project import (
    DEFAULT_PROJECT,
    Member,
    Project,
    Resource,
    ResourceKind,
    ensure_branch,
    ensure_name,
    ensure_remote,
)
from cleveragents.access.model.user import Role, User
from cleveragents.core.errors import (
    AlreadyThere,
    InvalidResource,
    StillUsed,
    UnknownProject,
    UnknownResource,
    UnknownUser,
)
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.storage.columns import ensure_storable, is_storable, microseconds
from cleveragents.storage.conversation_tables import conversations
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in
from cleveragents.storage.service_tables import deleted_plans, members, projects, resources, users
from cleveragents.storage.tables import approval_rules, changesets, events, jobs, plans

__all__ = [
    "SqlMemberStore",
    "SqlProjectStore",
    "hold_project",
    "plan_id_in",
    "project_of_event",
    "project_of_job",
    "project_of_output",
    "project_of_plan",
    "projects_of_events",
    "put_member",
    "roles_of",
]


_MOST_PARALLEL = 10_000
_DESCRIPTION_CHARACTERS = 2_000
_LOCATION_CHARACTERS = 4_096

_KINDS = ("plan:", "apply:", "undo:")
"""The prefixes of jobs of a plan; the id of the plan or of its root follows."""
_OF_PROJECTS = (
    EventType.PROJECT_ADDED,
    EventType.PROJECT_REMOVED,
    EventType.MEMBER_SET,
    EventType.MEMBER_REMOVED,
    EventType.RULE_ADDED,
    EventType.RULE_REVOKED,
    EventType.CONVERSATION_STARTED,
    EventType.CONVERSATION_DELETED,
    EventType.TURN_STARTED,
    EventType.TURN_ENDED,
)
_OF_RESOURCES = (EventType.RESOURCE_ADDED, EventType.RESOURCE_REMOVED)

_KEYS = ["project", "user_id"]


def _keeping(table: Table, dialect: str) -> ReturningInsert[tuple[str]]:
    """Return an insert that does nothing if the name exists. Of two concurrent inserts, the second inserts no
    row.
    """
    return insert_into(table, dialect).on_conflict_do_nothing().returning(table.c.name)


class SqlProjectStore:
    """Projects and their resources. Every method is one transaction that includes its event.

    Added directories belong to the machine with the state directory `home`. Stateless except for the
    database, so any thread may share it.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource, home: str) -> None:
        self._database = database
        self._identifiers = identifiers
        self._home = home

    def add(
        self,
        name: str,
        description: str = "",
        *,
        max_parallel: int | None = None,
        now: datetime,
        creator: User | None = None,
    ) -> Project:
        """Add a project with the `creator` as its admin. Raises `AlreadyThere`, `InvalidName`."""
        ensure_name("project", name)
        _ensure_sound(name, description, max_parallel)
        description = redact_text(description)  # all users can read it
        row = {
            "name": name,
            "description": description,
            "max_parallel": max_parallel,
            "created_at": microseconds(now),
        }
        event = self._event(EventType.PROJECT_ADDED, name, now, {"max_parallel": max_parallel})

        def unit(connection: Connection) -> None:
            kept = connection.execute(_keeping(projects, connection.dialect.name), row).first()
            if kept is None:  # guard: of two at once, the second gets an error
                raise AlreadyThere("project", name)
            # Plans of a removed project with this name do not belong to the new one.
            connection.execute(delete(deleted_plans).where(deleted_plans.c.project == name))
            if creator is not None:
                put_member(connection, name, creator.id, Role.ADMIN)
            append_to_outbox(connection, event)

        self._database.write(unit)
        return Project(name, description, now, max_parallel)

    def get(self, name: str) -> Project:
        """Return the project. Raises `UnknownProject`."""
        row = None
        if is_storable(name):
            with self._database.read() as connection:
                query = select(projects).where(projects.c.name == name)
                row = connection.execute(query).mappings().first()
        if row is None:
            raise UnknownProject(name)
        return record_in(Project, row)

    def list(self) -> Sequence[Project]:
        """Return all projects by name."""
        with self._database.read() as connection:
            rows = connection.execute(select(projects).order_by(projects.c.name)).mappings().all()
        return [record_in(Project, row) for row in rows]

    def remove(self, name: str, *, now: datetime) -> None:
        """Remove the project with its memberships.

        Raises `UnknownProject`; `StillUsed` while it has resources, plans or conversations, and for the
        default project.
        """
        if name == DEFAULT_PROJECT:  # guard: plans without a project use it
            raise StillUsed("project", name, "plans without a project use it")
        event = self._event(EventType.PROJECT_REMOVED, name, now, {})

        def unit(connection: Connection) -> None:
            hold_project(connection, name, alone=True)
            mine = select(resources.c.name).where(resources.c.project == name).order_by(resources.c.name)
            used = list(connection.execute(mine).scalars())
            if used:  # guard: every resource has a project
                raise StillUsed(
                    "project", name, f"remove the resources of the project first: {', '.join(used)}"
                )
            theirs = connection.execute(select(plans.c.id).where(plans.c.project == name).limit(1)).first()
            if theirs is not None:  # guard: a new project of that name must not get these plans
                raise StillUsed("project", name, "delete the plans of the project first")
            talks = select(conversations.c.id).where(conversations.c.project == name).limit(1)
            if connection.execute(talks).first() is not None:  # guard: nor these conversations
                raise StillUsed("project", name, "delete the sessions of the project first")
            connection.execute(delete(members).where(members.c.project == name))
            # guard: a new project of that name must not get these rules
            connection.execute(delete(approval_rules).where(approval_rules.c.project == name))
            connection.execute(delete(projects).where(projects.c.name == name))
            append_to_outbox(connection, event)

        self._database.write(unit)

    def add_resource(
        self,
        name: str,
        project: str,
        kind: ResourceKind,
        location: str,
        *,
        branch: str | None = None,
        now: datetime,
    ) -> Resource:
        """Add a resource. A directory belongs to this store's machine.

        Raises `AlreadyThere`, `InvalidName`, `UnknownProject`.
        """
        ensure_name("resource", name)
        _ensure_reachable(name, kind, location, branch)
        # A path is valid on one machine only.
        home = self._home if kind is ResourceKind.DIRECTORY else None
        resource = Resource(name, project, kind, location, now, branch, home)
        row = {
            "name": name,
            "project": project,
            "kind": kind.value,
            "location": location,
            "branch": branch,
            "home": home,
            "created_at": microseconds(now),
        }
        # Without its location: the log keeps it for good and shows it to all.
        facts: dict[str, JsonValue] = {"project": project, "kind": kind.value}
        event = self._event(EventType.RESOURCE_ADDED, name, now, facts)

        def unit(connection: Connection) -> None:
            hold_project(connection, project, alone=True)
            kept = connection.execute(_keeping(resources, connection.dialect.name), row).first()
            if kept is None:  # guard: of two at once, the second gets an error
                raise AlreadyThere("resource", name)
            append_to_outbox(connection, event)

        self._database.write(unit)
        return resource

    def resource(self, name: str) -> Resource:
        """Return the resource. Raises `UnknownResource`."""
        row = None
        if is_storable(name):
            with self._database.read() as connection:
                query = select(resources).where(resources.c.name == name)
                row = connection.execute(query).mappings().first()
        if row is None:
            raise UnknownResource(name)
        return record_in(Resource, row)

    def resources(self, project: str | None = None) -> Sequence[Resource]:
        """Return the resources of a project, or all, by name."""
        query = select(resources).order_by(resources.c.name)
        if project is not None:
            if not is_storable(project):
                return []
            query = query.where(resources.c.project == project)
        with self._database.read() as connection:
            return [record_in(Resource, row) for row in connection.execute(query).mappings()]

    def remove_resource(self, name: str, *, now: datetime) -> None:
        """Remove the resource. Its running plans continue. Raises `UnknownResource`."""
        event = self._event(EventType.RESOURCE_REMOVED, name, now, {})

        def unit(connection: Connection) -> None:
            gone = delete(resources).where(resources.c.name == name).returning(resources.c.name)
            if not is_storable(name) or connection.execute(gone).first() is None:
                raise UnknownResource(name)
            append_to_outbox(connection, event)

        self._database.write(unit)

    def _event(self, kind: EventType, name: str, now: datetime, facts: dict[str, JsonValue]) -> DomainEvent:
        return DomainEvent(kind, name, self._identifiers.new(), now, facts)


def _ensure_sound(name: str, description: str, max_parallel: int | None) -> None:
    ensure_storable(f"project {name!r}", {"description": description})
    if len(description) > _DESCRIPTION_CHARACTERS:
        raise InvalidResource(
            "project", name, f"the description has more than {_DESCRIPTION_CHARACTERS} characters"
        )
    if max_parallel is not None and not 1 <= max_parallel <= _MOST_PARALLEL:
        raise InvalidResource("project", name, f"max parallel must be 1 to {_MOST_PARALLEL}")


def _ensure_reachable(name: str, kind: ResourceKind, location: str, branch: str | None) -> None:
    ensure_storable(f"resource {name!r}", {"location": location})
    if len(location) > _LOCATION_CHARACTERS:
        problem = f"the location has more than {_LOCATION_CHARACTERS} characters"
        raise InvalidResource("resource", name, problem)
    if kind is ResourceKind.REMOTE:
        ensure_remote(location)
        if branch is None:
            problem = "a remote needs a branch"
            raise InvalidResource("resource", name, problem)
        ensure_branch(branch)
        return
    if branch is not None:
        problem = "a directory takes no branch"
        raise InvalidResource("resource", name, problem)
    if not PurePath(location).is_absolute():  # guard: independent of any working directory
        raise InvalidResource("resource", name, "the path of a directory must be absolute")


def plan_id_in(kind: str) -> str | None:
    """Return the plan id in a job kind (`PREFIX + plan id`); None for kinds that do not belong to a plan."""
    found = next((one for one in _KINDS if kind.startswith(one)), None)
    return None if found is None else kind.removeprefix(found)


def project_of_plan(database: Database, plan_id: str) -> str | None:
    """Return the project of a plan, even if it was deleted; None if unknown."""
    with database.read() as connection:
        for table in (plans, deleted_plans):
            query = select(table.c.project).where(table.c.id == plan_id)
            found: str | None = connection.execute(query).scalar()
            if found is not None:
                return found
    return None


def project_of_output(database: Database, owner_id: str) -> str | None:
    """Return the project of the plan or conversation that prints output under this id; None if unknown."""
    found = project_of_plan(database, owner_id)
    if found is None:
        query = select(conversations.c.project).where(conversations.c.id == owner_id)
        with database.read() as connection:
            found = connection.execute(query).scalar()
    return found


def project_of_job(dialect: str) -> ColumnElement[str | None]:
    """Return the project of a row of `jobs`."""
    plan_id = case(
        *(
            (func.substr(jobs.c.kind, 1, len(kind)) == kind, func.substr(jobs.c.kind, len(kind) + 1))
            for kind in _KINDS
        ),
        else_=null(),
    )
    return _of_plan(_as_id(plan_id, dialect))


def project_of_event(dialect: str) -> ColumnElement[str | None]:
    """Return the project of a row of `events`."""
    subject = _as_id(events.c.subject, dialect)
    of_job = select(project_of_job(dialect)).where(jobs.c.id == subject)
    of_changeset = select(plans.c.project).where(
        changesets.c.id == subject, plans.c.id == changesets.c.plan_id
    )
    of_resource = select(resources.c.project).where(resources.c.name == subject)
    return case(
        (_is_one_of(_OF_PROJECTS), _since(EventType.PROJECT_ADDED, subject)),
        (_is_one_of(_OF_RESOURCES), _since(EventType.RESOURCE_ADDED, _scalar(of_resource))),
        else_=func.coalesce(_of_plan(subject), _scalar(of_job), _scalar(of_changeset)),
    )


def projects_of_events(database: Database, first: int, last: int) -> Mapping[int, str | None]:
    """Return the project of each event between the two positions."""
    project = project_of_event(database.dialect).label("project")
    query = select(events.c.position, project).where(events.c.position.between(first, last))
    with database.read() as connection:
        return {row.position: row.project for row in connection.execute(query)}


def _is_one_of(types: tuple[EventType, ...]) -> ColumnElement[bool]:
    return events.c.event_type.in_([one.value for one in types])


def _since(
    added: EventType, project: ColumnElement[str] | ColumnElement[str | None]
) -> ColumnElement[str | None]:
    """Return `project` for events since the name was last added, and NULL for older events."""
    earlier = events.alias("added")
    last = select(func.coalesce(func.max(earlier.c.position), 0)).where(
        earlier.c.subject == events.c.subject, earlier.c.event_type == added.value
    )
    # A new project must not see events of an earlier one with its name.
    return case((events.c.position >= last.correlate(events).scalar_subquery(), project), else_=null())


def _of_plan(plan_id: ColumnElement[str]) -> ColumnElement[str | None]:
    return func.coalesce(
        *(_scalar(select(table.c.project).where(table.c.id == plan_id)) for table in (plans, deleted_plans))
    )


def _scalar(query: Select[Any]) -> ColumnElement[str | None]:
    return query.correlate(events, jobs).scalar_subquery()


def _as_id(column: ColumnElement[str], dialect: str) -> ColumnElement[str]:
    """Cast to the collation of ids; PostgreSQL cannot compare columns of different collations."""
    return column.collate("C") if dialect == "postgresql" else column


class SqlMemberStore:
    """The members of each project. Every method is one transaction, with its event in the outbox.

    Stateless except for the database, so any thread may share it.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def list(self, project: str) -> Sequence[Member]:
        """Return the members by name. Raises `UnknownProject`."""
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
        """Add a user to the project, or change their role in it. Takes effect with the next request. Raises
        `UnknownProject`, `UnknownUser`.
        """
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
        """Remove a user from the project. Takes effect with the next request. Raises `UnknownProject`;
        `UnknownUser` if the user is not a member.
        """
        event = DomainEvent(EventType.MEMBER_REMOVED, project, self._identifiers.new(), now, {"name": name})

        def unit(connection: Connection) -> None:
            hold_project(connection, project)
            ours = members.c.project == project, members.c.user_id == _user_id(connection, name)
            if connection.execute(delete(members).where(*ours).returning(members.c.role)).first() is None:
                raise UnknownUser(name)
            append_to_outbox(connection, event)

        self._database.write(unit)


def _user_id(connection: Connection, name: str) -> str:
    """Return the id of the user, locked until the end of the transaction. Raises `UnknownUser`."""
    row = None
    if is_storable(name):
        query = select(users.c.id).where(users.c.name == name).with_for_update(read=True)
        row = connection.execute(query).first()
    if row is None:
        raise UnknownUser(name)
    user_id: str = row.id
    return user_id


def hold_project(connection: Connection, name: str, *, alone: bool = False) -> None:
    """Lock the project against removal until the end of the transaction. Raises `UnknownProject`.

    `alone` waits for all other holders of the lock. Use it to remove the project, and to add a name that must
    be unique in the project.
    """
    if name == DEFAULT_PROJECT and not alone:
        return  # it is never removed
    row = None
    if is_storable(name):
        query = select(projects.c.name).where(projects.c.name == name).with_for_update(read=not alone)
        row = connection.execute(query).first()
    if row is None:  # guard: nothing is added to a removed project
        raise UnknownProject(name)


def put_member(connection: Connection, project: str, user_id: str, role: Role) -> None:
    """Set the role of the user in the project."""
    inserted = _insert(connection.dialect.name)
    connection.execute(inserted, {"project": project, "user_id": user_id, "role": role.value})


def roles_of(connection: Connection, user_ids: Collection[str]) -> dict[str, dict[str, Role]]:
    """Return the role of each user in each of their projects."""
    found: dict[str, dict[str, Role]] = {user_id: {} for user_id in user_ids}
    for row in connection.execute(select(members).where(members.c.user_id.in_(user_ids))):
        found[row.user_id][row.project] = Role(row.role)
    return found


def _insert(dialect: str) -> Insert:
    row = insert_into(members, dialect)
    return row.on_conflict_do_update(index_elements=_KEYS, set_={"role": row.excluded.role})
