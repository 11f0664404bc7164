"""`agents plan list`: what plans there are, those that belong to others below them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, ago, format_option, progress
from cleveragents.cli.plan.exit_codes import short_ids
from cleveragents.cli.render.narrow_terminal import is_narrow
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.family import short_of
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanSummary

__all__ = ["empty_list_message", "list_plans"]

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
    plans = _wanted(session, states, here=here, every=every, after=after)
    if after is None:  # one more than is shown says whether there are others
        known = [*islice(plans, limit + 1)]
        shown = known[:limit][::-1]
    else:
        known = [*takewhile(lambda plan: plan.id > after, plans)][::-1]
        shown = known[:limit]
    found = _in_families(shown)
    ids = {plan.id for plan in found}
    rows = [_row(plan, output, below=plan.parent in ids) for plan in found]
    columns = ["id", "phase", "state", "updated", "goal"]
    if output.human_readable:
        columns.remove("phase")  # an id and a goal need the room
        if is_narrow():
            shorts = short_ids([plan.id for plan in found])
            rows = [row | {"id": shorts[plan.id]} for plan, row in zip(found, rows, strict=True)]
    output.table(
        rows,
        columns,
        empty=empty_list_message(narrowed=bool(states or here or after)),
        cut=["goal"],
        spare=["updated"],
    )
    if len(known) > limit and after is None:
        progress(f"these are the latest {limit}; --limit shows more")
    elif len(known) > limit:
        progress(f"there are more: --after {shown[-1].id}")


def _wanted(
    session: Session, states: Sequence[str], *, here: bool, every: bool, after: str | None
) -> Iterator[PlanSummary]:
    """Yield plans, newest first."""
    from cleveragents.api.views import every as all_of
    from cleveragents.cli.servers import prefix_of, selected_url

    client = session.client()
    resource = place = None
    if here and selected_url(click.get_current_context(), session) is not None:
        from cleveragents.cli.run.server_resources import resource_here

        resource = resource_here(client, prefix_of(session), None, otherwise="leave --here out")
    elif here:
        from cleveragents.sandboxes.resources import find_resource

        place = str(find_resource(Path.cwd())[0])
    wanted = [PlanState(state) for state in states]
    found = all_of(
        lambda last: client.plans.list(states=wanted, resource=resource, sub_plans=every, after=last)
    )
    return (plan for plan in found if place in (None, plan.resource))


def _in_families(plans: Sequence[PlanSummary]) -> list[PlanSummary]:
    """Sub-plans after their parents; those whose parent is not among them stay where they are."""
    known = {plan.id for plan in plans}
    children: dict[str | None, list[PlanSummary]] = {}
    for plan in plans:
        children.setdefault(plan.parent if plan.parent in known else None, []).append(plan)

    def family(parent: str | None) -> list[PlanSummary]:
        return [one for plan in children.get(parent, ()) for one in (plan, *family(plan.id))]

    return family(None)


def empty_list_message(*, narrowed: bool) -> str:
    """What is said where a list would be; only if something was asked for are there others."""
    return "there are no such plans" if narrowed else "there are no plans yet; `agents run` makes one"


def _row(plan: PlanSummary, output: Output, *, below: bool) -> Row:
    """Return a row. A sub-plan that is not `below` its parent in the list names it."""
    from cleveragents.api.views import as_json

    row: Row = as_json(plan)
    if output.machine_readable:
        return row
    row |= {"goal": plan.title}
    if plan.parent is not None:
        whole = "" if below else f" (part of {short_of(plan.parent)})"
        row |= {"goal": f"{'  ' * plan.depth * below}{plan.title}{whole}"}
    if plan.waits_for_sub_plans:  # and not for whoever reads this
        row |= {"state": plan.label}
    if output.human_readable:
        row |= {"updated": ago(plan.updated, datetime.now(UTC)), "state": plan.label}
    return row
