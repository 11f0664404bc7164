"""`agents jobs`, asked of a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cleveragents.cli.admin import jobs as local
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.twins import ClientGroup, client_command
from cleveragents.cli.output import Output, ago, progress
from cleveragents.cli.session import Session

__all__ = ["jobs"]

_COLUMNS = ["id", "kind", "state", "attempt", "worker", "updated", "error"]
_ENDED = ("succeeded", "failed", "cancelled")


def _list_jobs(
    session: Session, states: tuple[str, ...], limit: int, after: str | None, output: Output
) -> None:
    rows = list(connected(session).pages("/jobs", at_most=limit, state=list(states), after=after))
    output.table(
        [_at_a_glance(row) for row in rows] if output.for_eyes else rows,
        _COLUMNS,
        empty="there are no such jobs",
        cut=["kind", "worker", "error"],
        spare=["worker", "attempt", "error", "updated"],
    )
    if len(rows) == limit:
        progress(f"there may be more: --after {rows[-1]['id']}")


def _show_job(session: Session, job_id: str, output: Output) -> None:
    output.record(connected(session).get(f"/jobs/{job_id}"))


def _cancel_job(session: Session, job_id: str, reason: str, output: Output) -> None:
    client = connected(session)
    before = client.get(f"/jobs/{job_id}")
    after = client.post(f"/jobs/{job_id}/cancel", {"reason": reason})
    progress(_what_cancel_did(before, after, prefix_of(session)))
    output.record(after)


def _what_cancel_did(before: dict[str, Any], after: dict[str, Any], prefix: str) -> str:
    name, why = after["id"], f"({after['cancel_reason']})"
    if before["state"] in _ENDED:
        return f"job {name} was cancelled already {why}; nothing was changed"
    if before["cancel_reason"] is not None and before["cancel_reason"] == after["cancel_reason"]:
        return f"cancelling job {name} was requested already {why}; nothing was changed"
    if after["state"] in _ENDED:
        return f"job {name} is cancelled"
    return f"job {name} was told to stop; `{prefix} jobs show {name}` says when it has"


def _at_a_glance(row: dict[str, Any]) -> dict[str, Any]:
    error = row["error"]
    short = None if error is None else error.removeprefix(f"the {row['kind']} handler failed: ")
    since = ago(datetime.fromisoformat(row["updated"]), datetime.now(UTC))
    return {**row, "updated": since, "error": short}


jobs = ClientGroup(
    local.jobs,
    {
        "list": client_command(local.list_jobs, _list_jobs),
        "show": client_command(local.show_job, _show_job),
        "cancel": client_command(local.cancel_job, _cancel_job),
    },
)
