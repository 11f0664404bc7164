"""Where plans stand and what they have spent, looked up while they run, here or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.json_value import freeze, freeze_object
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits, Spend, dollars
from cleveragents.plans.family import below, spend_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanView
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["Meter", "MeterReading", "PlanMeter", "ViewMeter", "plan_of", "spending_label"]


@dataclass(frozen=True, slots=True)
class MeterReading:
    """What the records say. What was spent is, of a root, what its whole tree spent."""

    plan: Plan
    spent: Spend
    limits: BudgetLimits


class Meter(Protocol):
    """Where one plan and those below it stand, for whoever draws it."""

    @property
    def last(self) -> MeterReading:
        """What was read last."""
        ...

    @property
    def below(self) -> Sequence[MeterReading]:
        """The same of the plans below it."""
        ...

    def read(self) -> MeterReading:
        """What holds now, as far as that is to be had."""
        ...


class PlanMeter:
    """Reads the records of one plan and of those below it. Not thread-safe: whoever draws reads it."""

    def __init__(self, parts: PlanParts, plan: Plan) -> None:
        self._parts = parts
        self.last = MeterReading(plan, Spend(), BudgetLimits())
        self.below: Sequence[MeterReading] = ()

    def read(self) -> MeterReading:
        """What holds now; what held before, when the store is not to be had just then."""
        plan = self.last.plan
        with suppress(CleverAgentsError):
            budget = self._parts.thinking.budgets.view(plan.root)
            plan = self._parts.plans.get(plan.id)
            self.last = MeterReading(plan, budget.spent, budget.limits)
            known = {reading.plan.id: reading for reading in self.below}
            self.below = [
                self._part(child, known.get(child.id), budget.limits) for child in below(self._parts, plan)
            ]
        return self.last

    def _part(self, plan: Plan, known: MeterReading | None, limits: BudgetLimits) -> MeterReading:
        """Of what has not moved, and does not run, nothing is read again."""
        if known is not None and known.plan.version == plan.version and not plan.state.running:
            return known
        return MeterReading(plan, spend_of(self._parts.thinking.budgets.calls_of(plan.id)), limits)


class ViewMeter:
    """Where a plan that a client shows and those below it stand. Who follows the plan tells it, on one
    thread; whoever draws may read it meanwhile, because what was read before is replaced in one step."""

    def __init__(self, plan: PlanView) -> None:
        self.last = _reading(plan)
        self.below: Sequence[MeterReading] = ()

    def read(self) -> MeterReading:
        return self.last

    def take(self, plan: PlanView) -> None:
        """What is known now of the plan, or of one below it."""
        self._put(_reading(plan))

    def hear(self, kind: str, plan_id: str, facts: Mapping[str, Any]) -> None:
        """Something happened to one of them: it moved, or a model answered."""
        known = next((one for one in (self.last, *self.below) if one.plan.id == plan_id), None)
        if known is None:
            return
        if kind == "plan.moved":
            plan = replace(known.plan, phase=Phase(facts["phase"]), state=PlanState(facts["state"]))
            self._put(replace(known, plan=plan))
        elif kind == "model_call.ended" and known is not self.last:
            # What the plan itself has spent is asked for, as it costs money, too.
            self._put(_with_more(known, int(facts.get("tokens") or 0)))

    def _put(self, reading: MeterReading) -> None:
        name = reading.plan.id
        if name == self.last.plan.id:
            self.last = reading
        elif any(one.plan.id == name for one in self.below):
            self.below = [reading if one.plan.id == name else one for one in self.below]
        else:
            self.below = [*self.below, reading]


def plan_of(plan: PlanView) -> Plan:
    """The plan that a view shows, as far as boards need it."""
    parts = [{"sub_plan": True} for _ in plan.sub_plans]
    return Plan(
        id=plan.id,
        goal=plan.goal,
        action=plan.action,
        resource=plan.resource,
        phase=plan.phase,
        state=plan.state,
        version=0,
        created_at=plan.created,
        updated_at=plan.updated,
        request=freeze_object(plan.request, where="request"),
        strategy=freeze({"tasks": parts}),
        waiting_for=freeze(plan.waiting_for),
        error=plan.error,
        job_id=plan.job,
        parent_id=plan.parent,
        root_id=plan.root,
        depth=plan.depth,
    )


def _with_more(reading: MeterReading, tokens: int) -> MeterReading:
    return replace(reading, spent=replace(reading.spent, tokens=reading.spent.tokens + tokens))


def _reading(plan: PlanView) -> MeterReading:
    from cleveragents.api.plans.budget import limits_of

    spending, limits = plan.spending, plan.spending.limits
    spent = Spend(
        picodollars=round((spending.usd or 0) * PICODOLLARS),
        tokens=spending.tokens or 0,
        steps=spending.model_calls or 0,
    )
    if limits is None:
        return MeterReading(plan_of(plan), spent, BudgetLimits())
    allowed = limits_of(limits.usd, limits.tokens, limits.steps, limits.seconds)
    return MeterReading(plan_of(plan), spent, allowed)


def spending_label(reading: MeterReading) -> list[str]:
    """`1,234 of 50,000 tokens`, `$0.0012 of $0.50`; nothing before a model was asked."""
    spent, limits = reading.spent, reading.limits
    if not spent.tokens and limits == BudgetLimits():
        return []
    words = [
        f"{spent.tokens:,} tokens"
        if limits.tokens is None
        else f"{spent.tokens:,} of {limits.tokens:,} tokens"
    ]
    if limits.picodollars is not None:
        words.append(f"{dollars(spent.picodollars)} of {dollars(limits.picodollars)}")
    elif spent.picodollars:
        words.append(dollars(spent.picodollars))
    return words
