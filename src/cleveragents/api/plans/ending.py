"""The end of plans that nobody watches at a terminal: told to stop, or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.api.plans.account import found_plan
from cleveragents.api.plans.meanings import DONE
from cleveragents.api.reach import ensure_reachable
from cleveragents.core.errors import NeedsHuman, PlanError
from cleveragents.core.errors.remedy import Remedy
from cleveragents.plans.family import below
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.plans.model.plan import Plan

__all__ = ["cancel", "delete", "remove_sandboxes"]

_KEPT = (DONE, (Phase.APPLY, PlanState.CONSTRAINED), (Phase.APPLY, PlanState.ERRORED))
"""Where a plan stands that has a result which is not applied."""


def cancel(container: Container, plan_id: str, reason: str) -> Plan:
    """The plan, cancelled or told to stop: then whoever runs it ends its processes and moves it.
    `PlanError` when it was cancelled before, has ended otherwise, or is done: who does not want what it did
    rejects it."""
    parts = container.plan_parts
    parts.apply.settle()  # one whose applier died is not being applied any more
    plan = found_plan(parts, plan_id)
    if plan.state is PlanState.CANCELLED:
        why = (plan.error or "").removeprefix("cancelled: ")
        raise PlanError(plan.id, f"it was cancelled already ({why}); nothing was changed")
    if plan.standing in _KEPT:  # guard: no result is thrown away by a cancel that came late
        raise PlanError(plan.id, "it is done, and nothing is left to cancel; reject it if it is not wanted")
    if plan.state.running and plan.phase is Phase.APPLY:
        ensure_reachable(parts, plan)
    job = parts.lifecycle.queueing.job_of(plan)
    told = job is not None and not job.state.ended and job.cancel_reason is not None
    if told and parts.lifecycle.is_worked_on(plan):
        raise PlanError(plan.id, "it is being stopped already; nothing was changed")
    return parts.lifecycle.cancel(plan, reason)


def remove_sandboxes(container: Container, plan_id: str) -> None:
    """None is left of the plan, or of those below it. `PlanError` unless it is cancelled and all of them are
    here."""
    parts = container.plan_parts
    plan = found_plan(parts, plan_id)
    if plan.state is not PlanState.CANCELLED:  # guard: nobody works there, and no result is lost
        raise PlanError(plan.id, f"it is {plan.state.value}; only a cancelled plan needs no sandbox")
    family = [plan, *below(parts, plan)]
    for one in family:
        row = parts.sandboxes.row(one.id)
        if row is not None and row.home not in (None, container.home):  # guard: not told of what stays
            problem = "its sandbox is on the machine of another worker, which removes it in time"
            raise PlanError(one.id, problem)
    for one in family:
        parts.sandboxes.remove(one.id)


def delete(container: Container, plan_id: str, *, force: bool) -> None:
    """Nothing is left of the plan but what the audit log says. `NeedsHuman`, unless forced, when something is
    lost with it; `PlanError` while it runs, or is a part of another."""
    parts = container.plan_parts
    parts.apply.settle()  # what is half applied is ended while its journal is there
    plan = found_plan(parts, plan_id)
    if plan.state.running and plan.phase is Phase.APPLY and not force:
        ensure_reachable(parts, plan)
    loss = None if force else parts.cleanup.loss_of(plan)
    if loss is not None:  # guard: nobody loses work by one word
        remedy = Remedy("plan.delete", plan.id, {"force": True}, "Delete it all the same")
        raise NeedsHuman(plan.id, f"{loss}; deleting it loses that", (remedy,))
    if force:
        plan, _ = parts.apply.give_up(plan)
    parts.cleanup.delete(plan)
