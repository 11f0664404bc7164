"""`agents plan list`: plans, with their sub-plans below them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, ago, counted, format_option, progress
from cleveragents.cli.plan.choose import place_here
from cleveragents.cli.plan.exit_codes import short_ids
from cleveragents.cli.render.narrow_terminal import is_narrow
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.family import short_of
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.status import PlanStatus, possible_states

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.plans.summary import PlanSummary

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
@click.option("--all", "every", is_flag=True, help="Plans of all repositories, with all sub-plans.")
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

    Inside a repository, only its plans are listed; outside, or with --all, those of all repositories.
    Sub-plans are listed only if they need a person; --all lists all of them. --here --all lists all plans and
    sub-plans of this repository. On a terminal each plan takes one line; long values are shortened.

    \b
    Example:
      agents plan list --status ready --status blocked
      agents plan list --all
    """
    client = session.client()
    place = _place(session, client, here=here, every=every)
    plans = _found(client, statuses, states, place=place, every=every)
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
        ["id", "status", "updated", *(["repository"] if place is None else []), "goal"],
        empty=empty_list_message(narrowed=bool(statuses or states or here or after), here=place is not None),
        cut=["goal"],
        spare=["updated", "repository"],
    )
    if len(known) > limit and after is None:
        progress(f"only the latest {limit} plans are shown; raise --limit to show more")
    elif len(known) > limit:
        progress(f"there are more plans: pass --after {shown[-1].id}")
    if place is not None and not here:
        whole = not (statuses or states or after) and len(known) <= limit
        _tell_others(client, sum(plan.parent is None for plan in found) if whole else None)
    elif place is None and found and not every:
        _tell_all()


def _place(session: Session, client: Client, *, here: bool, every: bool) -> str | None:
    """Return the repository whose plans are listed, in the form that `plans.list` accepts; None for all
    repositories.
    """
    from cleveragents.cli.servers import prefix_of, selected_url

    if not here:
        return None if every else place_here(client)
    if selected_url(click.get_current_context(), session) is not None:
        from cleveragents.cli.run.server_resources import resource_here

        return resource_here(client, prefix_of(session), None, otherwise="omit --here")
    from cleveragents.sandboxes.resources import find_resource

    return str(find_resource(Path.cwd())[0])


def _tell_others(client: Client, listed: int | None) -> None:
    """Print that plans of other repositories are not listed; with their number if `listed`, the number of
    listed plans, is given.
    """
    total = sum(one.count for one in client.plans.counts())
    if listed is None:
        progress("only plans of this repository are listed; pass --all for all")
    elif total > listed:
        others = counted(total - listed, "plan")
        progress(f"{others} of other repositories not listed; pass --all")


def _tell_all() -> None:
    """Print that the list is not limited to one repository, and why."""
    from cleveragents.cli.local_only import goes_to_server

    why = "not in a git repository"
    if goes_to_server(click.get_current_context()):
        why = "no single resource of the server matches this directory"
    progress(f"{why}, so the plans of all repositories are listed")


def _found(
    client: Client,
    statuses: Sequence[str],
    states: Sequence[str],
    *,
    place: str | None,
    every: bool,
) -> Iterator[PlanSummary]:
    """Yield plans, newest first."""
    from cleveragents.api.views import every as all_of

    selected = [PlanStatus(status) for status in statuses]
    # The server filters by state; the status is checked below.
    asked = {PlanState(state) for state in states}.union(*map(possible_states, selected))
    found = all_of(
        lambda last: client.plans.list(states=sorted(asked), resource=place, sub_plans=every, after=last)
    )
    return (
        plan
        for plan in found
        if not (statuses or states) or plan.status in selected or plan.state.value in states
    )


def _in_families(plans: Sequence[PlanSummary]) -> list[PlanSummary]:
    """Return the plans, with sub-plans after their parents. A sub-plan whose parent is not listed keeps its
    place.
    """
    known = {plan.id for plan in plans}
    children: dict[str | None, list[PlanSummary]] = {}
    for plan in plans:
        children.setdefault(plan.parent if plan.parent in known else None, []).append(plan)

    def family(parent: str | None) -> list[PlanSummary]:
        return [one for plan in children.get(parent, ()) for one in (plan, *family(plan.id))]

    return family(None)


def empty_list_message(*, narrowed: bool, here: bool = False) -> str:
    """Return the message for an empty list. `narrowed`: options limit the list. `here`: only plans of this
    repository are listed.
    """
    if narrowed:
        return "no plans match"
    return f"no plans {'here ' if here else ''}yet; start one with `agents run`"


def repository_name(plan: PlanSummary) -> str:
    """Return the name of the plan's resource, or the last part of its path or URL."""
    return plan.resource_name or plan.resource.rstrip("/").rpartition("/")[2].removesuffix(".git") or "/"


def _row(plan: PlanSummary, output: Output, *, below: bool) -> Row:
    """Return the row of a plan. The row of a sub-plan not listed `below` its parent names the parent."""
    from cleveragents.api.views import as_json

    row: Row = as_json(plan)
    if output.machine_readable:
        return row
    row |= {"goal": plan.title, "repository": repository_name(plan)}
    if plan.parent is not None:
        whole = "" if below else f" (part of {short_of(plan.parent)})"
        row |= {"goal": f"{'  ' * plan.depth * below}{plan.title}{whole}"}
    if output.human_readable:
        label = plan.label if plan.label.startswith(plan.status.value) else plan.status.value
        row |= {"updated": ago(plan.updated, datetime.now(UTC)), "status": label}
    return row
