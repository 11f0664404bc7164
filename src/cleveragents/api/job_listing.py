"""Which jobs there are: in either order, in some states, of one plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from cleveragents.access.model.user import ProjectScope
    from cleveragents.jobs.model.job import Job, JobState
    from cleveragents.storage.database import Database

__all__ = ["job_ids_of", "listed_jobs"]

_DEEDS = ("", "apply:", "undo:")
"""With which the key of a job begins that runs a plan, applies it or undoes it; `ID@VERSION` follows."""


def listed_jobs(
    database: Database,
    *,
    states: Collection[JobState] = (),
    plan_id: str | None = None,
    limit: int,
    after: str | None = None,
    newest_first: bool = False,
    scope: ProjectScope = None,
) -> Sequence[Job]:
    """The jobs of these projects after that id, in the order in which they were made or in the opposite
    one."""
    from sqlalchemy import select

    from cleveragents.access.store.project_scope import project_of_job
    from cleveragents.jobs.store.rows import job_of
    from cleveragents.storage.tables import jobs

    query = select(jobs).order_by(jobs.c.id.desc() if newest_first else jobs.c.id).limit(limit)
    if states:
        query = query.where(jobs.c.state.in_([state.value for state in states]))
    if scope is not None:
        query = query.where(project_of_job(database.dialect).in_(scope))
    if after is not None:
        query = query.where(jobs.c.id < after if newest_first else jobs.c.id > after)
    with database.read() as connection:
        if plan_id is not None:
            query = query.where(_is_of(connection, plan_id))
        return [job_of(row) for row in connection.execute(query).mappings()]


def job_ids_of(database: Database, plan_id: str) -> Sequence[str]:
    """The jobs that ran the plan, applied it or undid it, or are to."""
    from sqlalchemy import select

    from cleveragents.storage.tables import jobs

    with database.read() as connection:
        return connection.execute(select(jobs.c.id).where(_is_of(connection, plan_id))).scalars().all()


def _is_of(connection: Connection, plan_id: str) -> ColumnElement[bool]:
    """By the key: it says for which plan a job was submitted, and has an index."""
    from sqlalchemy import and_, or_

    from cleveragents.storage.tables import jobs

    ways: list[ColumnElement[bool]] = []
    for deed in _DEEDS:
        begins = f"{deed}{plan_id}@"
        if connection.dialect.name == "sqlite":
            # Its LIKE does not tell capitals from small letters, and so passes the index over.
            ways.append(and_(jobs.c.key >= begins, jobs.c.key < f"{deed}{plan_id}A"))
        else:
            ways.append(jobs.c.key.startswith(begins, autoescape=True))
    return or_(*ways)
