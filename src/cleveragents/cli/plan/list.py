"""`agents plan list`: plans, with their sub-plans below them."""

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
from cleveragents.plans.model.status import PlanStatus, possible_states

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanSummary

__all__ = ["empty_list_message", "list_plans"]

Row = dict[str, JsonValue]

_STATUSES = tuple(status.value for status in PlanStatus)
_STATES = tuple(state.value for state in PlanState)


@click.command("list")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(_STATUSES),
    help="Only plans with this status; may be repeated.",
)
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), hidden=True)  # before --status
@click.option("--here", is_flag=True, help="Only plans of the current repository or directory.")
@click.option("--all", "every", is_flag=True, help="Include all sub-plans, below their plans.")
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Maximum number of plans.",
)
@click.option("--after", metavar="ID", help="List the plans after this one, instead of the latest.")
@format_option
@pass_session
def list_plans(
    session: Session,
    statuses: tuple[str, ...],
    states: tuple[str, ...],
    here: bool,
    every: bool,
    limit: int,
    after: str | None,
    output: Output,
) -> None:
    """List plans, the latest last.

    Sub-plans are listed only if they need a person; --all lists all of them. On a terminal each plan takes
    one line; long values are shortened.

    \b
    Example:
      agents plan list --status ready --status blocked
      agents plan list --here --all
    """
    plans = _found(session, statuses, states, here=here, every=every, after=after)
    if after is None:  # one more than is shown, to know whether there are more
        known = [*islice(plans, limit + 1)]
        shown = known[:limit][::-1]
    else:
        known = [*takewhile(lambda plan: plan.id > after, plans)][::-1]
        shown = known[:limit]
    found = _in_families(shown)
    ids = {plan.id for plan in found}
    rows = [_row(plan, output, below=plan.parent in ids) for plan in found]
    if output.human_readable and is_narrow():
        shorts = short_ids([plan.id for plan in found])
        rows = [row | {"id": shorts[plan.id]} for plan, row in zip(found, rows, strict=True)]
    output.table(
        rows,
        ["id", "status", "updated", "goal"],
        empty=empty_list_message(narrowed=bool(statuses or states or here or after)),
        cut=["goal"],
        spare=["updated"],
    )
    if len(known) > limit and after is None:
        progress(f"only the latest {limit} plans are shown; raise --limit to show more")
    elif len(known) > limit:
        progress(f"there are more plans: pass --after {shown[-1].id}")


def _found(
    session: Session,
    statuses: Sequence[str],
    states: Sequence[str],
    *,
    here: bool,
    every: bool,
    after: str | None,
) -> Iterator[PlanSummary]:
    """Yield plans, newest first."""
    from cleveragents.api.views import every as all_of
    from cleveragents.cli.servers import prefix_of, selected_url

    client = session.client()
    resource = place = None
    if here and selected_url(click.get_current_context(), session) is not None:
        from cleveragents.cli.run.server_resources import resource_here

        resource = resource_here(client, prefix_of(session), None, otherwise="omit --here")
    elif here:
        from cleveragents.sandboxes.resources import find_resource

        place = str(find_resource(Path.cwd())[0])
    selected = [PlanStatus(status) for status in statuses]
    # The server filters by state; the status is checked below.
    asked = {PlanState(state) for state in states}.union(*map(possible_states, selected))
    found = all_of(
        lambda last: client.plans.list(states=sorted(asked), resource=resource, sub_plans=every, after=last)
    )
    return (
        plan
        for plan in found
        if place in (None, plan.resource)
        if not (statuses or states) or plan.status in selected or plan.state.value in states
    )


def _in_families(plans: Sequence[PlanSummary]) -> list[PlanSummary]:
    """Return the plans with sub-plans after their parents; one without a listed parent keeps its place."""
    known = {plan.id for plan in plans}
    children: dict[str | None, list[PlanSummary]] = {}
    for plan in plans:
        children.setdefault(plan.parent if plan.parent in known else None, []).append(plan)

    def family(parent: str | None) -> list[PlanSummary]:
        return [one for plan in children.get(parent, ()) for one in (plan, *family(plan.id))]

    return family(None)


def empty_list_message(*, narrowed: bool) -> str:
    """Return the message for an empty list; `narrowed` by options or not."""
    return "no plans match" if narrowed else "no plans yet; start one with `agents run`"


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
    if output.human_readable:
        label = plan.label if plan.label.startswith(plan.status.value) else plan.status.value
        row |= {"updated": ago(plan.updated, datetime.now(UTC)), "status": label}
    return row
