"""What a person decides about a plan: whether it can be decided now, and the answer to what it asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleveragents.domain.plan import Phase, PlanState
from cleveragents.errors import PlanError
from cleveragents.interfaces.desk.accounts import found_plan
from cleveragents.interfaces.desk.meanings import what_it_waits_for
from cleveragents.interfaces.desk.reach import ensure_reachable
from cleveragents.interfaces.desk.wording import on_one_line

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.plan import Plan
    from cleveragents.domain.tool import ToolCall

__all__ = ["answered_call", "ensure_decidable"]


def answered_call(
    parts: PlanParts, plan_id: str, number: int | None, *, granted: bool
) -> tuple[Plan, ToolCall | None]:
    """The plan, queued with the answer to the call that asks and to no other; and that call. With `number`,
    only if that is the call. `PlanError`, `NeedsHuman`, `StalePlan`."""
    plan = found_plan(parts, plan_id)
    if plan.state is PlanState.WAITING:
        ensure_reachable(parts, plan)
    call = parts.lifecycle.asking(plan)
    if call is not None and number is None:
        number = call.number
    return parts.lifecycle.answer(plan, granted, number), call


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
