"""`agents gc`: remove sandboxes of ended plans and other unused files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.status_text import plan_status
from cleveragents.cli.doctor.remote_orphans import remove_mirrors
from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import UnknownPlan
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.plans.cleanup import RemovedSandbox

__all__ = ["Age", "gc"]

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    """`30d`, `12h`, `45m`, `2w`."""

    name = "age"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,6})([mhdw])", value)
        if found is None:
            self.fail(f"{value!r} is not an age; write 30d, 12h, 45m or 2w", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})


@click.command()
@click.option(
    "--older-than", type=Age(), default="30d", show_default=True, help="Minimum time since the plan ended."
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@format_option
@pass_session
def gc(session: Session, older_than: timedelta, dry_run: bool, output: Output) -> None:
    """Remove the sandboxes of ended plans.

    Also removes transcripts and background logs of these plans, indexes of missing directories, and unused
    data of git remotes. Decisions, calls and changes of all plans stay on record.

    If all sandboxes together use more than sandbox.quota_bytes, more sandboxes of ended plans are removed,
    the oldest first. A plan keeps its sandbox while its result is ready or blocked, while the sandbox is in
    use, and if it holds files edited by hand. Without its sandbox, an applied plan cannot be undone, and its
    diff cannot be shown; gc names these plans before it removes anything.

    \b
    Example:
      agents gc --older-than 30d --dry-run
    """
    container = session.container()
    quota = container.settings.sandbox.quota_bytes
    progress("examining sandboxes …")
    freed = container.plan_parts.cleanup.collect(
        older_than, quota_bytes=quota, dry_run=dry_run, told=progress, about=partial(_tell_next, container)
    )
    rows: list[dict[str, JsonValue]] = [
        {
            "plan": one.plan_id,
            "status": _status_of(container, one),
            "state": one.state,
            "bytes": one.bytes,
            "ends": list(one.ends),
        }
        for one in freed
    ]
    if not output.machine_readable:
        rows = [row | {"ends": _spelt(one)} for row, one in zip(rows, freed, strict=True)]
    none = f"nothing to remove: no sandbox of a plan that ended more than {_age(older_than)} ago"
    output.table(rows, ["plan", "status", "bytes", "ends"], empty=none)
    if freed:
        _tell_end(freed, dry_run)
    said = container.plan_parts.cleanup.forget_conversations(older_than, dry_run=dry_run)
    logs = _logs_removed(container, older_than, dry_run)
    told = "would be removed" if dry_run else "removed"
    for found, what in ((said, "transcripts"), (logs, "logs")):
        if found:
            progress(f"{what} of {counted(len(found), 'plan')}: {told}")
    copies = container.plan_parts.sandboxes.discard_copies(dry_run=dry_run)
    if copies:
        progress(f"{counted(copies, 'copy', 'copies')} of sandboxes on other machines: {told}")
    remotes = container.plan_parts.remotes
    kept, mirrors = (
        remotes.forget_contents(older_than, dry_run=dry_run),
        remove_mirrors(remotes, dry_run=dry_run),
    )
    for count, what in ((kept, "changed file"), (mirrors, "mirror")):
        if count:
            progress(f"{counted(count, what)} of unused git remotes: {told}")
    given_back = 0 if dry_run else container.context_parts.index.prune()
    if given_back:
        progress(f"indexes of missing directories: {given_back:,} bytes freed")


def _logs_removed(container: Container, older_than: timedelta, dry_run: bool) -> list[str]:
    from cleveragents.plans.background_logs import logged_plans, remove_log

    cutoff = container.clock.now() - older_than
    cleanup, state = container.plan_parts.cleanup, container.state_directory
    past = [plan_id for plan_id in logged_plans(state) if cleanup.is_past(plan_id, cutoff)]
    return [plan_id for plan_id in past if dry_run or remove_log(state, plan_id)]


def _age(older_than: timedelta) -> str:
    """Return the age in the form of the option, in the largest unit that gives a whole number."""
    for unit in "dhm":
        length = timedelta(**{_UNITS[unit]: 1})
        if older_than and not older_than % length:
            return f"{older_than // length}{unit}"
    return "0m"


def _status_of(container: Container, one: RemovedSandbox) -> str:
    try:
        return plan_status(container.plan_parts, container.plan_parts.plans.get(one.plan_id)).value
    except UnknownPlan:
        return one.state


def _tell_next(container: Container, one: RemovedSandbox) -> None:
    """Print the next removal before it starts. A removal may take long, and cannot be reverted."""
    ends = f"; afterwards, {_spelt(one)} is no longer possible" if one.ends else ""
    progress(f"removing the sandbox of plan {one.plan_id} ({_status_of(container, one)}){ends}")


def _tell_end(freed: Sequence[RemovedSandbox], dry_run: bool) -> None:
    total = sum(one.bytes for one in freed)
    told = f"{counted(len(freed), 'sandbox', 'sandboxes')}, {total:,} bytes"
    progress(f"{told}: would be removed" if dry_run else f"{told} freed")
    final = sum("undo" in one.ends for one in freed)
    if final:
        could = "could no longer be undone" if dry_run else "can no longer be undone"
        progress(f"{counted(final, 'applied plan')} {could}")


def _spelt(one: RemovedSandbox) -> str:
    return " or ".join(one.ends)
