"""`agents plan pause|cancel|delete`: stop or end a plan and its sub-plans, here or on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.plan.choose import chosen_plan, optional_plan
from cleveragents.cli.plan.view import plan_argument, print_next_steps, print_plan
from cleveragents.cli.prompts import ensure_confirmed
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import NeedsHuman, PlanError, ServerFailed
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.views import PlanView

__all__ = ["cancel_plan", "delete_plan", "pause_plan", "stop_plan"]

_PATIENCE_SECONDS = 60.0
_CONFLICT = 409
_DONE = (Phase.EXECUTE, PlanState.COMPLETE)


@click.command("pause")
@optional_plan
@format_option
@pass_session
def pause_plan(session: Session, plan_id: str | None, output: Output) -> None:
    """Stop a plan so that it can be resumed.

    Also stops its sub-plans, on any machine, and returns when no process is left. Finished calls stay; the
    call in progress is made again after `agents plan resume`. Ctrl-C in `agents run` does the same. A second
    pause changes nothing. Without PLAN, pause the only plan that runs here.

    \b
    Example:
      agents plan pause 7QX2
      agents plan resume 7QX2
    """
    client = session.client()
    plans = client.plans
    before = plans.get(chosen_plan(client, plan_id, "pause"))
    patience = session.configuration().settings.worker.cancel_grace_seconds + _PATIENCE_SECONDS
    if before.status is PlanStatus.PAUSED:
        progress(f"plan {before.id} is already paused; nothing changed")
    else:
        plans.pause(before.id)
        progress(f"stopping the processes of plan {before.id} …")
    plan = plans.wait(before.id, timeout=patience)
    print_plan(output, plan)
    print_next_steps(plan)


@click.command("cancel")
@optional_plan
@click.option(
    "--reason", default="cancelled by the user", show_default=True, help="Reason; recorded with the plan."
)
@click.option("--remove-sandbox", is_flag=True, help="Remove the sandbox as well.")
@format_option
@pass_session
def cancel_plan(
    session: Session, plan_id: str | None, reason: str, remove_sandbox: bool, output: Output
) -> None:
    """End a plan and all its processes.

    Also ends its sub-plans, on any machine, and returns when no process is left. The result of a plan that
    was done can no longer be applied; `agents plan diff` still shows it. A second cancel changes nothing.
    Without PLAN, cancel the only plan that runs here.

    \b
    Example:
      agents plan cancel 7QX2 --reason "wrong branch"
      agents plan diff 7QX2 | git apply   # keep the changes it had made
    """
    client = session.client()
    patience = session.configuration().settings.worker.cancel_grace_seconds + _PATIENCE_SECONDS
    plan_id = chosen_plan(client, plan_id, "cancel", question="Cancel it?")
    plan = stop_plan(client.plans, client.plans.get(plan_id), reason, patience)
    if remove_sandbox:
        client.plans.remove_sandbox(plan.id)
        plan = client.plans.get(plan.id)
    print_plan(output, plan)
    print_next_steps(plan)
    if plan.parent is not None:
        whole = client.plans.get(plan.root)
        progress(f"part of plan {whole.id}, {whole.meaning}")
        print_next_steps(whole)


@click.command("delete")
@plan_argument
@click.option("--yes", is_flag=True, help="Do not ask, even if changes are lost.")
@pass_session
def delete_plan(session: Session, plan_id: str, yes: bool) -> None:
    """Remove a plan, its sandbox and its records.

    Also removes its sub-plans; the audit log keeps their events. With --yes, an interrupted apply that cannot
    be completed is given up, and your files stay as they are.

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
    except ServerFailed as refused:  # a server of 0.1.0 has no facts about the reason
        if not yes or refused.status != _CONFLICT:
            raise
        progress(refused.problem)
        client.plans.delete(plan.id, force=True)
    also = " with its sub-plans" if _has_sub_plans(plan) else ""
    progress(f"deleted plan {plan.id}{also}")


def stop_plan(plans: Plans, before: PlanView, reason: str, patience: float) -> PlanView:
    """Cancel the plan and return it once nothing of it or its sub-plans runs.

    If the plan had a result in the view `before`, the result is discarded. Raises `PlanError` if the plan got
    its result after this view, and `DeadlineExceeded`.
    """
    if before.state is PlanState.CANCELLED:
        why = (before.error or "").removeprefix("cancelled: ")
        progress(f"plan {before.id} is already cancelled ({why}); nothing changed")
        return plans.wait(before.id, timeout=patience)
    under_way = not before.at_rest or before.waits_for_sub_plans
    has_result = before.phase is Phase.APPLY or (before.phase, before.state) == _DONE
    if under_way:
        progress(f"stopping plan {before.id} and its processes …")
    try:
        plans.cancel(before.id, reason=reason, discard=has_result)
    except PlanError:
        if not under_way or has_result:
            raise  # otherwise another cancel may be stopping it already
    plan = plans.wait(before.id, timeout=patience)
    while plan.state is not PlanState.CANCELLED:  # guard: the plan came to rest before the cancel reached it
        plans.cancel(before.id, reason=reason)
        plan = plans.wait(before.id, timeout=patience)
    if under_way:
        also = " with its sub-plans" if _has_sub_plans(plan) else ""
        progress(f"cancelled plan {plan.id}{also}; no process is left")
    return plan


def _has_sub_plans(plan: PlanView) -> bool:
    return any(part.id is not None for part in plan.sub_plans)
