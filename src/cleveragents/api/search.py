"""Search over plans: goals, answers, transcripts and changes, with the text around each match.

A match in a masked part of a text does not count: a search must not confirm a guess at a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.api.plans.views import PlanSummary
from cleveragents.api.views import shown, view, view_of
from cleveragents.core.errors import RequestRefused, UnknownPlan
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.store.sql_plan_search import Place, SqlPlanSearch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cleveragents.api.access import Access

__all__ = ["FoundPlan", "TextMatch", "found_plans"]

_SHORTEST = 2
_LONGEST = 200
_MOST_MATCHES = 3
_AROUND = 60


@view
class TextMatch:
    """A text of a plan that contains the query."""

    place: Place = shown(
        "where: the goal, the answer, the transcript, or the changes that the agent made",
        examples=["transcript"],
    )
    text: str = shown("the text around the match: one line, masked", examples=["… total() takes 10 % off …"])


@view
class FoundPlan:
    """A plan that a search found."""

    plan: PlanSummary
    matches: tuple[TextMatch, ...] = shown("the first matches, at most three")


def found_plans(access: Access, text: str, project: str | None, limit: int) -> tuple[FoundPlan, ...]:
    """Return the plans that contain the text, newest first. Raises `RequestRefused` if it is too short or too
    long."""
    from cleveragents.api.plans.overview import board_row
    from cleveragents.api.plans.plan_list import children_in

    wanted = text.strip()
    if not _SHORTEST <= len(wanted) <= _LONGEST:
        raise RequestRefused(f"a search takes {_SHORTEST} to {_LONGEST} characters", "text")
    parts = access.container.plan_parts
    found: list[FoundPlan] = []
    for plan_id, matches in _matches(access, wanted, project).items():
        if len(found) == limit:
            break
        try:
            plan = parts.plans.get(plan_id)
        except UnknownPlan:  # deleted meanwhile
            continue
        children = children_in(parts, [plan]).get(plan_id, ())
        summary = view_of(PlanSummary, board_row(parts, plan, children))
        found.append(FoundPlan(plan=summary, matches=tuple(matches)))
    return tuple(found)


def _matches(access: Access, wanted: str, project: str | None) -> Mapping[str, Sequence[TextMatch]]:
    found: dict[str, list[TextMatch]] = {}
    search = SqlPlanSearch(access.container.database)
    for one in search.find(wanted, project=project, scope=access.scope):
        around = _around(redact_text(one.text), wanted)
        if around is None:  # guard: a masked text is not found
            continue
        mine = found.setdefault(one.plan_id, [])
        match = TextMatch(place=one.place, text=around)
        if len(mine) < _MOST_MATCHES and match not in mine:
            mine.append(match)
    return found


def _around(text: str, wanted: str) -> str | None:
    """Return the part of the text around the query on one line; None if the text does not contain it."""
    at = text.lower().find(wanted.lower())
    if at < 0:
        return None
    start, end = max(0, at - _AROUND), min(len(text), at + len(wanted) + _AROUND)
    piece = " ".join(text[start:end].split())
    return f"{'… ' if start else ''}{piece}{' …' if end < len(text) else ''}"
