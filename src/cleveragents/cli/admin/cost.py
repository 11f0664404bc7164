"""`agents cost`: the costs of model calls by day, project, model or actor."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, get_args

import click

from cleveragents.api.costs import CostGroup
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.costs import CostView
    from cleveragents.core.json_value import JsonValue

__all__ = ["cost"]

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option(
    "--by", type=click.Choice(get_args(CostGroup)), default="day", show_default=True, help="Group the calls."
)
@click.option("--since", type=_DAY, metavar="DATE", help="The first day. Default: 30 days ago.")
@click.option("--until", type=_DAY, metavar="DATE", help="The last day. Default: today, in UTC.")
@click.option("--project", metavar="NAME", help="Only plans of this project.")
@format_option
@pass_session
def cost(
    session: Session,
    by: CostGroup,
    since: datetime | None,
    until: datetime | None,
    project: str | None,
    output: Output,
) -> None:
    """Show the costs of model calls by day, project, model or actor.

    Deleted plans are not counted. A call with an unknown price counts as $0; a note names their number.

    \b
    Example:
      agents cost
      agents cost --by model --since 2026-11-01
    """
    first, last = (None if day is None else day.date() for day in (since, until))
    found = session.client().costs.list(by, since=first, until=last, project=project)
    rows = [_row(one, by, output) for one in found]
    columns = [by, "usd", "calls", "input_tokens", "cached_tokens", "output_tokens"]
    output.table(rows, columns, empty="no model calls in these days")
    if found and not output.machine_readable:
        unpriced = sum(one.unpriced for one in found)
        note = f"; the price of {unpriced:,} calls is unknown" if unpriced else ""
        progress(f"total ${sum(one.usd for one in found):.4f}{note}")


def _row(one: CostView, by: str, output: Output) -> dict[str, JsonValue]:
    from cleveragents.api.views import as_json

    row: dict[str, JsonValue] = as_json(one)
    if output.machine_readable:
        return {by: row.pop("name"), **row}
    return {**row, by: one.name, "usd": f"${one.usd:.4f}"}
