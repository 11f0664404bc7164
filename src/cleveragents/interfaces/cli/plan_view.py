"""Plans as the command line shows them, and how a plan is named on it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.domain.plan import spelt
from cleveragents.domain.redaction import redact, redact_text
from cleveragents.interfaces.cli.output import Output, colour, progress, timestamp

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.plan import Plan

__all__ = ["fields_of", "found_plan", "plan_argument", "shown_diff", "summary_of", "told_next", "told_plan"]

plan_argument = click.argument("plan_id", metavar="PLAN")


def found_plan(parts: PlanParts, plan_id: str) -> Plan:
    """The plan of that id, or of which that is the beginning or the end; as its job has left it."""
    return parts.lifecycle.reconciled(parts.plans.find(plan_id))


def fields_of(plan: Plan) -> dict[str, JsonValue]:
    """A plan as rows and JSON show it."""
    return {
        "id": plan.id,
        "goal": redact_text(plan.goal),
        "action": plan.action,
        "phase": plan.phase.value,
        "state": plan.state.value,
        "resource": plan.resource,
        "created": timestamp(plan.created_at),
        "updated": timestamp(plan.updated_at),
        "waiting_for": plan.waiting_for,
        "error": None if plan.error is None else redact_text(plan.error),
        "request": freeze(redact(plan.request)),
        "job": plan.job_id,
        "parent": plan.parent_id,
    }


def told_plan(output: Output, plan: Plan) -> None:
    """Where a plan stands: all of it for programs, for people what they need next."""
    fields = fields_of(plan)
    if output.for_programs:
        output.record(fields)
        return
    shown: dict[str, JsonValue] = {"plan": plan.id, "goal": fields["goal"], "state": spelt(plan.standing)}
    if plan.error is not None:
        shown["error"] = fields["error"]
    output.record(shown)


def summary_of(parts: PlanParts, plan: Plan) -> str:
    """How much the plan would change, in one line."""
    sandbox = parts.sandboxes.open(plan.id)
    told = parts.result.diff(plan, sandbox, options=("--shortstat",)).decode("utf-8", "replace").strip()
    return told or "nothing was changed"


def shown_diff(text: bytes) -> None:
    """A difference on stdout; through a pager where it is longer than the terminal."""
    # The bytes as they are: a difference is often given to another program.
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        return
    shown = text.decode("utf-8", "backslashreplace")
    if len(shown.splitlines()) < _height():
        click.echo(shown, nl=False, color=colour())
    else:
        click.echo_via_pager(shown, color=colour())


def _height() -> int:
    import shutil

    return shutil.get_terminal_size().lines - 1


def told_next(plan: Plan) -> None:
    """What can be done with a plan whose result waits for a decision."""
    progress(f"see it:    agents plan diff {plan.id}")
    progress(f"apply it:  agents plan apply {plan.id}")
    progress(f"or not:    agents plan reject {plan.id}")
