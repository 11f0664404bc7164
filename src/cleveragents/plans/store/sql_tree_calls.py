"""When the calls of a tree of plans ran, from one look at the database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import RowMapping, Select, bindparam, case, select

from cleveragents.plans.ports.tree_calls import CallTimes, Run
from cleveragents.storage.actor_tables import model_calls
from cleveragents.storage.columns import moment
from cleveragents.storage.database import Database
from cleveragents.storage.tables import jobs, plans, tool_calls

__all__ = ["SqlTreeCalls"]

_TREE = select(plans.c.id, plans.c.job_id).where(plans.c.id == bindparam("root")).cte("tree", recursive=True)
_TREE = _TREE.union_all(select(plans.c.id, plans.c.job_id).where(plans.c.parent_id == _TREE.c.id))
_RUN = (jobs.c.not_before.label("since"), jobs.c.updated_at.label("seen"))
# Results may be large, and only what was asked for says in them how long it ran.
_ASKED_RESULT = case((tool_calls.c.approval.is_not(None), tool_calls.c.result))
_TOOLS = (
    select(
        tool_calls.c.started_at,
        tool_calls.c.ended_at,
        tool_calls.c.approval,
        _ASKED_RESULT.label("result"),
        *_RUN,
    )
    .join(_TREE, tool_calls.c.plan_id == _TREE.c.id)
    .outerjoin(jobs, (jobs.c.id == _TREE.c.job_id) & (jobs.c.state == "running"))
    .where(tool_calls.c.state.in_(("started", "ending", "ended", "failed")))
)
_MODELS = (
    select(model_calls.c.started_at, model_calls.c.ended_at, *_RUN)
    .join(_TREE, model_calls.c.plan_id == _TREE.c.id)
    .outerjoin(jobs, (jobs.c.id == _TREE.c.job_id) & (jobs.c.state == "running"))
    # What was forfeited ended when somebody noticed: the time until then nobody worked.
    .where(model_calls.c.state != "forfeited")
)


class SqlTreeCalls:
    """`TreeCalls` on a `Database`. Stateless but for the database, so any thread may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_tree(self, root_id: str) -> Sequence[CallTimes]:
        return list(self._read(root_id))

    def _read(self, root_id: str) -> Iterator[CallTimes]:
        statements: tuple[Select[Any], ...] = (_TOOLS, _MODELS)
        with self._database.read() as connection:
            for statement in statements:
                for row in connection.execute(statement, {"root": root_id}).mappings():
                    yield _times(row)


def _times(row: RowMapping) -> CallTimes:
    run = None if row["since"] is None else Run(moment(row["since"]), moment(row["seen"]))
    return CallTimes(
        began=moment(row["started_at"]),
        ended=None if row["ended_at"] is None else moment(row["ended_at"]),
        asked=row.get("approval") is not None,
        ran_seconds=_ran_seconds(row.get("result")),
        run=run,
    )


def _ran_seconds(result: str | None) -> float:
    kept = None if result is None else json.loads(result)
    seconds = kept.get("seconds") if isinstance(kept, dict) else None
    return seconds if isinstance(seconds, float) else 0.0
