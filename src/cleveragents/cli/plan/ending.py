"""`agents plan cancel|delete`: the end of a plan, and of all that belongs to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import found_plan
from cleveragents.api.reach import ensure_reachable
from cleveragents.cli.asking import ensure_confirmed
from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.cli.plan.account import told_plan
from cleveragents.cli.plan.decisions import told_whole
from cleveragents.cli.plan.view import plan_argument
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors.remedy import Remedy
from cleveragents.plans.family import below
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["cancel_plan", "delete_plan"]

_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0


@click.command("cancel")
@plan_argument
@click.option("--reason", default="cancelled by the user", show_default=True, help="Why; kept with the plan.")
@click.option("--remove-sandbox", is_flag=True, help="Do not keep its sandbox for inspection.")
@format_option
@pass_session
def cancel_plan(session: Session, plan_id: str, reason: str, remove_sandbox: bool, output: Output) -> None:
    """Stop a plan, its sub-plans and all their processes, wherever they run.

    Returns when none of the processes is left. A second cancel says that it was cancelled already.
    A plan that was done is given up: `agents plan diff` still shows its result, but it cannot be applied.

    \b
    Example:
      agents plan cancel 7QX2 --reason "wrong branch"
    """
    container = session.container()
    parts = container.plan_parts
    parts.apply.settle()  # one whose applier died is not being applied any more
    before = found_plan(parts, plan_id)
    under_way = before.state.running or waits_for_sub_plans(before)
    if before.state.running and before.phase is Phase.APPLY:
        ensure_reachable(parts, before)
    if under_way:
        progress(f"stopping plan {before.id} and its processes …")
    plan = parts.lifecycle.cancel(before, reason)
    if before.state is PlanState.CANCELLED:
        why = (plan.error or "").removeprefix("cancelled: ")
        progress(f"plan {plan.id} was cancelled already ({why}); nothing was changed")
    plan = _stopped(container, plan, reason)
    if under_way:
        also = " with its sub-plans" if below(parts, plan) else ""
        progress(f"plan {plan.id} is cancelled{also}, and none of its processes is left")
    if remove_sandbox:
        for one in (plan, *below(parts, plan)):
            parts.sandboxes.remove(one.id)
    told_plan(output, parts, plan)
    if plan.parent_id is not None:
        told_whole(parts, plan)


@click.command("delete")
@plan_argument
@click.option("--yes", is_flag=True, help="Do not ask, whatever is lost with it.")
@pass_session
def delete_plan(session: Session, plan_id: str, yes: bool) -> None:
    """Remove a plan, its sub-plans, their sandboxes and records. What the audit log says of them stays.

    With --yes, an apply of it that was interrupted and cannot be ended is given up, too: the files stay as
    it left them.

    \b
    Example:
      agents plan delete 7QX2
    """
    from cleveragents.cli.plan.work import interactive
    from cleveragents.cli.run.background import remove_log
    from cleveragents.core.errors import NeedsHuman

    container = session.container()
    parts = container.plan_parts
    parts.apply.settle()  # what is half applied is ended while its journal is there
    plan = found_plan(parts, plan_id)
    if plan.state.running and plan.phase is Phase.APPLY and not yes:
        ensure_reachable(parts, plan)
    loss = None if yes else parts.cleanup.loss_of(plan)
    if loss is not None:
        what = f"{loss}; deleting it loses that"
        if not interactive():
            force = Remedy("plan.delete", plan.id, {"force": True}, "Delete it all the same")
            raise NeedsHuman(plan.id, what, (force,))
        ensure_confirmed(f"plan {plan.id}: {what}. Delete it?")
    if yes:
        plan, half_done = parts.apply.give_up(plan)
        for resource in half_done:
            progress(f"an interrupted apply to {resource} is given up; its files stay as they are")
    family = [plan, *below(parts, plan)]
    parts.cleanup.delete(plan)
    for one in family:
        remove_log(container.state_directory, one.id)
    also = f", and with it {counted(len(family) - 1, 'sub-plan')}" if len(family) > 1 else ""
    progress(f"plan {plan.id} is deleted{also}")


def _stopped(container: Container, plan: Plan, reason: str) -> Plan:
    """The plan, cancelled, when nothing of it and of what is below it runs any more. `DeadlineExceeded`."""
    from cleveragents.core.errors import DeadlineExceeded

    parts = container.plan_parts
    patience = container.settings.worker.cancel_grace_seconds + _PATIENCE_SECONDS
    deadline = container.clock.monotonic() + patience
    while not _is_over(parts, plan):  # guard: one seen between its end and that is not cancelled yet
        if container.clock.monotonic() > deadline:
            raise DeadlineExceeded(f"stopping plan {plan.id}", patience)
        time.sleep(_LOOK_SECONDS)
        plan = found_plan(parts, plan.id)
        if not plan.state.running:
            plan = parts.lifecycle.cancel(plan, reason)
    return plan


def _is_over(parts: PlanParts, plan: Plan) -> bool:
    """Whether it is cancelled, and nothing below it is under way; what its owner started before it heard of
    the cancel, either."""
    if plan.state is not PlanState.CANCELLED:
        return False
    return not any(parts.lifecycle.reconciled(one).state.running for one in below(parts, plan))
