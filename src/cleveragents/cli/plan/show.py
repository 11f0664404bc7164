"""`agents plan show|log`: the details and the calls of a plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cleveragents.api.format import on_one_line
from cleveragents.cli.output import Output, ago, counted, format_option, timestamp
from cleveragents.cli.plan.choose import chosen_plan, optional_plan, plan_and_number
from cleveragents.cli.plan.sections import (
    first_line,
    in_short,
    show_call,
    show_calls,
    show_changes,
    show_checks,
    show_sub_plans,
)
from cleveragents.cli.plan.view import next_steps, plan_in_json
from cleveragents.cli.render.narrow_terminal import steps_in_lines
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.views import PlanView, SpendingView

__all__ = ["log_of_plan", "show_plan", "spending_text"]

Row = dict[str, JsonValue]

_REMOVED = "removed; diff and undo are no longer possible"


@click.command("show")
@optional_plan
@format_option
@pass_session
def show_plan(session: Session, plan_id: str | None, output: Output) -> None:
    """Show everything about one plan: status, changes, calls, checks and next steps.

    Without PLAN, show the only plan here that needs you.

    \b
    Example:
      agents plan show 7QX2
    """
    client = session.client()
    plans = client.plans
    plan = plans.get(chosen_plan(client, plan_id, "show"))
    said = plan_in_json(plan)
    if output.machine_readable:
        output.record(said)
        return
    output.record(_heading(plans, plan))
    if plan.answer:
        output.title("answer")
        output.markdown(plan.answer)
    show_sub_plans(output, said)
    show_changes(output, said)
    show_calls(output, said)
    show_checks(output, said)
    steps = next_steps(plan)
    if steps:
        output.title("next steps")
        for line in steps_in_lines(steps, sys.stdout):
            click.echo(line)


@click.command("log")
@optional_plan
@click.argument("number", type=int, required=False)
@format_option
@pass_session
def log_of_plan(session: Session, plan_id: str | None, number: int | None, output: Output) -> None:
    """List a plan's tool calls. With NUMBER, show one call and its output.

    The number of a call is its checkpoint: `agents plan rollback PLAN NUMBER` returns to the state before it.

    \b
    Example:
      agents plan log 7QX2
      agents plan log 7QX2 1
    """
    from cleveragents.api.views import as_json, every

    client = session.client()
    plan_id, number = plan_and_number(plan_id, number)
    plans, plan_id = client.plans, chosen_plan(client, plan_id, "log")
    if number is not None:
        show_call(output, as_json(plans.call(plan_id, number)))
        return
    rows = [as_json(call) for call in every(lambda after: plans.calls(plan_id, after=after))]
    error = None if rows else plans.summary(plan_id).error
    output.table(
        rows if output.machine_readable else [in_short(row) for row in rows],
        ["number", "tool", "state", "changed", "started", "what"],
        empty="no calls yet" if error is None else f"no calls: {error}",
        cut=["what"],
        spare=["started", "changed"],
    )


def _heading(plans: Plans, plan: PlanView) -> Row:
    """Return the fields at the top of `agents plan show`; empty fields are left out."""
    from cleveragents.api.workers import isolation_text

    parent = None if plan.parent is None else plans.summary(plan.parent)
    goal, name = on_one_line(plan.goal), plan.request.get("name")
    said: Row = {
        "plan": plan.id,
        "goal": goal,
        "status": plan.meaning,
        "waits for": _waits_for(plan),
        **_outcome(plan),
        "part of": None if parent is None else f"{parent.id}: {parent.title}",
        "called": on_one_line(name) if parent and isinstance(name, str) and name != goal else None,
        "works on": _works_on(plan),
        "pushed to" if plan.state.ended else "pushes to": plan.branch,
        "published": _published(plan),
        "resource": plan.resource_name,
        "project": plan.resource_name and plan.project,
        "profile": str(plan.request.get("profile") or ""),
        "isolation": isolation_text(plan.isolation),
        "spent": spending_text(plan.spending),
        "created": timestamp(plan.created),
        "updated": f"{timestamp(plan.updated)} ({ago(plan.updated, datetime.now(UTC))})",
        "sandbox": plan.sandbox or (_REMOVED if plan.sandbox_removed else None),
        "notes": "; ".join(plan.notes),
        "review": plan.review_problem,
    }
    return {name: value for name, value in said.items() if value}


def _published(plan: PlanView) -> str | None:
    """Return the branch and the commit of the last publish."""
    done = plan.published
    return None if done is None else f"branch {done.branch} of {done.remote}, commit {done.commit}"


def _outcome(plan: PlanView) -> Row:
    """Return the error of a plan, or the reason of its cancellation."""
    if plan.state is PlanState.CANCELLED:
        return {"reason": first_line((plan.error or "").removeprefix("cancelled: "))}
    return {"error": first_line(plan.error)} if plan.state is not PlanState.APPLIED else {}


def _waits_for(plan: PlanView) -> str | None:
    """Return the pending request of a waiting plan; for a plan with conflicts, its open conflicts."""
    from cleveragents.plans.model.sub_plan import CONFLICT
    from cleveragents.plans.sub_plans.messages import disagreement_message

    if plan.state is not PlanState.WAITING or not isinstance(plan.waiting_for, Mapping):
        return None
    if plan.waiting_for.get("for") == CONFLICT:
        paths = [conflict.path for conflict in plan.conflicts]
        of_sub_plans = not paths or bool(plan.conflicts[0].sub_plan)
        return disagreement_message(paths, of_sub_plans=of_sub_plans) if paths else None
    return on_one_line(str(plan.waiting_for.get("what") or ""))


def _works_on(plan: PlanView) -> str:
    from cleveragents.cli.local_only import goes_to_server

    if plan.out_of_reach is None:
        return plan.resource
    hint = "" if goes_to_server(click.get_current_context()) else "; see `agents doctor`"
    return f"{plan.resource}, which is out of reach{hint}"


def spending_text(spending: SpendingView) -> str | None:
    """Return `12 model calls, 34,567 tokens (24,000 cached), $0.0123`; None without a model call."""
    from cleveragents.models.model.budget import PICODOLLARS, dollars

    if spending.model_calls is None or spending.tokens is None:
        return None
    calls, tokens = counted(spending.model_calls, "model call"), counted(spending.tokens, "token")
    if spending.cached_tokens:
        tokens += f" ({spending.cached_tokens:,} cached)"
    known = spending.usd is not None
    price = "unknown price" if spending.usd is None else dollars(round(spending.usd * PICODOLLARS))
    if not spending.at_most:
        return f"{calls}, {tokens}, {price}"
    most = f"at most {tokens}{' and ' if known else ', '}{price}"
    return f"{calls}, {most}: an interrupted call counts with its highest cost"
