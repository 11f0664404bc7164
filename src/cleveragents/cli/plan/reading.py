"""`agents plan show|log`: what a plan is and what it did."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import account_of, call_fields, fields_of, found_plan
from cleveragents.api.plans.meanings import goal_of, meaning_of, waited, what_it_waits_for
from cleveragents.api.plans.next_steps import steps_from
from cleveragents.api.plans.remains import was_removed
from cleveragents.api.plans.spending import spent_in_words
from cleveragents.api.reach import is_out_of_reach
from cleveragents.api.wording import on_one_line
from cleveragents.api.workers import isolation_in_words, isolation_of
from cleveragents.cli.output import Output, ago, format_option
from cleveragents.cli.plan.sections import (
    first_line,
    in_short,
    items_in,
    show_call,
    show_calls,
    show_changes,
    show_checks,
    show_sub_plans,
)
from cleveragents.cli.plan.view import plan_argument
from cleveragents.cli.render.narrow import steps_in_lines
from cleveragents.cli.render.remedies import step_pairs
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.family import conflicts_of, title_of
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.sub_plan import CONFLICT
from cleveragents.plans.sub_plans.words import told_disagreement

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["log_of_plan", "show_plan"]

Row = dict[str, JsonValue]

_REMOVED = "removed, and with it what a diff and an undo need"


@click.command("show")
@plan_argument
@format_option
@pass_session
def show_plan(session: Session, plan_id: str, output: Output) -> None:
    """Show everything about one plan: where it stands, what it changed and did, what to do next.

    \b
    Example:
      agents plan show 7QX2
    """
    container = session.container()
    parts = container.plan_parts
    plan = found_plan(parts, plan_id)
    if is_out_of_reach(parts, plan):
        _show_without_files(output, parts, plan)
        return
    account = account_of(parts, plan)
    if output.for_programs:
        output.record(account)
        return
    output.record(_heading(parts, plan, account, ago(plan.updated_at, container.clock.now())))
    show_sub_plans(output, account)
    show_changes(output, account)
    show_calls(output, [call_fields(parts, call) for call in parts.history.calls(plan.id)])
    show_checks(output, account)
    steps = steps_from(parts, plan)
    if steps:
        output.title("what next")
        for line in steps_in_lines(step_pairs(steps), sys.stdout):
            click.echo(line)


@click.command("log")
@plan_argument
@click.argument("number", type=int, required=False)
@format_option
@pass_session
def log_of_plan(session: Session, plan_id: str, number: int | None, output: Output) -> None:
    """List a plan's tool calls: its checkpoints and results. With NUMBER, one call and what it printed.

    The number of a call is the checkpoint before it: `agents plan rollback PLAN NUMBER` goes back to it.

    \b
    Example:
      agents plan log 7QX2
      agents plan log 7QX2 1
    """
    from cleveragents.api.views import as_json, every

    plans = session.client().plans
    if number is not None:
        show_call(output, as_json(plans.call(plan_id, number)))
        return
    rows = [as_json(call) for call in every(lambda after: plans.calls(plan_id, after=after))]
    error = None if rows else plans.summary(plan_id).error
    output.table(
        rows if output.for_programs else [in_short(row) for row in rows],
        ["number", "tool", "state", "changed", "started", "what"],
        empty="it did nothing yet" if error is None else f"it did nothing: {error}",
        cut=["what"],
        spare=["started", "changed"],
    )


def _heading(parts: PlanParts, plan: Plan, account: Mapping[str, JsonValue], since: str) -> Row:
    """What people want to know first; what there is not is left out."""
    said: Row = {
        "plan": plan.id,
        "goal": goal_of(plan),
        "state": meaning_of(parts, plan),
        "waits for": _waits_for(parts, plan),
        "error": first_line(account["error"]) if plan.state.value != "applied" else None,
        "part of": plan.parent_id and f"{plan.parent_id}: {title_of(parts.plans.get(plan.parent_id))}",
        "called": plan.parent_id and title_of(plan) != goal_of(plan) and title_of(plan),
        "works on": plan.resource,
        "pushed to" if plan.state.ended else "pushes to": parts.remotes.branch_of(plan),
        "profile": plan.request.get("profile"),
        "isolation": isolation_in_words(isolation_of(parts, plan)),
        "spent": spent_in_words(parts, plan),
        "created": account["created"],
        "updated": f"{account['updated']} ({since})",
        "sandbox": account["sandbox"] or (_REMOVED if was_removed(parts, plan) else None),
        "notes": "; ".join(str(note) for note in items_in(account["notes"])),
        "review": account["review_problem"],
    }
    return {name: value for name, value in said.items() if value}


def _waits_for(parts: PlanParts, plan: Plan) -> str | None:
    """What a plan that waits wants to hear; of its sub-plans' conflicts, those that are open by now."""
    if plan.state is not PlanState.WAITING:
        return None
    if waited(plan) != CONFLICT:
        return on_one_line(what_it_waits_for(plan))
    left = conflicts_of(parts, plan)
    return told_disagreement(left) if left else None


def _show_without_files(output: Output, parts: PlanParts, plan: Plan) -> None:
    """What is known of a plan whose repository, from which its sandbox borrows, is out of reach."""
    known = fields_of(plan) | {"out_of_reach": plan.resource}
    if not output.for_programs:
        wanted = ("goal", "error", "created", "updated")
        known = {"plan": plan.id, "state": meaning_of(parts, plan)}
        known |= {name: value for name, value in fields_of(plan).items() if name in wanted and value}
        known["works on"] = f"{plan.resource}, which is out of reach; `agents doctor` says more"
    output.record(known)
