"""What a person decides about a plan: whether it can be decided now, and the answer to what it asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleveragents.application.services.plan_lanes import queue_of
from cleveragents.domain.budget import Limits
from cleveragents.domain.plan import Phase, PlanState
from cleveragents.errors import PlanError
from cleveragents.interfaces.desk.accounts import found_plan
from cleveragents.interfaces.desk.meanings import what_it_waits_for
from cleveragents.interfaces.desk.model_choice import ensure_model_fits
from cleveragents.interfaces.desk.reach import ensure_reachable
from cleveragents.interfaces.desk.spending import raise_limits
from cleveragents.interfaces.desk.wording import on_one_line

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.plan import Plan
    from cleveragents.domain.tool import ToolCall

__all__ = ["answered_call", "ensure_decidable", "ensure_shared", "rejected", "replied", "resumed"]


def answered_call(
    parts: PlanParts,
    plan_id: str,
    number: int | None,
    *,
    granted: bool,
    shared: bool = False,
    by: str | None = None,
) -> tuple[Plan, ToolCall]:
    """The plan, queued with the answer to the call that asks and to no other; and that call. With `number`,
    only if that is the call; if `shared`, only if workers go on with it. `PlanError`, `NeedsHuman`,
    `StalePlan`."""
    plan = found_plan(parts, plan_id)
    if shared:
        ensure_shared(parts, plan)
    if plan.state is PlanState.WAITING:
        ensure_reachable(parts, plan)
    call = parts.lifecycle.asking(plan)
    if call is None:  # guard: what asks only now was seen by nobody
        raise PlanError(plan.id, "nothing in it waits for an answer")
    number = call.number if number is None else number
    return parts.lifecycle.answer(plan, granted, number, by=by), call


def replied(parts: PlanParts, plan_id: str, text: str) -> Plan:
    """The plan, queued with the answer to what an actor asks. `PlanError`, `NeedsHuman`, `StalePlan`."""
    plan = found_plan(parts, plan_id)
    ensure_shared(parts, plan)
    return parts.lifecycle.reply(plan, text)


def resumed(parts: PlanParts, plan_id: str, *, model: str | None, limits: Limits) -> Plan:
    """The plan, queued to go on where it stands, with that model and those limits, if any are named. What is
    wrong with them is found before anything is moved: `RequestRefused`, `PriceUnknown`. `PlanError`,
    `NeedsHuman`, `StalePlan`."""
    parts.apply.settle()
    plan = found_plan(parts, plan_id)
    ensure_shared(parts, plan)
    if not plan.state.ended:
        ensure_reachable(parts, plan)
    if model is not None:
        ensure_model_fits(parts, plan, model, limits)
    if limits != Limits():
        raise_limits(parts, plan, limits, model)
    return parts.lifecycle.resume(plan, model=model)


def rejected(parts: PlanParts, plan_id: str) -> Plan:
    """The plan, whose result is not wanted. `PlanError`, `StalePlan`."""
    plan = found_plan(parts, plan_id)
    ensure_decidable(plan, failed_too=True)
    return parts.lifecycle.reject(plan)


def ensure_shared(parts: PlanParts, plan: Plan) -> None:
    """`PlanError` for a plan that no worker takes from a queue: whoever asked for it runs it."""
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    if not queue_of(root.request):  # guard: what nobody runs is not promised to go on
        raise PlanError(plan.id, f"the command line made it and runs it: `agents plan show {plan.id}`")


def ensure_decidable(plan: Plan, *, failed_too: bool = False) -> None:
    """`PlanError`, with what can be done instead, unless there is a result to take or leave."""
    if plan.parent_id is not None and not failed_too:
        whole = f"`agents plan apply {plan.root}` applies that, with all of its parts"
        raise PlanError(plan.id, f"it is a part of plan {plan.root}; {whole}")
    if plan.state is PlanState.APPLIED:
        raise PlanError(plan.id, f"it is applied already; `agents plan undo {plan.id}` takes it back")
    if plan.state.ended:
        raise PlanError(plan.id, f"it is {plan.state.value}, which is final; run it anew if you want it")
    if plan.state is PlanState.WAITING:
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        what = on_one_line(what_it_waits_for(plan))
        raise PlanError(plan.id, f"it waits: {what}; {waiting.get('remedy')}")
    if plan.state.running:
        again = f"wait for it, or `agents plan cancel {plan.id}` it; `agents plan show {plan.id}` says more"
        raise PlanError(plan.id, f"it is not done yet ({plan.phase.value}/{plan.state.value}); {again}")
    if plan.state is PlanState.ERRORED and plan.phase is not Phase.APPLY and not failed_too:
        raise PlanError(plan.id, f"it failed and has no result; `agents plan resume {plan.id}` tries again")
