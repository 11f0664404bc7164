"""`agents jobs`: list, show and cancel jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cleveragents.api.jobs import is_job_id
from cleveragents.cli.output import Output, ago, format_option, progress
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.api.jobs import JobView

__all__ = ["JobId", "jobs"]

_STATES = ("queued", "running", "succeeded", "failed", "cancelled")


class JobId(click.ParamType[str]):
    """A job id on the command line."""

    name = "id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_job_id(value):
            self.fail(f"there is no job {value!r}", param, ctx)
        return value


@click.group()
def jobs() -> None:
    """List, inspect and cancel jobs.

    \b
    Example:
      agents jobs list --state running
    """


@jobs.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only jobs in this state; may be repeated.",
)
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Maximum number of jobs, the oldest first.",
)
@click.option("--after", metavar="ID", type=JobId(), help="Only jobs after this one.")
@format_option
@pass_session
def list_jobs(
    session: Session, states: tuple[str, ...], limit: int, after: str | None, output: Output
) -> None:
    """List jobs, oldest first.

    On a terminal each job takes one line, shortened to fit; `agents jobs show ID` shows all fields.

    \b
    Example:
      agents jobs list --state queued --state running --format json
    """
    from cleveragents.api.views import as_json
    from cleveragents.jobs.model.job import JobState

    page = session.client().jobs.list(states=[JobState(state) for state in states], limit=limit, after=after)
    output.table(
        [_at_a_glance(job) if output.human_readable else as_json(job) for job in page.items],
        ["id", "kind", "state", "attempt", "worker", "updated", "error"],
        empty="no jobs match",
        cut=["kind", "worker", "error"],
        spare=["worker", "attempt", "error", "updated"],
    )
    if page.next is not None:
        progress(f"there are more jobs: pass --after {page.next}")


@jobs.command("show")
@click.argument("job_id", metavar="ID", type=JobId())
@format_option
@pass_session
def show_job(session: Session, job_id: str, output: Output) -> None:
    """Show everything about one job.

    \b
    Example:
      agents jobs show 01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C
    """
    from cleveragents.api.views import as_json

    output.record(as_json(session.client().jobs.get(job_id)))


@jobs.command("cancel")
@click.argument("job_id", metavar="ID", type=JobId())
@click.option(
    "--reason", default="cancelled by the user", show_default=True, help="Reason; recorded with the job."
)
@format_option
@pass_session
def cancel_job(session: Session, job_id: str, reason: str, output: Output) -> None:
    """Cancel a job.

    A queued job is cancelled at once. The worker of a running job asks it to stop and ends its processes
    after worker.cancel_grace_seconds. A second cancel changes nothing. A job that has succeeded or failed
    cannot be cancelled: the exit code is 1.

    \b
    Example:
      agents jobs cancel 01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C --reason "wrong branch"
    """
    from cleveragents.api.views import as_json

    jobs = session.client().jobs
    before = jobs.get(job_id)
    after = jobs.cancel(job_id, reason=reason)
    progress(_what_cancel_did(before, after))
    output.record(as_json(after))


def _what_cancel_did(before: JobView, after: JobView) -> str:
    why = f"({after.cancel_reason})"
    if before.state.ended:
        return f"job {after.id} is already cancelled {why}; nothing changed"
    if before.cancel_reason is not None and before.cancel_reason == after.cancel_reason:
        return f"job {after.id} is already being cancelled {why}; nothing changed"
    if after.state.ended:
        return f"cancelled job {after.id}"
    return f"cancelling job {after.id}; follow it with `agents jobs show {after.id}`"


def _at_a_glance(job: JobView) -> dict[str, JsonValue]:
    """Return a shortened row for a terminal."""
    from cleveragents.api.views import as_json

    error = None if job.error is None else job.error.removeprefix(f"the {job.kind} handler failed: ")
    return as_json(job) | {"updated": ago(job.updated, datetime.now(UTC)), "error": error}
