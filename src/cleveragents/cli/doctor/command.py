"""`agents doctor`: check the installation and the state, and remove orphans of crashes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from cleveragents.cli.doctor.checks import (
    DoctorCheck,
    DoctorVerdict,
    bubblewrap,
    disk_space,
    git,
    perform,
    python,
    sqlite,
    state_directory,
)
from cleveragents.cli.doctor.orphans import findings_of
from cleveragents.cli.doctor.service_checks import service_findings
from cleveragents.cli.doctor.state_checks import state_findings
from cleveragents.cli.doctor.stray_orphans import setup_drafts, temporary_directories
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue

__all__ = ["doctor"]


@click.command()
@click.option("--fix", is_flag=True, help="Remove or complete what crashes left behind.")
@click.option("--mend", is_flag=True, hidden=True)  # the earlier name of --fix
@format_option
@pass_session
@click.pass_context
def doctor(ctx: click.Context, session: Session, fix: bool, mend: bool, output: Output) -> None:
    """Check the installation and the state of this machine.

    Each check is ok, warn (works, with a limitation) or fail, with a remedy. The exit code is 1 if any check
    failed.

    Also finds what crashes left behind: interrupted applies and their files, sandboxes, refs, processes,
    temporary directories. --fix completes or removes them. It keeps whatever holds changes, is in use, or
    belongs to another user or state directory.

    \b
    Example:
      agents doctor
      agents doctor --fix
      agents doctor --format json
    """
    findings = list(_findings(session, fix or mend))
    rows: list[dict[str, JsonValue]] = [
        {"check": c.name, "verdict": c.verdict.value, "finding": c.finding, "remedy": c.remedy}
        for c in findings
    ]
    if output.human_readable:
        # Two wide columns do not fit on a terminal.
        rows = [{**row, "finding": _in_one(check)} for row, check in zip(rows, findings, strict=True)]
        output.table(rows, ["check", "verdict", "finding"], empty="")
    else:
        output.table(rows, ["check", "verdict", "finding", "remedy"], empty="")
    fixed = any(c.verdict is DoctorVerdict.FIXED for c in findings)
    if (fix or mend) and not fixed and output.human_readable:
        progress("nothing to fix")
    failed = [c.name for c in findings if c.verdict is DoctorVerdict.FAIL]
    if failed:
        progress(f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}")
        ctx.exit(1)


def _in_one(check: DoctorCheck) -> str:
    return check.finding if check.remedy is None else f"{check.finding} → {check.remedy}"


def _findings(session: Session, fix: bool) -> Iterator[DoctorCheck]:
    yield perform("python", python)
    yield perform("git", git)
    yield perform("sqlite", sqlite)
    yield perform("bubblewrap", bubblewrap)
    configuration = perform("configuration", lambda: _configuration(session))
    yield configuration
    if configuration.verdict is DoctorVerdict.FAIL:
        return
    directory = Path(session.configuration().settings.state.directory)
    yield perform("state directory", lambda: state_directory(directory))
    quota = session.configuration().settings.sandbox.quota_bytes
    yield perform("disk space", lambda: disk_space(directory, quota=quota))
    yield from service_findings(session.container())
    yield from state_findings(session.container(), fix=fix)
    now = time.time()
    drafts = partial(setup_drafts, directory / "setups", now)
    yield from findings_of("setup cache", drafts, fix=fix)
    temporary = partial(temporary_directories, Path(tempfile.gettempdir()), now)
    yield from findings_of("temporary files", temporary, fix=fix)


def _configuration(session: Session) -> DoctorCheck:
    loaded = session.configuration()
    files = [str(f) for f in (loaded.user_file, loaded.repository_file) if f is not None and f.exists()]
    return DoctorCheck("configuration", DoctorVerdict.OK, ", ".join(files) or "defaults; no file yet")
