"""What a plan may spend and what it has spent; and more for one that is about to be resumed.

Whether a plan can go on with another model: found before anything of it is moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleveragents.core.errors import RequestRefused
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits, Spend
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
_NAMES = {"usd": "picodollars", "tokens": "tokens", "steps": "steps", "seconds": "seconds"}


def limits_of(
    usd: float | None, tokens: int | None, steps: int | None, seconds: float | None
) -> BudgetLimits:
    """As people give them, money in dollars."""
    return BudgetLimits(
        picodollars=None if usd is None else round(usd * PICODOLLARS),
        tokens=tokens,
        steps=steps,
        seconds=seconds,
    )


def raise_limits(parts: PlanParts, plan: Plan, limits: BudgetLimits, model: str | None = None) -> None:
    """More for a plan that is about to be resumed, with that model if one is named: before it is queued, or
    whoever takes it finds the old limits. Of one that cannot be resumed nothing is changed: `resume` says
    why. As `allow`; `NeedsHuman` for edits by hand that were not taken in."""
    plan = parts.lifecycle.reconciled(plan)
    if _is_resumable(parts, plan):  # guard: a command that fails has changed nothing
        allow(parts, plan, limits, model)


def allow(parts: PlanParts, plan: Plan, limits: BudgetLimits, model: str | None = None) -> None:
    """So much in all for the plan and all that share its budget, from the next call of a model on; its time
    from its next step on.

    `PriceUnknown`, `SpendingUncounted` where it cannot be counted. A limit is a total: one below what the
    plan may spend already is refused.
    """
    from cleveragents.plans.actors.role_models import ensure_counted

    castings = _castings(parts, plan)
    if not castings and plan.request.get("limits") is None:
        raise RequestRefused(f"limits are for plans with actors, and plan {plan.id} has none", "limits")
    for casting in castings:
        cast = [name for name in (casting.strategize, casting.execute, casting.review) if name]
        ensure_counted(parts.actors_of(plan), cast, limits)
        if limits.picodollars is not None:
            parts.thinking.ensure_priced(parts.actors_of(plan), cast, model or casting.model)
    _ensure_raised(parts, plan, limits)
    parts.thinking.raise_limits(plan, limits)


def more_time(parts: PlanParts, plan: Plan) -> float:
    """A limit in seconds that is well above what the plan may take now."""
    from cleveragents.plans.model.strategy import Strategy

    present = present_limits(parts, plan).seconds
    if present is None:
        known = Strategy(()) if plan.strategy is None else Strategy.from_json(plan.strategy)
        present = known.limit_seconds
    return max(2 * present, present + _LEAST_MORE_SECONDS)


def present_limits(parts: PlanParts, plan: Plan) -> BudgetLimits:
    """What its whole tree may spend, by now."""
    present = parts.thinking.budgets.view(plan.root).limits
    asked = plan.request.get("limits")
    if present == BudgetLimits() and isinstance(asked, Mapping):  # no model was asked yet
        return BudgetLimits.from_json(asked)
    return present


def _ensure_raised(parts: PlanParts, plan: Plan, limits: BudgetLimits) -> None:
    present = present_limits(parts, plan)
    told = limits_in_usd(present)
    for field, name in _NAMES.items():
        new, old = getattr(limits, name), getattr(present, name)
        if None not in (new, old) and new < old:
            problem = f"a limit is a total, and plan {plan.id} may spend {told[field]} {field} already"
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
    """Of the plan and of all below it that have actors."""
    every = (role_assignment_of(parts, one) for one in (plan, *below(parts, plan)))
    return [casting for casting in every if casting is not None]


def role_assignment_of(parts: PlanParts, plan: Plan) -> RoleAssignment | None:
    """Who does it: as its strategy says, or as it will; None for plain steps."""
    from cleveragents.plans.action_strategy import ActionStrategist
    from cleveragents.plans.model.strategy import Strategy

    if plan.strategy is not None:
        return Strategy.from_json(plan.strategy).casting
    return ActionStrategist(parts.find_action, parts.include_patterns)(plan).casting


def spending_of(parts: PlanParts, plan: Plan) -> dict[str, JsonValue]:
    """What the models of the plan and of all below it took, and what they may take; nothing where none was
    asked. The limits are those of the whole tree."""
    calls = _calls(parts, plan)
    if not calls:
        return {}
    view = parts.thinking.budgets.view(plan.root)
    spent = _spent(view, plan, calls)
    # Of a call under way nobody knows yet; what it takes is not among what is spent.
    known = all(call.picodollars is not None for call in calls if call.ended_at is not None)
    cut_off = any(call.state == "forfeited" or (call.state == "settled" and not call.usage) for call in calls)
    return {
        "model_calls": len(calls),
        "tokens": spent.tokens,
        "reserved_tokens": view.reserved.tokens,
        "usd": spent.picodollars / PICODOLLARS if known else None,
        "models": tuple(sorted({call.model for call in calls})),
        "limits": limits_in_usd(view.limits),
        "at_most": cut_off,
    }


def budget_of(parts: PlanParts, plan: Plan) -> dict[str, JsonValue]:
    """What the whole tree of the plan may spend, has spent, and holds back for calls under way. Of money it
    is null where a model's price is not known."""
    view = parts.thinking.budgets.view(plan.root)
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
    """Those of the plan and of all its sub-plans."""
    budgets = parts.thinking.budgets
    return [call for one in (plan, *below(parts, plan)) for call in budgets.calls_of(one.id)]


def _spent(view: BudgetState, plan: Plan, calls: Sequence[ModelCall]) -> Spend:
    """Of a root what its budget says; of a part of it, its share."""
    return view.spent if plan.parent_id is None else spend_of(calls)


def limits_in_usd(limits: BudgetLimits) -> dict[str, JsonValue]:
    """As people give them."""
    picodollars = limits.picodollars
    return {
        "usd": None if picodollars is None else picodollars / PICODOLLARS,
        "tokens": limits.tokens,
        "steps": limits.steps,
        "seconds": limits.seconds,
    }


def ensure_model_fits(parts: PlanParts, plan: Plan, model: str, asked: BudgetLimits) -> None:
    """As `agents run` does: `RequestRefused` for a plan without actors, `PriceUnknown` where money is
    bounded, and what is wrong with the model."""
    from cleveragents.core.errors import PriceUnknown, RequestRefused

    if not plan.request.get("model"):
        raise RequestRefused(f"a model is for plans with actors, and plan {plan.id} has no actors", "model")
    models = parts.thinking.models
    facts = models.facts(model)
    kept = plan.request.get("limits")
    first = BudgetLimits.from_json(kept) if isinstance(kept, Mapping) else BudgetLimits()
    now = parts.thinking.budgets.view(plan.root_id or plan.id).limits
    bounded = any(limits.picodollars is not None for limits in (first, now, asked))
    if bounded and facts.price is None:  # guard: refused before it goes on
        raise PriceUnknown(model)
    models.get(model)
