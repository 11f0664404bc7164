"""`agents plan list`: what plans there are, those that belong to others below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import fields_of
from cleveragents.api.plans.listing import children_in, in_families, listed, row_of
from cleveragents.api.plans.meanings import goal_of, state_in_short
from cleveragents.cli.output import Output, ago, format_option, progress
from cleveragents.cli.plan.outcome import short_ids
from cleveragents.cli.render.narrow import is_narrow
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.family import short_of, title_with_goal
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans

if TYPE_CHECKING:
    from datetime import datetime

    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["list_plans", "none_listed"]

Row = dict[str, JsonValue]

_STATES = tuple(state.value for state in PlanState)


@click.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these; may be repeated."
)
@click.option("--here", is_flag=True, help="Only plans of the repository or directory you are in.")
@click.option("--all", "every", is_flag=True, help="Sub-plans, too, below the plans that they are parts of.")
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="At most so many, the latest of them.",
)
@click.option("--after", metavar="ID", help="The first ones after this plan, instead of the latest.")
@format_option
@pass_session
def list_plans(
    session: Session,
    states: tuple[str, ...],
    here: bool,
    every: bool,
    limit: int,
    after: str | None,
    output: Output,
) -> None:
    """List plans, the latest last.

    Of sub-plans only those that need somebody are listed, unless --all is said. On a terminal each plan keeps
    to one line: what does not fit is shortened or left out.

    \b
    Example:
      agents plan list --state complete --state constrained
      agents plan list --here --all
    """
    from pathlib import Path

    from cleveragents.sandboxes.resources import find_resource

    container = session.container()
    parts = container.plan_parts
    resource = str(find_resource(Path.cwd())[0]) if here else None
    wanted = [PlanState(state) for state in states]
    found, more = listed(parts, wanted, resource, limit, after, every)
    last = found[-1].id if found else ""
    found = in_families(found)
    known, now = {plan.id for plan in found}, container.clock.now()
    split = children_in(parts, found)
    rows = [
        _row(parts, plan, split.get(plan.id, ()), output, now, below=plan.parent_id in known)
        for plan in found
    ]
    columns = ["id", "phase", "state", "updated", "goal"]
    if output.for_eyes:
        columns.remove("phase")  # an id and a goal need the room
        if is_narrow():
            shorts = short_ids(found)
            rows = [row | {"id": shorts[plan.id]} for plan, row in zip(found, rows, strict=True)]
    output.table(
        rows,
        columns,
        empty=none_listed(narrowed=bool(states or here or after)),
        cut=["goal"],
        spare=["updated"],
    )
    if more and after is None:
        progress(f"these are the latest {limit}; --limit shows more")
    elif more:
        progress(f"there may be more: --after {last}")


def none_listed(*, narrowed: bool) -> str:
    """What is said where a list would be; only if something was asked for are there others."""
    return "there are no such plans" if narrowed else "there are no plans yet; `agents run` makes one"


def _row(
    parts: PlanParts, plan: Plan, children: Sequence[Plan], output: Output, now: datetime, *, below: bool
) -> Row:
    """One that is not `below` its parent in the list names it."""
    if output.for_programs:
        return row_of(parts, plan, children)
    row = fields_of(plan) | {"goal": goal_of(plan)}
    if plan.parent_id is not None:
        whole = "" if below else f" (part of {short_of(plan.parent_id)})"
        row |= {"goal": f"{'  ' * plan.depth * below}{title_with_goal(plan)}{whole}"}
    if waits_for_sub_plans(plan):  # and not for whoever reads this
        row |= {"state": state_in_short(parts, plan)}
    if output.for_eyes:
        row |= {"updated": ago(plan.updated_at, now), "state": state_in_short(parts, plan)}
    return row
