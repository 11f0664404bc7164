"""Whether a plan can go on with another model: found before anything of it is moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleveragents.models.model.budget import Limits

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["ensure_model_fits"]


def ensure_model_fits(parts: PlanParts, plan: Plan, model: str, asked: Limits) -> None:
    """As `agents run` does: `RequestRefused` for a plan without actors, `PriceUnknown` where money is
    bounded, and what is wrong with the model."""
    from cleveragents.core.errors import PriceUnknown, RequestRefused

    if not plan.request.get("model"):
        raise RequestRefused(f"a model is for plans with actors, and plan {plan.id} has no actors", "model")
    models = parts.thinking.models
    facts = models.facts(model)
    kept = plan.request.get("limits")
    first = Limits.from_json(kept) if isinstance(kept, Mapping) else Limits()
    now = parts.thinking.budgets.view(plan.root_id or plan.id).limits
    bounded = any(limits.picodollars is not None for limits in (first, now, asked))
    if bounded and facts.price is None:  # guard: refused before it goes on
        raise PriceUnknown(model)
    models.get(model)
