"""Search over plans: goals, answers, transcripts and changes, with the text around each match.

A match in a masked part of a text does not count, because a search must not confirm a guessed secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.api.plans.summary import PlanSummary
from cleveragents.api.views import shown, view, view_of
from cleveragents.core.errors import RequestRefused, UnknownPlan
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.store.sql_plan_search import FoundText, Place, SqlPlanSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cleveragents.api.access import Access

__all__ = ["FoundPlan", "TextMatch", "first_matches", "found_plans"]

_SHORTEST = 2
_LONGEST = 200
_MOST_MATCHES = 3
_AROUND = 60
_MOST_MASKED = 400
"""Maximum number of texts that one search masks. Masking takes most of the time of a search."""
_MOST_CHARACTERS = 4_000_000


@view
class TextMatch:
    """A text of a plan that contains the query."""

    place: Place = shown(
        "the place of the match: the goal, the answer, the transcript, or the changes",
        examples=["transcript"],
    )
    text: str = shown("the text around the match: one line, masked", examples=["… total() takes 10 % off …"])


@view
class FoundPlan:
    """A plan that a search found."""

    plan: PlanSummary
    matches: tuple[TextMatch, ...] = shown("the first matches, at most three")


def found_plans(access: Access, text: str, project: str | None, limit: int) -> tuple[FoundPlan, ...]:
    """Return the plans that contain the text, newest first. Raises `RequestRefused` if the text is too short
    or too long.
    """
    from cleveragents.api.plans.overview import board_row, children_in

    wanted = text.strip()
    if not _SHORTEST <= len(wanted) <= _LONGEST:
        raise RequestRefused(f"a search takes {_SHORTEST} to {_LONGEST} characters", "text")
    parts = access.container.plan_parts
    found: list[FoundPlan] = []
    texts = SqlPlanSearch(access.container.database).find(wanted, project=project, scope=access.scope)
    for plan_id, matches in first_matches(texts, wanted, limit).items():
        try:
            plan = parts.plans.get(plan_id)
        except UnknownPlan:  # deleted meanwhile
            continue
        children = children_in(parts, [plan]).get(plan_id, ())
        summary = view_of(PlanSummary, board_row(parts, plan, children))
        found.append(FoundPlan(plan=summary, matches=tuple(matches)))
    return tuple(found)


def first_matches(
    texts: Iterable[FoundText], wanted: str, limit: int, mask: Callable[[str], str] = redact_text
) -> Mapping[str, Sequence[TextMatch]]:
    """Return the first matches of the first `limit` plans, by the id of the plan. In `texts`, the texts of
    one plan must be adjacent.

    At most 400 texts with 4,000,000 characters are masked; later texts are not searched.
    """
    found: dict[str, list[TextMatch]] = {}
    texts_left, characters_left = _MOST_MASKED, _MOST_CHARACTERS
    for one in texts:
        mine = found.get(one.plan_id, [])
        if len(mine) == _MOST_MATCHES:
            continue
        texts_left, characters_left = texts_left - 1, characters_left - len(one.text)
        # guard: a request takes bounded time, whatever the plans contain
        if min(texts_left, characters_left) < 0 or (not mine and len(found) == limit):
            break
        around = _around(mask(one.text), wanted)
        if around is None:  # guard: a masked text is not found
            continue
        match = TextMatch(place=one.place, text=around)
        if match not in mine:
            found[one.plan_id] = [*mine, match]
    return found


def _around(text: str, wanted: str) -> str | None:
    """Return the part of the text around the query on one line; None if the text does not
    contain the query.
    """
    at = text.lower().find(wanted.lower())
    if at < 0:
        return None
    start, end = max(0, at - _AROUND), min(len(text), at + len(wanted) + _AROUND)
    piece = " ".join(text[start:end].split())
    return f"{'… ' if start else ''}{piece}{' …' if end < len(text) else ''}"
