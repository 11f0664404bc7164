"""What there is at a moment, counted: plans, jobs, workers, calls of models, events. For those who watch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleveragents.api.events import end_of_log
from cleveragents.api.workers import worker_state

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

    from cleveragents.access.model.user import ProjectScope
    from cleveragents.app.container import Container

__all__ = ["Stock", "stock_of"]

Counts = tuple[tuple[tuple[str, ...], float], ...]
"""So many of each kind."""


@dataclass(frozen=True, slots=True)
class Stock:
    """Counts of one moment."""

    plans: Counts
    jobs: Counts
    workers: Counts
    calls: Counts
    tokens: Counts
    dollars: float
    oldest_seconds: float
    position: int
    unplaced: int


def stock_of(container: Container, scope: ProjectScope = None) -> Stock:
    """Counts what there is in these projects. Reads every plan's and job's row, so ask every few seconds, not
    more often."""
    from sqlalchemy import case, func, select, true

    from cleveragents.access.store.sql_project_store import project_of_job
    from cleveragents.models.model.budget import PICODOLLARS
    from cleveragents.storage.actor_tables import model_calls
    from cleveragents.storage.columns import microseconds
    from cleveragents.storage.tables import jobs, outbox, plans

    of_plans: ColumnElement[bool] = true()
    of_jobs: ColumnElement[bool] = true()
    of_calls: ColumnElement[bool] = true()
    if scope is not None:
        of_plans = plans.c.project.in_(scope)
        of_jobs = project_of_job(container.database.dialect).in_(scope)
        of_calls = model_calls.c.plan_id.in_(select(plans.c.id).where(of_plans))
    now = container.clock.now()
    known = [worker_state(one, now=now, home=container.home) for one in container.worker_registry.list()]
    with container.database.read() as connection:
        sums = [
            func.coalesce(func.sum(column), 0)
            for column in (
                model_calls.c.input_tokens,
                model_calls.c.output_tokens,
                model_calls.c.cached_tokens,
                model_calls.c.picodollars,
            )
        ]
        read, written, cached, picodollars = connection.execute(select(*sums).where(of_calls)).one()
        could_run = (jobs.c.state == "queued", jobs.c.not_before <= microseconds(now), of_jobs)
        begins = case((jobs.c.not_before > jobs.c.created_at, jobs.c.not_before), else_=jobs.c.created_at)
        since = connection.execute(select(func.min(begins)).where(*could_run)).scalar()
        waits = 0 if since is None else microseconds(now) - since
        return Stock(
            plans=_counted(connection, plans, of_plans, plans.c.phase, plans.c.state),
            jobs=_counted(connection, jobs, of_jobs, jobs.c.state),
            workers=tuple(((state,), number) for state, number in sorted(Counter(known).items())),
            calls=_counted(connection, model_calls, of_calls, model_calls.c.state),
            tokens=((("input",), int(read)), (("output",), int(written)), (("cached",), int(cached))),
            dollars=float(picodollars) / PICODOLLARS,
            oldest_seconds=max(0, waits) / 1_000_000,
            position=end_of_log(container.database),
            unplaced=connection.execute(select(func.count()).select_from(outbox)).scalar() or 0,
        )


def _counted(connection: Connection, table: Table, which: ColumnElement[bool], *columns: Any) -> Counts:
    from sqlalchemy import func, select

    query = select(*columns, func.count()).select_from(table).where(which).group_by(*columns)
    query = query.order_by(*columns)
    return tuple((tuple(map(str, row[:-1])), int(row[-1])) for row in connection.execute(query))
