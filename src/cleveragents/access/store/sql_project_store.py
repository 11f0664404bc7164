"""Projects and resources on a database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath

from sqlalchemy import Connection, Table, delete, select
from sqlalchemy.sql.dml import ReturningInsert

from cleveragents.access.model.project import (
    DEFAULT_PROJECT,
    Project,
    Resource,
    ResourceKind,
    ensure_branch,
    ensure_name,
    ensure_remote,
)
from cleveragents.access.model.user import Role, User
from cleveragents.access.store.sql_member_store import hold_project, put_member
from cleveragents.core.errors import AlreadyThere, InvalidResource, StillUsed, UnknownProject, UnknownResource
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.storage.columns import ensure_storable, is_storable, microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in
from cleveragents.storage.service_tables import deleted_plans, members, projects, resources
from cleveragents.storage.tables import plans

__all__ = ["SqlProjectStore"]

_MOST_PARALLEL = 10_000
_DESCRIPTION_CHARACTERS = 2_000
_LOCATION_CHARACTERS = 4_096


def _keeping(table: Table, dialect: str) -> ReturningInsert[tuple[str]]:
    """An insert; of two that come at once with one name, the second finds that it kept nothing."""
    return insert_into(table, dialect).on_conflict_do_nothing().returning(table.c.name)


class SqlProjectStore:
    """Projects and their resources. Every method is one atomic step with its event. Directories that are
    added are those of the machine with the state directory `home`. Stateless but for the database, so any
    thread may share it."""

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
        """The `creator` becomes its admin. `AlreadyThere`, `InvalidName`."""
        ensure_name("project", name)
        _ensure_sound(name, description, max_parallel)
        description = redact_text(description)  # all users read it
        row = {
            "name": name,
            "description": description,
            "max_parallel": max_parallel,
            "created_at": microseconds(now),
        }
        event = self._event(EventType.PROJECT_ADDED, name, now, {"max_parallel": max_parallel})

        def unit(connection: Connection) -> None:
            kept = connection.execute(_keeping(projects, connection.dialect.name), row).first()
            if kept is None:  # guard: of two that come at once, one is told
                raise AlreadyThere("project", name)
            # The plans of a removed project with this name are not this project's.
            connection.execute(delete(deleted_plans).where(deleted_plans.c.project == name))
            if creator is not None:
                put_member(connection, name, creator.id, Role.ADMIN)
            append_to_outbox(connection, event)

        self._database.write(unit)
        return Project(name, description, now, max_parallel)

    def get(self, name: str) -> Project:
        """`UnknownProject`."""
        row = None
        if is_storable(name):
            with self._database.read() as connection:
                query = select(projects).where(projects.c.name == name)
                row = connection.execute(query).mappings().first()
        if row is None:
            raise UnknownProject(name)
        return record_in(Project, row)

    def list(self) -> Sequence[Project]:
        """By name."""
        with self._database.read() as connection:
            rows = connection.execute(select(projects).order_by(projects.c.name)).mappings().all()
        return [record_in(Project, row) for row in rows]

    def remove(self, name: str, *, now: datetime) -> None:
        """Its memberships end. `UnknownProject`; `StillUsed` while it has resources or plans, and for the
        default project."""
        if name == DEFAULT_PROJECT:  # guard: plans that name no project have one
            raise StillUsed("project", name, "plans that name no project belong to it")
        event = self._event(EventType.PROJECT_REMOVED, name, now, {})

        def unit(connection: Connection) -> None:
            hold_project(connection, name, alone=True)
            mine = select(resources.c.name).where(resources.c.project == name).order_by(resources.c.name)
            used = list(connection.execute(mine).scalars())
            if used:  # guard: no resource is left without its project
                raise StillUsed("project", name, f"remove its resources first: {', '.join(used)}")
            theirs = connection.execute(select(plans.c.id).where(plans.c.project == name).limit(1)).first()
            if theirs is not None:  # guard: the next project of that name does not find these plans
                raise StillUsed("project", name, "delete its plans first")
            connection.execute(delete(members).where(members.c.project == name))
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
        """A directory is one of the machine whose store this is. `AlreadyThere`, `InvalidName`,
        `UnknownProject`."""
        ensure_name("resource", name)
        _ensure_reachable(name, kind, location, branch)
        # A path means something on one machine alone.
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
        # Not where it is: the log keeps it for good, and is shown to all.
        facts: dict[str, JsonValue] = {"project": project, "kind": kind.value}
        event = self._event(EventType.RESOURCE_ADDED, name, now, facts)

        def unit(connection: Connection) -> None:
            hold_project(connection, project, alone=True)
            kept = connection.execute(_keeping(resources, connection.dialect.name), row).first()
            if kept is None:  # guard: of two that come at once, one is told
                raise AlreadyThere("resource", name)
            append_to_outbox(connection, event)

        self._database.write(unit)
        return resource

    def resource(self, name: str) -> Resource:
        """`UnknownResource`."""
        row = None
        if is_storable(name):
            with self._database.read() as connection:
                query = select(resources).where(resources.c.name == name)
                row = connection.execute(query).mappings().first()
        if row is None:
            raise UnknownResource(name)
        return record_in(Resource, row)

    def resources(self, project: str | None = None) -> Sequence[Resource]:
        """Of a project, or all, by name."""
        query = select(resources).order_by(resources.c.name)
        if project is not None:
            if not is_storable(project):
                return []
            query = query.where(resources.c.project == project)
        with self._database.read() as connection:
            return [record_in(Resource, row) for row in connection.execute(query).mappings()]

    def remove_resource(self, name: str, *, now: datetime) -> None:
        """Plans that run on it go on. `UnknownResource`."""
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
            "project", name, f"its description has more than {_DESCRIPTION_CHARACTERS} characters"
        )
    if max_parallel is not None and not 1 <= max_parallel <= _MOST_PARALLEL:
        raise InvalidResource("project", name, f"it can run 1 to {_MOST_PARALLEL} jobs at once")


def _ensure_reachable(name: str, kind: ResourceKind, location: str, branch: str | None) -> None:
    ensure_storable(f"resource {name!r}", {"location": location})
    if len(location) > _LOCATION_CHARACTERS:
        problem = f"its location has more than {_LOCATION_CHARACTERS} characters"
        raise InvalidResource("resource", name, problem)
    if kind is ResourceKind.REMOTE:
        ensure_remote(location)
        if branch is None:
            problem = "a remote needs a branch, which plans begin with and are applied to"
            raise InvalidResource("resource", name, problem)
        ensure_branch(branch)
        return
    if branch is not None:
        problem = "a directory has no branch of its own; plans begin with what is there"
        raise InvalidResource("resource", name, problem)
    if not PurePath(location).is_absolute():  # guard: what it means depends on nobody's directory
        raise InvalidResource("resource", name, "the path of a directory has to be absolute")
