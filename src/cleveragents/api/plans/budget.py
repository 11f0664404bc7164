"""Budgets of plans: limits, spending, and raised limits for a resume. Also whether a plan can continue with
another model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleveragents.core.errors import RequestRefused
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits, Spend, lowered_limit
from cleveragents.models.model.conversation import Usage
from cleveragents.plans.family import below, spend_of

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.models.ports import BudgetState, ModelCall
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.model.strategy import RoleAssignment

__all__ = [
    "allow",
    "budget_of",
    "ensure_model_fits",
    "limits_in_usd",
    "limits_of",
    "more_time",
    "present_limits",
    "raise_limits",
    "role_assignment_of",
    "spending_of",
]


_LEAST_MORE_SECONDS = 60


def limits_of(
    usd: float | None, tokens: int | None, steps: int | None, seconds: float | None
) -> BudgetLimits:
    """Return the limits with money in dollars."""
    return BudgetLimits(
        picodollars=None if usd is None else round(usd * PICODOLLARS),
        tokens=tokens,
        steps=steps,
        seconds=seconds,
    )


def raise_limits(parts: PlanParts, plan: Plan, limits: BudgetLimits, model: str | None = None) -> None:
    """Raise the limits of a plan before it is resumed, so that a worker finds the new limits. `model` is the
    model that the plan will continue with; None for its current model.

    A plan that cannot be resumed is not changed; `resume` reports why. Errors as in `allow`; `NeedsHuman` for
    edits by hand that were not captured.
    """
    plan = parts.lifecycle.reconciled(plan)
    if _is_resumable(parts, plan):  # guard: a command that fails has changed nothing
        allow(parts, plan, limits, model)


def allow(parts: PlanParts, plan: Plan, limits: BudgetLimits, model: str | None = None) -> None:
    """Set the total limits of the plan and of all plans that share its budget. They apply from the next model
    call on; the time limit, from the next step on.

    Raises `PriceUnknown`, `SpendingUncounted` if spending cannot be counted. A limit below the current limit
    is refused.
    """
    from cleveragents.plans.actors.role_models import ensure_counted

    castings = _castings(parts, plan)
    if not castings and plan.request.get("limits") is None:
        raise RequestRefused(f"limits need an actor, and plan {plan.id} has none", "limits")
    for casting in castings:
        cast = [name for name in (casting.strategize, casting.execute, casting.review) if name]
        ensure_counted(parts.actors_of(plan), cast, limits)
        if limits.picodollars is not None:
            parts.actor_parts.ensure_priced(parts.actors_of(plan), cast, model or casting.model)
    _ensure_raised(parts, plan, limits)
    parts.actor_parts.raise_limits(plan, limits)


def more_time(parts: PlanParts, plan: Plan) -> float:
    """Return a time limit in seconds well above the current one."""
    from cleveragents.plans.model.strategy import Strategy

    present = present_limits(parts, plan).seconds
    if present is None:
        known = Strategy(()) if plan.strategy is None else Strategy.from_json(plan.strategy)
        present = known.limit_seconds
    return max(2 * present, present + _LEAST_MORE_SECONDS)


def present_limits(parts: PlanParts, plan: Plan) -> BudgetLimits:
    """Return the current limits of the whole tree."""
    present = parts.actor_parts.budgets.view(plan.root).limits
    asked = plan.request.get("limits")
    if present == BudgetLimits() and isinstance(asked, Mapping):  # no model was called yet
        return BudgetLimits.from_json(asked)
    return present


def _ensure_raised(parts: PlanParts, plan: Plan, limits: BudgetLimits) -> None:
    lowered = lowered_limit(present_limits(parts, plan), limits)
    if lowered is not None:
        field, present = lowered
        problem = f"a limit is a total and cannot be lowered: plan {plan.id} already has {present} {field}"
        raise RequestRefused(problem, f"limits.{field}")


def _is_resumable(parts: PlanParts, plan: Plan) -> bool:
    from cleveragents.plans.model.plan import Phase, PlanState
    from cleveragents.plans.run import should_run

    if should_run(plan):
        return not (parts.lifecycle.has_worker(plan) or parts.lifecycle.should_cancel(plan))
    if plan.phase is Phase.APPLY or plan.state not in (PlanState.WAITING, PlanState.ERRORED):
        return False
    if parts.lifecycle.asking(plan) is not None:
        return False
    parts.sandbox_edits.ensure_taken_in(plan)
    return True


def _castings(parts: PlanParts, plan: Plan) -> list[RoleAssignment]:
    """Return the role assignments of the plan and all plans below it, without plans that use no actors."""
    every = (role_assignment_of(parts, one) for one in (plan, *below(parts, plan)))
    return [casting for casting in every if casting is not None]


def role_assignment_of(parts: PlanParts, plan: Plan) -> RoleAssignment | None:
    """Return the role assignment of the plan's strategy; None for fixed steps."""
    from cleveragents.plans.action_strategy import ActionStrategist
    from cleveragents.plans.model.strategy import Strategy

    if plan.strategy is not None:
        return Strategy.from_json(plan.strategy).casting
    return ActionStrategist(parts.find_action, parts.include_patterns)(plan).casting


def spending_of(parts: PlanParts, plan: Plan) -> dict[str, JsonValue]:
    """Return the spending of the plan and all plans below it, with the limits of the tree; empty before the
    first model call.
    """
    calls = _calls(parts, plan)
    if not calls:
        return {}
    view = parts.actor_parts.budgets.view(plan.root)
    spent = _spent(view, plan, calls)
    # The cost of a running call is unknown and not included.
    known = all(call.picodollars is not None for call in calls if call.ended_at is not None)
    cut_off = any(call.state == "forfeited" or (call.state == "settled" and not call.usage) for call in calls)
    used = Usage.sum(call.usage for call in calls if call.usage is not None)
    return {
        "model_calls": len(calls),
        "tokens": spent.tokens,
        "reserved_tokens": view.reserved.tokens,
        "input_tokens": used.input_tokens,
        "cached_tokens": used.cached_tokens,
        "usd": spent.picodollars / PICODOLLARS if known else None,
        "models": tuple(sorted({call.model for call in calls})),
        "limits": limits_in_usd(view.limits),
        "at_most": cut_off,
    }


def budget_of(parts: PlanParts, plan: Plan) -> dict[str, JsonValue]:
    """Return the limits, spending and reservations of the plan's tree. Money is null if a model's price is
    unknown.
    """
    view = parts.actor_parts.budgets.view(plan.root)
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    calls = _calls(parts, root)
    priced = all(call.picodollars is not None for call in calls if call.ended_at is not None)
    return {
        "plan": root.id,
        "limits": limits_in_usd(present_limits(parts, plan)),
        "spent": _in_usd(view.spent, priced=priced),
        "reserved": _in_usd(view.reserved, priced=priced),
        "models": tuple(sorted({call.model for call in calls})),
    }


def _in_usd(spend: Spend, *, priced: bool) -> dict[str, JsonValue]:
    usd = spend.picodollars / PICODOLLARS if priced else None
    return {"usd": usd, "tokens": spend.tokens, "steps": spend.steps}


def _calls(parts: PlanParts, plan: Plan) -> list[ModelCall]:
    """Return the model calls of the plan and all its sub-plans."""
    budgets = parts.actor_parts.budgets
    return [call for one in (plan, *below(parts, plan)) for call in budgets.calls_of(one.id)]


def _spent(view: BudgetState, plan: Plan, calls: Sequence[ModelCall]) -> Spend:
    """Return the spending of the plan: for a root plan, the total of its budget; for a sub-plan, the sum of
    `calls`.
    """
    return view.spent if plan.parent_id is None else spend_of(calls)


def limits_in_usd(limits: BudgetLimits) -> dict[str, JsonValue]:
    """Return the limits with money in dollars."""
    picodollars = limits.picodollars
    return {
        "usd": None if picodollars is None else picodollars / PICODOLLARS,
        "tokens": limits.tokens,
        "steps": limits.steps,
        "seconds": limits.seconds,
    }


def ensure_model_fits(parts: PlanParts, plan: Plan, model: str, asked: BudgetLimits) -> None:
    """Check that the plan can continue with the model, with the same checks as `agents run`.

    Raises `RequestRefused` for a plan without actors, `PriceUnknown` if money is limited, and the errors of
    the model.
    """
    from cleveragents.core.errors import PriceUnknown, RequestRefused

    if not plan.request.get("model"):
        raise RequestRefused(f"a model needs an actor, and plan {plan.id} has none", "model")
    models = parts.actor_parts.models
    facts = models.facts(model)
    kept = plan.request.get("limits")
    first = BudgetLimits.from_json(kept) if isinstance(kept, Mapping) else BudgetLimits()
    now = parts.actor_parts.budgets.view(plan.root_id or plan.id).limits
    bounded = any(limits.picodollars is not None for limits in (first, now, asked))
    if bounded and facts.price is None:  # guard: refused before the plan continues
        raise PriceUnknown(model)
    models.get(model)
