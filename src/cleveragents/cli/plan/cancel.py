"""`agents plan cancel|delete`: the end of a plan, and of all that belongs to it, here or on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.plan.view import plan_argument, print_next_steps, print_plan
from cleveragents.cli.prompts import ensure_confirmed
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import NeedsHuman, PlanError
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.views import PlanView

__all__ = ["cancel_plan", "delete_plan", "stop_plan"]

_PATIENCE_SECONDS = 60.0
_DONE = (Phase.EXECUTE, PlanState.COMPLETE)


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
    client = session.client()
    patience = session.configuration().settings.worker.cancel_grace_seconds + _PATIENCE_SECONDS
    plan = stop_plan(client.plans, client.plans.get(plan_id), reason, patience)
    if remove_sandbox:
        client.plans.remove_sandbox(plan.id)
        plan = client.plans.get(plan.id)
    print_plan(output, plan)
    if plan.parent is not None:
        whole = client.plans.get(plan.root)
        progress(f"it is a part of plan {whole.id}, {whole.meaning}")
        print_next_steps(whole)


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

    client = session.client()
    plan = client.plans.get(plan_id)
    try:
        client.plans.delete(plan.id)
    except NeedsHuman as needed:
        if yes:
            progress(needed.what)
        elif interactive():
            ensure_confirmed(f"plan {plan.id}: {needed.what}. Delete it?")
        else:
            raise
        client.plans.delete(plan.id, force=True)
    also = " with its sub-plans" if _has_sub_plans(plan) else ""
    progress(f"plan {plan.id} is deleted{also}")


def stop_plan(plans: Plans, before: PlanView, reason: str, patience: float) -> PlanView:
    """Return the plan, cancelled, when nothing of it and of what is below it runs any more.

    A result that was there `before` is dropped; one that came since is kept: `PlanError`. `DeadlineExceeded`.
    """
    if before.state is PlanState.CANCELLED:
        why = (before.error or "").removeprefix("cancelled: ")
        progress(f"plan {before.id} was cancelled already ({why}); nothing was changed")
        return plans.wait(before.id, timeout=patience)
    under_way = not before.at_rest or before.waits_for_sub_plans
    has_result = before.phase is Phase.APPLY or (before.phase, before.state) == _DONE
    if under_way:
        progress(f"stopping plan {before.id} and its processes …")
    try:
        plans.cancel(before.id, reason=reason, discard=has_result)
    except PlanError:
        if not under_way or has_result:
            raise  # else another cancel may be stopping it already
    plan = plans.wait(before.id, timeout=patience)
    while plan.state is not PlanState.CANCELLED:  # guard: it came to rest before it heard of the cancel
        plans.cancel(before.id, reason=reason)
        plan = plans.wait(before.id, timeout=patience)
    if under_way:
        also = " with its sub-plans" if _has_sub_plans(plan) else ""
        progress(f"plan {plan.id} is cancelled{also}, and none of its processes is left")
    return plan


def _has_sub_plans(plan: PlanView) -> bool:
    return any(part.id is not None for part in plan.sub_plans)
