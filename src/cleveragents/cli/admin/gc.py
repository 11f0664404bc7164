"""`agents gc`: frees the disk that ended plans still use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from cleveragents.cli.doctor.remote_orphans import remove_mirrors
from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.cli.session import Session, pass_session
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
@click.option("--older-than", type=Age(), default="30d", show_default=True, help="Ended so long ago.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@format_option
@pass_session
def gc(session: Session, older_than: timedelta, dry_run: bool, output: Output) -> None:
    """Remove the sandboxes of plans that ended.

    Gone with them is what was said in those plans, word by word, and what they wrote to a log in the
    background; what they decided, did and changed stays on record. Indexes of directories that are no
    longer there are removed as well, and so is what was kept of plans on git remotes for other machines, and
    mirrors of remotes that no plan and no resource names.

    Where all sandboxes together use more than sandbox.quota_bytes, younger ones of ended plans go, too, the
    oldest first. A plan whose result still waits for a decision keeps its sandbox, and so does one that is
    in use, or in which files were edited by hand. Without its sandbox an applied plan cannot be undone, nor
    can what a plan changed be shown; which plans that ends for is said before it is done.

    \b
    Example:
      agents gc --older-than 30d --dry-run
    """
    container = session.container()
    quota = container.settings.sandbox.quota_bytes
    progress("looking through the sandboxes …")
    freed = container.plan_parts.cleanup.collect(
        older_than, quota_bytes=quota, dry_run=dry_run, told=progress, about=_tell_next
    )
    rows: list[dict[str, JsonValue]] = [
        {"plan": one.plan_id, "state": one.state, "bytes": one.bytes, "ends": list(one.ends)} for one in freed
    ]
    if not output.machine_readable:
        rows = [row | {"ends": _spelt(one)} for row, one in zip(rows, freed, strict=True)]
    none = f"there is nothing to remove of plans that ended more than {_age(older_than)} ago"
    output.table(rows, ["plan", "state", "bytes", "ends"], empty=none)
    if freed:
        _tell_end(freed, dry_run)
    said = container.plan_parts.cleanup.forget_conversations(older_than, dry_run=dry_run)
    logs = _logs_removed(container, older_than, dry_run)
    told = "nothing was removed, as you asked" if dry_run else "removed"
    for found, what in ((said, "what was said in"), (logs, "the log of")):
        if found:
            progress(f"{what} {counted(len(found), 'plan')}: {told}")
    copies = container.plan_parts.sandboxes.discard_copies(dry_run=dry_run)
    if copies:
        progress(f"{counted(copies, 'copy', 'copies')} of what other machines have: {told}")
    remotes = container.plan_parts.remotes
    kept, mirrors = (
        remotes.forget_contents(older_than, dry_run=dry_run),
        remove_mirrors(remotes, dry_run=dry_run),
    )
    for count, what in ((kept, "changed file"), (mirrors, "mirror")):
        if count:
            progress(f"{counted(count, what)} of git remotes that no plan needs any more: {told}")
    given_back = 0 if dry_run else container.context_parts.index.prune()
    if given_back:
        progress(f"indexes of what is no longer there: {given_back:,} bytes freed")


def _logs_removed(container: Container, older_than: timedelta, dry_run: bool) -> list[str]:
    from cleveragents.plans.background_logs import logged_plans, remove_log

    cutoff = container.clock.now() - older_than
    cleanup, state = container.plan_parts.cleanup, container.state_directory
    past = [plan_id for plan_id in logged_plans(state) if cleanup.is_past(plan_id, cutoff)]
    return [plan_id for plan_id in past if dry_run or remove_log(state, plan_id)]


def _age(older_than: timedelta) -> str:
    """As the option takes it, in the largest unit that fits."""
    for unit in "dhm":
        length = timedelta(**{_UNITS[unit]: 1})
        if older_than and not older_than % length:
            return f"{older_than // length}{unit}"
    return "0m"


def _tell_next(one: RemovedSandbox) -> None:
    """Said before it is done: a removal may take long, and what it ends is gone for good."""
    ends = f", which ends its {_spelt(one)}" if one.ends else ""
    progress(f"removing the sandbox of plan {one.plan_id} ({one.state}){ends}")


def _tell_end(freed: Sequence[RemovedSandbox], dry_run: bool) -> None:
    total = sum(one.bytes for one in freed)
    told = f"{counted(len(freed), 'sandbox', 'sandboxes')}, {total:,} bytes"
    progress(f"{told}: nothing was removed, as you asked" if dry_run else f"{told} freed")
    final = sum("undo" in one.ends for one in freed)
    if final:
        could = "could not be undone any more" if dry_run else "cannot be undone any more"
        progress(f"{counted(final, 'applied plan')} {could}")


def _spelt(one: RemovedSandbox) -> str:
    return " and ".join(one.ends)
