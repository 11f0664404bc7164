"""`agents events`: the audit log, live and verified."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from cleveragents.domain.json_value import freeze
from cleveragents.errors import AuditElsewhere, AuditLogBroken
from cleveragents.interfaces.cli.asking import confirmed
from cleveragents.interfaces.cli.output import Output, counted, format_option, progress
from cleveragents.interfaces.cli.session import Session, pass_session
from cleveragents.interfaces.desk.event_account import end_of_log, fields_of

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.ports.events import AuditRecord
    from cleveragents.domain.event import EventType

__all__ = ["events"]

_COLUMNS = ["position", "time", "type", "subject", "facts"]


@click.group()
def events() -> None:
    """Follow and verify the audit log.

    Every event of every process is in it, in one order, each row chained to the one before.

    \b
    Example:
      agents events verify
    """


@events.command()
@click.option("--follow", "-f", is_flag=True, help="Go on with events as they happen, until interrupted.")
@click.option("--after", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Only events after position N.")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1, 100_000), help="At most so many."
)
@click.option("--type", "type_name", metavar="TYPE", help="Only events of this type, such as job.succeeded.")
@format_option
@pass_session
def tail(
    session: Session, follow: bool, after: int | None, limit: int, type_name: str | None, output: Output
) -> None:
    """Show the latest events, or those after a position.

    A position is a cursor: with --after and the last one you have seen you miss nothing and see nothing
    twice. With --follow, --limit only bounds what is shown before the first new event.

    \b
    Example:
      agents events tail --limit 50
      agents events tail --follow --format stream-json
      agents events tail --after 1200 --type job.failed
    """
    from cleveragents.domain.event import EventType

    wanted = EventType.parse(type_name) if type_name is not None else None
    container = session.container()
    try:
        container.audit.sequence_pending()
    except AuditLogBroken as broken:
        # What is there may still be looked at, by somebody who knows that it cannot be trusted.
        progress(f"warning: {broken}; `agents events verify` names everything that is wrong")
    looked_until = end_of_log(container.database)  # before the look: what comes meanwhile is followed
    shown = _some(container, after, limit, wanted)
    output.table([fields_of(record) for record in shown], _COLUMNS, empty="there are no such events")
    if follow:
        _follow(container, shown[-1].position if shown else max(after or 0, looked_until), wanted, output)


@events.command()
@format_option
@pass_session
@click.pass_context
def verify(ctx: click.Context, session: Session, output: Output) -> None:
    """Verify that the audit log is what it was when it was written.

    Names every row that was changed, removed, moved or cut off, and exits with 1 if there is any.
    Where several machines share a database, one of them attests the log; on the others you are told which.

    \b
    Example:
      agents events verify
    """
    report = session.container().audit.verify()
    if output.for_programs:
        findings = freeze([{"position": f.position, "problem": f.problem} for f in report.findings])
        output.record({"ok": report.ok, "events": report.rows, "findings": findings})
    elif report.ok:
        click.echo(f"{counted(report.rows, 'event')}, verified")
    else:
        rows = [{"position": f.position or "head", "problem": f.problem} for f in report.findings]
        output.table(rows, ["position", "problem"], empty="")
    if not report.ok:
        found = counted(len(report.findings), "finding")
        progress(f"the audit log is broken: {found} in {counted(report.rows, 'event')}")
        progress("if a backup was restored or the head file lost, `agents events adopt` is the way on")
        ctx.exit(1)


@events.command()
@click.option("--yes", is_flag=True, help="Do it without asking.")
@pass_session
@click.pass_context
def adopt(ctx: click.Context, session: Session, yes: bool) -> None:
    """Attest the log as it stands, after a restored backup or a lost head file.

    Where several machines share a database and the one that attested the log is gone, this one does from
    now on. Nothing that is missing or was altered before this can be found afterwards, so look at
    `agents events verify` first. A log whose rows do not chain on is refused.

    \b
    Example:
      agents events adopt --yes
    """
    audit = session.container().audit
    try:
        for finding in audit.verify().findings:
            progress(str(finding))
    except AuditElsewhere as elsewhere:
        progress(f"it is attested by the state directory named {elsewhere.home}, and by this one afterwards")
    if not yes and not _confirmed():
        progress("nothing was changed; with --yes it is done without asking")
        ctx.exit(3)
    adopted = counted(audit.adopt(), "event")
    click.echo(f"{adopted}, attested as the log stands")


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        return False
    return confirmed("Attest the log as it stands?")


def _some(container: Container, after: int | None, limit: int, wanted: EventType | None) -> list[AuditRecord]:
    """The first `limit` events after a position or, without one, the last."""
    if after is not None:
        return list(islice(_records(container, after, wanted), limit))
    kept: deque[AuditRecord] = deque(maxlen=limit)
    start = 0 if wanted else max(0, end_of_log(container.database) - limit)
    kept.extend(_records(container, start, wanted))
    return list(kept)


def _records(container: Container, after: int, wanted: EventType | None) -> Iterator[AuditRecord]:
    while page := container.audit.read(after=after):
        yield from (record for record in page if wanted in (None, record.event.event_type))
        after = page[-1].position


def _follow(container: Container, after: int, wanted: EventType | None, output: Output) -> None:
    # Nothing sets it: an interrupt ends the command, and with it this.
    never = threading.Event()
    for record in container.audit.follow(after=after, stop=never):
        if wanted in (None, record.event.event_type):
            output.line(fields_of(record), _COLUMNS)
