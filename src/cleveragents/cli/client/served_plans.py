"""Plans of a server as the views of the command line know them, and where they stand, from what it tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from cleveragents.api.plans.spending import limits_of
from cleveragents.cli.client.accounts import Account
from cleveragents.cli.plan.meter import Reading
from cleveragents.core.json_value import freeze
from cleveragents.models.model.budget import PICODOLLARS, Limits, Spend
from cleveragents.plans.model.plan import Phase, Plan, PlanState

__all__ = ["ServedMeter", "plan_of"]


def plan_of(account: Account) -> Plan:
    """The plan that an account tells of, as far as it does."""
    request = freeze(account["request"])
    assert isinstance(request, Mapping)
    parts = [{"sub_plan": True} for _ in account["sub_plans"]]
    return Plan(
        id=account["id"],
        goal=account["goal"],
        action=account["action"],
        resource=account["resource"],
        phase=Phase(account["phase"]),
        state=PlanState(account["state"]),
        version=0,
        created_at=datetime.fromisoformat(account["created"]),
        updated_at=datetime.fromisoformat(account["updated"]),
        request=request,
        strategy=freeze({"tasks": parts}),
        waiting_for=freeze(account["waiting_for"]),
        error=account["error"],
        job_id=account["job"],
        parent_id=account["parent"],
        root_id=account["root"],
        depth=account["depth"],
    )


class ServedMeter:
    """Where one plan and those below it stand. Who follows the plan tells it, on one thread; whoever draws
    may read it meanwhile, because what was read before is replaced in one step."""

    def __init__(self, account: Account) -> None:
        self.last = _reading(account)
        self.below: Sequence[Reading] = ()

    def read(self) -> Reading:
        return self.last

    def take(self, account: Account) -> None:
        """What the server says now of the plan, or of one below it."""
        self._put(_reading(account))

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

    def _put(self, reading: Reading) -> None:
        name = reading.plan.id
        if name == self.last.plan.id:
            self.last = reading
        elif any(one.plan.id == name for one in self.below):
            self.below = [reading if one.plan.id == name else one for one in self.below]
        else:
            self.below = [*self.below, reading]


def _with_more(reading: Reading, tokens: int) -> Reading:
    return replace(reading, spent=replace(reading.spent, tokens=reading.spent.tokens + tokens))


def _reading(account: Account) -> Reading:
    spending = account["spending"]
    limits = spending["limits"]
    spent = Spend(
        picodollars=round((spending["usd"] or 0) * PICODOLLARS),
        tokens=spending["tokens"] or 0,
        steps=spending["model_calls"] or 0,
    )
    allowed = Limits() if limits is None else limits_of(**{name: limits[name] for name in _LIMITS})
    return Reading(plan_of(account), spent, allowed)


_LIMITS = ("usd", "tokens", "steps", "seconds")
