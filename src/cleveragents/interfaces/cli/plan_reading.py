"""`agents plan list|show|log`: what plans there are and what they did."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.domain.redaction import redact
from cleveragents.interfaces.cli.output import Output, format_option, progress, timestamp
from cleveragents.interfaces.cli.plan_view import fields_of, found_plan, plan_argument
from cleveragents.interfaces.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.plan import Plan
    from cleveragents.domain.tool import ToolCall

__all__ = ["list_plans", "log_of_plan", "show_plan"]

_STATES = (
    "queued",
    "processing",
    "waiting",
    "complete",
    "errored",
    "cancelled",
    "applied",
    "constrained",
    "rejected",
    "undone",
)


@click.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these; may be repeated."
)
@click.option("--here", is_flag=True, help="Only plans of the repository or directory you are in.")
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 10_000), help="At most so many."
)
@click.option("--after", metavar="ID", help="Only plans after this one, where a list ended.")
@format_option
@pass_session
def list_plans(
    session: Session, states: tuple[str, ...], here: bool, limit: int, after: str | None, output: Output
) -> None:
    """List plans, oldest first.

    \b
    Example:
      agents plan list --state complete --state constrained --format json
    """
    from pathlib import Path

    from cleveragents.domain.plan import PlanState
    from cleveragents.infrastructure.sandbox.resources import find_resource

    parts = session.container().plan_parts
    resource = str(find_resource(Path.cwd())[0]) if here else None
    wanted = [PlanState(state) for state in states]
    found = [
        parts.lifecycle.reconciled(plan)
        for plan in parts.plans.list(states=wanted, resource=resource, limit=limit, after=after)
    ]
    rows = [fields_of(plan) for plan in found if not wanted or plan.state in wanted]
    output.table(rows, ["id", "phase", "state", "updated", "goal"], empty="there are no such plans")
    if len(found) == limit:
        progress(f"there may be more: --after {found[-1].id}")


@click.command("show")
@plan_argument
@format_option
@pass_session
def show_plan(session: Session, plan_id: str, output: Output) -> None:
    """Show everything about one plan.

    \b
    Example:
      agents plan show 7QX2
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    output.record(fields_of(plan) | _details(parts, plan))


@click.command("log")
@plan_argument
@format_option
@pass_session
def log_of_plan(session: Session, plan_id: str, output: Output) -> None:
    """List a plan's tool calls: its checkpoints and results.

    The number of a call is the checkpoint before it: `agents plan rollback PLAN NUMBER` goes back to it.

    \b
    Example:
      agents plan log 7QX2
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    rows = [_call_fields(parts, call) for call in parts.calls.of_plan(plan.id)]
    output.table(
        rows,
        ["number", "tool", "state", "changed", "started", "arguments", "error"],
        empty="it did nothing yet",
    )


def _details(parts: PlanParts, plan: Plan) -> dict[str, JsonValue]:
    from cleveragents.errors import SandboxMissing

    checks: list[JsonValue] = [
        {"name": run.name, "verdict": run.verdict.value, "required": run.required, "details": run.details}
        for run in parts.check_runs.of_plan(plan.id)
    ]
    reviews: list[JsonValue] = [
        {"kind": review.kind.value, "subject": review.subject, "accepted": review.accepted}
        for review in parts.reviews.of_plan(plan.id)
    ]
    place: str | None = None
    notes: tuple[str, ...] = ()
    with suppress(SandboxMissing):
        sandbox = parts.sandboxes.open(plan.id)
        place, notes = str(sandbox.root), sandbox.notes
    return {
        "sandbox": place,
        "notes": list(notes),
        "files_changed": len(parts.history.differences(plan.id)),
        "checks": checks,
        "reviews": reviews,
    }


def _call_fields(parts: PlanParts, call: ToolCall) -> dict[str, JsonValue]:
    changed = 0 if call.changeset_id is None else parts.changesets.get(call.changeset_id).length
    return {
        "number": call.number,
        "tool": call.tool,
        "state": call.state.value,
        "changed": changed,
        "changeset": call.changeset_id,
        "approval": call.approval,
        "started": timestamp(call.started_at),
        "ended": None if call.ended_at is None else timestamp(call.ended_at),
        "arguments": freeze(redact(call.arguments)),
        "error": call.error,
        "result": freeze(redact(call.result)),
    }
