"""`agents plan approve|deny|resume`: a person answers, and the plan goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import found_plan, spelt_arguments
from cleveragents.api.plans.deciding import answered_call, ensure_decidable
from cleveragents.api.plans.meanings import meaning_of
from cleveragents.api.plans.spending import raise_limits
from cleveragents.api.reach import ensure_reachable
from cleveragents.cli.budget_options import budget_options
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.plan.account import told_plan
from cleveragents.cli.plan.view import plan_argument, told_next
from cleveragents.cli.session import Session, pass_session
from cleveragents.cli.usage import as_usage
from cleveragents.core.text.redaction import redact_known_text
from cleveragents.models.model.budget import Limits
from cleveragents.plans.model.plan import Phase, PlanState, spelt

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "approve_plan",
    "deny_plan",
    "resume_plan",
    "told_whole",
    "worked_on",
]


@click.command("approve")
@plan_argument
@click.argument("number", type=int, required=False)
@format_option
@pass_session
def approve_plan(session: Session, plan_id: str, number: int | None, output: Output) -> None:
    """Give leave to what a plan waits for, and go on with it. With NUMBER, only if that call asks.

    \b
    Example:
      agents plan approve 7QX2
      agents plan approve 7QX2 3
    """
    container = session.container()
    parts = container.plan_parts
    worked_on(container, _answered(parts, plan_id, number, granted=True), output)


@click.command("deny")
@plan_argument
@click.argument("number", type=int, required=False)
@format_option
@pass_session
def deny_plan(session: Session, plan_id: str, number: int | None, output: Output) -> None:
    """Refuse leave to what a plan waits for. A plan of plain steps ends with an error that says so; actors
    are told, and try something else.

    With NUMBER, only if that call asks.

    \b
    Example:
      agents plan deny 7QX2
      agents plan deny 7QX2 3
    """
    from cleveragents.cli.plan.work import work_on
    from cleveragents.core.errors import Cancelled

    container = session.container()
    parts = container.plan_parts
    plan = work_on(container, _answered(parts, plan_id, number, granted=False), output)
    ended = [one for one in (plan, parts.plans.get(plan.root)) if one.state is PlanState.CANCELLED]
    if plan.error is not None and not ended:
        progress(f"denied: {plan.error}")
    told_plan(output, parts, plan)
    if plan.parent_id is not None:
        told_whole(parts, plan)
    if ended:
        raise Cancelled((ended[0].error or "").removeprefix("cancelled: "))


@click.command("resume")
@plan_argument
@click.option("--model", metavar="PROVIDER/NAME", help="Go on with another model, from now on.")
@budget_options
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@format_option
@pass_session
def resume_plan(
    session: Session, plan_id: str, model: str | None, limits: Limits, yes: bool, output: Output
) -> None:
    """Go on with a plan that failed or was interrupted, where it stands: finished calls are not repeated.

    A plan that has spent its budget goes on with a larger one.

    \b
    Example:
      agents plan resume 7QX2
      agents plan resume 7QX2 --max-tokens 500000
      agents plan resume 7QX2 --model openai/gpt-4.1
    """
    from cleveragents.api.plans.spending import ensure_model_fits
    from cleveragents.cli.plan.work import apply_now

    container = session.container()
    parts = container.plan_parts
    parts.apply.settle()
    plan = found_plan(parts, plan_id)
    if not plan.state.ended:
        ensure_reachable(parts, plan)
    if plan.phase is Phase.APPLY and not plan.state.ended:
        ensure_decidable(plan)
        try:
            apply_now(parts, plan, None)
        finally:
            told_plan(output, parts, parts.plans.get(plan.id))
        return
    with as_usage():
        if model is not None:
            ensure_model_fits(parts, plan, model, limits)
        if limits != Limits():
            raise_limits(parts, plan, limits, model)
    deeds = _deeds(parts, plan) if plan.standing == (Phase.EXECUTE, PlanState.COMPLETE) else None
    worked_on(container, parts.lifecycle.resume(plan, model=model), output, yes=yes, deeds=deeds)


def _answered(parts: PlanParts, plan_id: str, number: int | None, *, granted: bool) -> Plan:
    """The plan, with the answer to the call that is shown, and to no other."""
    plan, call = answered_call(parts, plan_id, number, granted=granted)
    if call is not None:
        what = redact_known_text(spelt_arguments(call.arguments))
        progress(f"{'allowed' if granted else 'denied'}: call {call.number}, {call.tool}: {what}")
    return plan


def worked_on(
    container: Container, plan: Plan, output: Output, *, yes: bool = False, deeds: int | None = None
) -> None:
    """Works on the plan here and now, and on the whole that it is a part of, as far as that goes, and tells
    where it stands then. Of one that was done before, and has still no more than those `deeds`, it says that
    there was nothing to do."""
    from cleveragents.cli.plan.work import decide, work_on

    parts = container.plan_parts
    told = plan
    before = parts.plans.get(plan.root).version
    try:
        worked = work_on(container, plan, output)
        if plan.parent_id is not None:
            whole = found_plan(parts, plan.root)
            # One that failed, or is done with it, does not go on because a part of it does.
            told = worked = worked if whole.version == before else whole
        still_done = worked.standing == (Phase.EXECUTE, PlanState.COMPLETE)
        if still_done and deeds is not None and deeds == _deeds(parts, worked):
            progress("it was done already, so there was nothing to do")
        decide(container, worked, yes=yes, commit=None, output=output)
    finally:
        told_plan(output, parts, parts.plans.get(told.id))


def told_whole(parts: PlanParts, plan: Plan) -> None:
    """How the plan stands that this one is a part of, and what can be done with it."""
    whole = found_plan(parts, plan.root)
    how = meaning_of(parts, whole)
    if whole.state is PlanState.QUEUED:  # whoever ran its part may not have come to that yet
        how = f"{spelt(whole.standing)}: whoever runs it goes on with it; if nobody does, a resume does"
    progress(f"it is a part of plan {whole.id}, {how}")
    told_next(parts, whole)


def _deeds(parts: PlanParts, plan: Plan) -> int:
    """How often it used a tool or asked a model. A rollback, after which there is more to do, takes some."""
    return len(parts.history.calls(plan.id)) + len(parts.thinking.budgets.calls_of(plan.id))
