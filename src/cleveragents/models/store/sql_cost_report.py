"""Costs of model calls, summed by day, project, model or actor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, case, func, select

from cleveragents.access.model.user import ProjectScope
from cleveragents.storage.actor_tables import model_calls
from cleveragents.storage.columns import is_storable, microseconds
from cleveragents.storage.conversation_tables import conversations
from cleveragents.storage.database import Database
from cleveragents.storage.tables import plans

__all__ = ["CostGroup", "CostSum", "SqlCostReport"]

CostGroup = Literal["day", "project", "model", "actor"]

_DAY = 86_400_000_000
_MOST = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROJECT = func.coalesce(plans.c.project, conversations.c.project)


@dataclass(frozen=True, slots=True)
class CostSum:
    """The sum of the calls of one day, project, model or actor. An interrupted call counts in full."""

    name: str
    calls: int
    picodollars: int
    input_tokens: int
    output_tokens: int
    unpriced: int
    interrupted: int
    cached_tokens: int


class SqlCostReport:
    """Reads the costs of the stored plans and conversations. Stateless but for the database, so any thread
    may share it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def sums(
        self, by: CostGroup, *, since: datetime, until: datetime, project: str | None, scope: ProjectScope
    ) -> Sequence[CostSum]:
        """Return the sums of the calls that started between the two times. Days are in order; projects,
        models and actors are sorted by cost.
        """
        if not is_storable(project or ""):
            return ()
        group = _group(by)
        lost = model_calls.c.state == "forfeited"
        paid = case(
            (lost, model_calls.c.worst_picodollars), else_=func.coalesce(model_calls.c.picodollars, 0)
        )
        spent = func.coalesce(func.sum(paid), 0)
        query = (
            select(
                group,
                func.count(),
                spent,
                func.coalesce(func.sum(model_calls.c.input_tokens), 0),
                func.coalesce(func.sum(model_calls.c.output_tokens), 0),
                func.sum(_one_if((model_calls.c.state == "settled") & model_calls.c.picodollars.is_(None))),
                func.sum(_one_if(lost)),
                func.coalesce(func.sum(model_calls.c.cached_tokens), 0),
            )
            .outerjoin(plans, plans.c.id == model_calls.c.plan_id)
            .outerjoin(conversations, conversations.c.id == model_calls.c.plan_id)
            .where(
                _PROJECT.is_not(None),
                model_calls.c.state.in_(("settled", "forfeited")),
                model_calls.c.started_at >= microseconds(since),
                model_calls.c.started_at < microseconds(until),
            )
            .group_by(group)
            .order_by(group if by == "day" else spent.desc(), group)
            .limit(_MOST)
        )
        if scope is not None:
            query = query.where(_PROJECT.in_(scope))
        if project is not None:
            query = query.where(_PROJECT.in_((project,)))
        with self._database.read() as connection:
            return [
                CostSum(_name(by, name), *(int(number) for number in numbers))
                for name, *numbers in connection.execute(query)
            ]


def _group(by: CostGroup) -> ColumnElement[Any]:
    columns: dict[str, ColumnElement[Any]] = {
        "project": _PROJECT,
        "model": model_calls.c.model,
        "actor": model_calls.c.actor,
    }
    if by == "day":
        # No bound parameter: PostgreSQL must see the same expression in SELECT and GROUP BY.
        from sqlalchemy import literal_column

        return model_calls.c.started_at.op("/")(literal_column(str(_DAY)))
    return columns[by]


def _one_if(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return case((condition, 1), else_=0)


def _name(by: CostGroup, value: Any) -> str:
    return (_EPOCH + timedelta(days=int(value))).date().isoformat() if by == "day" else str(value)
