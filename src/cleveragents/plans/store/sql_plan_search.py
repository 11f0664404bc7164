"""Text search over plans: goals, answers, output, and the arguments of calls that changed files.

The search is bounded: it reads the latest plans only, and a limited number of texts. Texts are returned as
stored. The caller masks them, and drops texts that contain the query only in a masked part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, select

from cleveragents.access.model.user import ProjectScope
from cleveragents.storage.columns import is_storable
from cleveragents.storage.database import Database
from cleveragents.storage.service_tables import plan_output
from cleveragents.storage.tables import plans, tool_calls

__all__ = ["SEARCHED_PLANS", "FoundText", "Place", "SqlPlanSearch"]

SEARCHED_PLANS = 1000
"""The number of plans that a search reads, the latest first."""

_TEXTS = 300

Place = Literal["goal", "answer", "transcript", "changes"]


@dataclass(frozen=True, slots=True)
class FoundText:
    """A stored text that contains the query; `text` is not masked."""

    plan_id: str
    place: Place
    text: str


class SqlPlanSearch:
    """Searches plans in a `Database`. Stateless but for the database, so any thread may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, text: str, *, project: str | None, scope: ProjectScope) -> Sequence[FoundText]:
        """Return the texts of these projects that contain the query, ignoring case, newest plan first."""
        if not is_storable(text) or not is_storable(project or ""):
            return ()
        recent = select(plans.c.id).order_by(plans.c.id.desc()).limit(SEARCHED_PLANS)
        if scope is not None:
            recent = recent.where(plans.c.project.in_(scope))
        if project is not None:
            recent = recent.where(plans.c.project == project)
        with self._database.read() as connection:
            found = [
                FoundText(plan_id, place, value)
                for place, query in _queries(text, recent)
                for plan_id, stored in connection.execute(query)
                for value in (_strings(json.loads(stored)) if place == "changes" else (stored,))
            ]
        return sorted(found, key=lambda one: one.plan_id, reverse=True)


def _queries(text: str, recent: Select[Any]) -> Iterator[tuple[Place, Select[Any]]]:
    ids = recent.subquery()

    def matching(column: ColumnElement[Any], plan: ColumnElement[Any], said: str) -> Select[Any]:
        of_plans = plan.in_(select(ids.c.id))
        found = column.icontains(said, autoescape=True)
        return select(plan, column).where(of_plans, found).order_by(plan.desc()).limit(_TEXTS)

    yield "goal", matching(plans.c.goal, plans.c.id, text)
    yield "answer", matching(plans.c.answer, plans.c.id, text)
    spoken = plan_output.c.kind != "node"
    yield "transcript", matching(plan_output.c.text, plan_output.c.plan_id, text).where(spoken)
    # Arguments are ASCII JSON: the query is searched as it is written there.
    written = tool_calls.c.changeset_id.is_not(None)
    spelled = json.dumps(text)[1:-1]
    yield "changes", matching(tool_calls.c.arguments, tool_calls.c.plan_id, spelled).where(written)


def _strings(value: object) -> Iterator[str]:
    """Yield the texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
