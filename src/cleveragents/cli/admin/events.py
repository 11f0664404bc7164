"""`agents events`: follow, verify and anchor the audit log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.local_only import LocalCommand, LocalOption, goes_to_server
from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.cli.prompts import confirmed
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import AuditElsewhere

if TYPE_CHECKING:
    from cleveragents.api.events import AnchorView, VerificationView

__all__ = ["events"]

_COLUMNS = ["position", "time", "type", "subject", "facts"]
_OWN_ANCHOR = "the server uses its own audit.anchor; run the command on the server"
_OWN_KEY = "the signing key is on the machine of the log; run the command there"
_AT_THE_MACHINE = "only the machine of the log can attest it; run the command there"


@click.group()
def events() -> None:
    """Follow, verify and anchor the audit log.

    The log holds the events of all processes in one order; each row is chained to the one before.

    \b
    Example:
      agents events verify
    """


@events.command()
@click.option("--follow", "-f", is_flag=True, help="Print new events until interrupted.")
@click.option("--after", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Only events after position N.")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Maximum number of events.",
)
@click.option("--type", "type_name", metavar="TYPE", help="Only events of this type, such as job.succeeded.")
@format_option
@pass_session
def tail(
    session: Session, follow: bool, after: int | None, limit: int, type_name: str | None, output: Output
) -> None:
    """Show the latest events, or those after a position.

    A position is a cursor: --after with the last position you have seen continues without gaps or
    repetitions. With --follow, --limit bounds only the events before the first new one.

    \b
    Example:
      agents events tail --limit 50
      agents events tail --follow --format stream-json
      agents events tail --after 1200 --type job.failed
    """
    from cleveragents.api.views import as_json
    from cleveragents.core.event import EventType

    wanted = EventType.parse(type_name).value if type_name is not None else None
    log = session.client().events
    # Before reading the page, so that no event is missed in between.
    latest = log.list(limit=1).items if follow else ()
    page = log.list(after=after, limit=limit, event_type=wanted)
    if page.warning is not None:
        progress(f"warning: {page.warning}; list all findings with `agents events verify`")
    output.table([as_json(event) for event in page.items], _COLUMNS, empty="no events match")
    if follow:
        seen = page.items or latest
        last = max(after or 0, seen[-1].position if seen else 0)
        for event in log.follow(after=last, event_type=wanted):
            output.line(as_json(event), _COLUMNS)


@events.command()
@click.option(
    "--anchor",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="Compare with anchors at this target; may be repeated.",
    cls=LocalOption,
    reason=_OWN_ANCHOR,
)
@click.option(
    "--public-key",
    "public_keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Public keys that may have signed anchors.",
    cls=LocalOption,
    reason=_OWN_ANCHOR,
)
@click.option(
    "--without-head",
    is_flag=True,
    help="Verify against anchors only, without the key of the log's head.",
    cls=LocalOption,
    reason=_OWN_ANCHOR,
)
@format_option
@pass_session
@click.pass_context
def verify(
    ctx: click.Context,
    session: Session,
    targets: tuple[str, ...],
    public_keys: tuple[Path, ...],
    without_head: bool,
    output: Output,
) -> None:
    """Verify that the audit log was not changed.

    Lists every event that was changed, removed, moved or cut off; the exit code is 1 if there is any. With
    --anchor, or the setting audit.anchor, also compares the log with anchors outside this machine and prints
    the events they cover. If several machines share a database, one of them attests the log; the others need
    an anchor to verify it.

    \b
    Example:
      agents events verify
      agents events verify --anchor git+ssh://git@git.example/audit.git#build-1 --public-key audit.pem
    """
    if without_head and not (targets or session.configuration().settings.audit.anchor):
        raise click.UsageError("--without-head needs an anchor; pass --anchor TARGET", ctx)
    log = session.client().events
    report = log.verify(anchors=targets, public_keys=public_keys, use_head=not without_head)
    _show_verification(report, output)
    if not report.ok:
        there = " on the machine that keeps the log" if goes_to_server(ctx) else ""
        if report.anchors:
            progress(
                "restore a backup that matches the anchors, or attest the present log with `agents "
                "events adopt` and use a new anchor target"
            )
        else:
            progress(f"after a restored backup or a lost head file, run `agents events adopt`{there}")
        ctx.exit(1)


@events.command(cls=LocalCommand, reason=_OWN_KEY)
@click.argument("target", required=False)
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Private key for the signature.",
)
@click.option("--print-public-key", is_flag=True, help="Print the public key for anchors and exit.")
@format_option
@pass_session
def anchor(
    session: Session, target: str | None, key_file: Path | None, print_public_key: bool, output: Output
) -> None:
    """Anchor the audit log outside the machine.

    Signs the number of events and the hash of the last one, and appends the result to TARGET: a file, a URL
    (https://…) or a branch of a git remote (git+URL#BRANCH). The default TARGET is audit.anchor. Afterwards,
    `agents events verify --anchor TARGET` detects every change to these events, even by an attacker with the
    keys of this machine. A log that contradicts an anchor at TARGET is not anchored.

    \b
    Example:
      agents events anchor /mnt/worm/build-1.jsonl
      agents events anchor git+ssh://git@git.example/audit.git#build-1
    """
    anchors = session.container().anchors
    if print_public_key:
        click.echo(anchors.public_key(key_file), nl=False)
        return
    written = anchors.write(target, key_file)
    if written is None:
        progress("no events to anchor")
        return
    tip = written.anchor.tip
    if output.machine_readable:
        time, target = written.anchor.time, written.target
        output.record(
            {"target": target, "events": tip.rows, "hash": tip.hash, "time": time, "new": written.new}
        )
    else:
        how = "anchored" if written.new else "anchored already"
        click.echo(f"{counted(tip.rows, 'event')} {how} at {written.target}")


@events.command(cls=LocalCommand, reason=_AT_THE_MACHINE)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_session
@click.pass_context
def adopt(ctx: click.Context, session: Session, yes: bool) -> None:
    """Attest the log in its present state, after a restored backup or a lost head file.

    If several machines share a database and the one that attested the log is gone, this machine attests it
    from now on. Earlier changes cannot be detected afterwards: run `agents events verify` first. A log with a
    broken chain is refused.

    \b
    Example:
      agents events adopt --yes
    """
    audit = session.container().audit
    try:
        for finding in audit.verify().findings:
            progress(str(finding))
    except AuditElsewhere as elsewhere:
        progress(f"the state directory {elsewhere.home} attested the log so far; from now on, this one does")
    if not yes and not _confirmed():
        progress("nothing changed; pass --yes to skip the question")
        ctx.exit(3)
    adopted = counted(audit.adopt(), "event")
    click.echo(f"{adopted}, attested in the present state")


def _show_verification(report: VerificationView, output: Output) -> None:
    """Print the findings of a verification and the events that anchors cover."""
    from cleveragents.api.views import as_json

    events_in = counted(report.events, "event")
    if output.machine_readable:
        output.record(as_json(report))
    elif report.ok:
        click.echo(f"{events_in}, verified")
    else:
        rows = [{"position": found.position or "log", "problem": found.problem} for found in report.findings]
        output.table(rows, ["position", "problem"], empty="")
    if not output.machine_readable:
        for covered in report.anchors:
            click.echo(_coverage(covered, report.events))
    if not report.ok:
        progress(f"the audit log is broken: {counted(len(report.findings), 'finding')} in {events_in}")


def _coverage(covered: AnchorView, rows: int) -> str:
    if not covered.events:
        return f"anchored: no event matches an anchor at {covered.target}"
    matched = f"anchored: events 1 to {covered.events} as of {covered.time}, at {covered.target}"
    rest = rows - covered.events
    return f"{matched}; {counted(rest, 'event')} after that" if rest > 0 else matched


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        return False
    return confirmed("Attest the log in its present state?")
