"""Meters: the status and the spending of plans, read while they run here or on a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.api.plans.status_text import plan_status
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.json_value import freeze, freeze_object
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits, Spend, dollars
from cleveragents.plans.family import below, spend_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.status import PlanStatus, status_of

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanView
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["Meter", "MeterReading", "PlanMeter", "ViewMeter", "plan_of", "spending_label"]


class MeterReading(Struct, frozen=True):
    """The status and the spending of a plan; the spending of a root includes its sub-plans."""

    plan: Plan
    spent: Spend
    limits: BudgetLimits
    status: PlanStatus


class Meter(Protocol):
    """Readings of one plan and its sub-plans, for a view."""

    @property
    def last(self) -> MeterReading:
        """The last reading of the plan."""
        ...

    @property
    def below(self) -> Sequence[MeterReading]:
        """The last readings of the plan's sub-plans."""
        ...

    def read(self) -> MeterReading:
        """Return a new reading; if none is available, return the last reading."""
        ...


class PlanMeter:
    """A meter over the stores of this machine. Not thread-safe: use it in the thread that draws."""

    def __init__(self, parts: PlanParts, plan: Plan) -> None:
        self._parts = parts
        self.last = MeterReading(plan, Spend(), BudgetLimits(), status_of(plan.phase, plan.state))
        self.below: Sequence[MeterReading] = ()

    def read(self) -> MeterReading:
        """Return a new reading, or the last reading if the store is not available."""
        plan = self.last.plan
        with suppress(CleverAgentsError):
            budget = self._parts.actor_parts.budgets.view(plan.root)
            plan = self._parts.plans.get(plan.id)
            self.last = MeterReading(plan, budget.spent, budget.limits, plan_status(self._parts, plan))
            known = {reading.plan.id: reading for reading in self.below}
            self.below = [
                self._part(child, known.get(child.id), budget.limits) for child in below(self._parts, plan)
            ]
        return self.last

    def _part(self, plan: Plan, known: MeterReading | None, limits: BudgetLimits) -> MeterReading:
        """Return the reading of a sub-plan. The last reading of a sub-plan at rest is used again, except for
        its status, which changes when the sub-plan is merged.
        """
        at_rest = known is not None and known.plan.version == plan.version and not plan.state.running
        if known is not None and at_rest and known.status is not PlanStatus.READY:
            return known
        status = plan_status(self._parts, plan)
        if known is not None and at_rest:
            return replace(known, status=status)
        return MeterReading(plan, spend_of(self._parts.actor_parts.budgets.calls_of(plan.id)), limits, status)


class ViewMeter:
    """A meter over views of a client.

    The thread that follows the plan writes; other threads may read, because each reading is replaced in one
    step.
    """

    def __init__(self, plan: PlanView) -> None:
        self.last = _reading(plan)
        self.below: Sequence[MeterReading] = ()

    def read(self) -> MeterReading:
        return self.last

    def take(self, plan: PlanView) -> None:
        """Take a new view of the plan or of a sub-plan."""
        self._put(_reading(plan))

    def hear(self, kind: str, plan_id: str, facts: Mapping[str, Any]) -> None:
        """Take an event of the plan or of a sub-plan: a move, or the end of a model call."""
        known = next((one for one in (self.last, *self.below) if one.plan.id == plan_id), None)
        if known is None:
            return
        if kind == "plan.moved":
            phase, state = Phase(facts["phase"]), PlanState(facts["state"])
            plan = replace(known.plan, phase=phase, state=state)
            self._put(replace(known, plan=plan, status=status_of(phase, state)))
        elif kind == "model_call.ended" and known is not self.last:
            # The follower asks for the spending of the plan itself: it includes money.
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
    """Convert a view to a `Plan` with the fields that boards need."""
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
        return MeterReading(plan_of(plan), spent, BudgetLimits(), plan.status)
    allowed = limits_of(limits.usd, limits.tokens, limits.steps, limits.seconds)
    return MeterReading(plan_of(plan), spent, allowed, plan.status)


def spending_label(reading: MeterReading) -> list[str]:
    """Return texts such as `1,234 of 50,000 tokens` and `$0.0012 of $0.50`; empty before the first model
    call.
    """
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
