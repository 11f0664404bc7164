"""Which project a plan, a job or an event belongs to, in SQL.

What belongs to no project (users, tokens, workers, trust), and what is of a kind that is not known here, is
NULL: only server admins see it. So a new kind of event or job is hidden until it is placed here.

Names of projects and resources can be used again. An event about a name belongs to the project or resource
that has the name now only if it is not older than the event that added it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, null, select

from cleveragents.core.event import EventType
from cleveragents.storage.database import Database
from cleveragents.storage.service_tables import deleted_plans, resources
from cleveragents.storage.tables import changesets, events, jobs, plans

__all__ = ["plan_id_in", "project_of_event", "project_of_job", "project_of_plan", "projects_of_events"]

_KINDS = ("plan:", "apply:", "undo:")
"""With which the kind of a job of a plan begins; the id of that plan, or of its root, follows."""

_OF_PROJECTS = (
    EventType.PROJECT_ADDED,
    EventType.PROJECT_REMOVED,
    EventType.MEMBER_SET,
    EventType.MEMBER_REMOVED,
)
_OF_RESOURCES = (EventType.RESOURCE_ADDED, EventType.RESOURCE_REMOVED)


def plan_id_in(kind: str) -> str | None:
    """The plan that jobs of that kind work for; None: they work for none."""
    found = next((one for one in _KINDS if kind.startswith(one)), None)
    return None if found is None else kind.removeprefix(found)


def project_of_plan(database: Database, plan_id: str) -> str | None:
    """The project of a plan, also of one that was deleted; None where that is not known."""
    with database.read() as connection:
        for table in (plans, deleted_plans):
            query = select(table.c.project).where(table.c.id == plan_id)
            found: str | None = connection.execute(query).scalar()
            if found is not None:
                return found
    return None


def project_of_job(dialect: str) -> ColumnElement[str | None]:
    """The project of a row of `jobs`."""
    plan_id = case(
        *(
            (func.substr(jobs.c.kind, 1, len(kind)) == kind, func.substr(jobs.c.kind, len(kind) + 1))
            for kind in _KINDS
        ),
        else_=null(),
    )
    return _of_plan(_as_id(plan_id, dialect))


def project_of_event(dialect: str) -> ColumnElement[str | None]:
    """The project of a row of `events`."""
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
    """The project of each event from that position to that one."""
    project = project_of_event(database.dialect).label("project")
    query = select(events.c.position, project).where(events.c.position.between(first, last))
    with database.read() as connection:
        return {row.position: row.project for row in connection.execute(query)}


def _is_one_of(types: tuple[EventType, ...]) -> ColumnElement[bool]:
    return events.c.event_type.in_([one.value for one in types])


def _since(
    added: EventType, project: ColumnElement[str] | ColumnElement[str | None]
) -> ColumnElement[str | None]:
    """The project, for events about a name since it was last added."""
    earlier = events.alias("added")
    last = select(func.coalesce(func.max(earlier.c.position), 0)).where(
        earlier.c.subject == events.c.subject, earlier.c.event_type == added.value
    )
    # A new project is not shown what happened to another one of its name.
    return case((events.c.position >= last.correlate(events).scalar_subquery(), project), else_=null())


def _of_plan(plan_id: ColumnElement[str]) -> ColumnElement[str | None]:
    return func.coalesce(
        *(_scalar(select(table.c.project).where(table.c.id == plan_id)) for table in (plans, deleted_plans))
    )


def _scalar(query: Select[Any]) -> ColumnElement[str | None]:
    return query.correlate(events, jobs).scalar_subquery()


def _as_id(column: ColumnElement[str], dialect: str) -> ColumnElement[str]:
    """As ids compare; PostgreSQL compares no two columns of different collations."""
    return column.collate("C") if dialect == "postgresql" else column
