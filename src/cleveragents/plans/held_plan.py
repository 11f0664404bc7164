"""A plan in the hands of the job that runs it, and what it is put down for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cleveragents.core.clock import Clock
from cleveragents.core.errors import ActorAsks, BudgetExhausted, NeedsHuman
from cleveragents.core.errors.remedy import offered
from cleveragents.core.fence import Fence
from cleveragents.core.isolation import Isolation
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanFacts, PlanStore

__all__ = ["HeldPlan", "waited"]


@dataclass(slots=True)
class HeldPlan:
    """The plan as this run last moved it. Once anybody else has moved the plan, or taken its job, whatever
    the run wants to make of it is refused. Not thread-safe: the run's own."""

    plans: PlanStore
    clock: Clock
    plan: Plan
    fence: Fence
    left: Mapping[str, JsonValue] = field(default_factory=dict)

    def begin(self, isolation: Isolation) -> Plan:
        """Takes the phase; from one that died in it, too: its version is worth nothing from now on.
        `isolation` is that of the commands that this run may start."""
        self.move(self.plan.phase, PlanState.PROCESSING, PlanFacts(isolation=isolation))
        return self.plan

    def wait(self, waiting_for: JsonValue) -> None:
        self.move(self.plan.phase, PlanState.WAITING, PlanFacts(waiting_for=waiting_for))

    def end(self, state: PlanState, error: str) -> None:
        self.move(self.plan.phase, state, PlanFacts(error=error))

    def move(self, phase: Phase, state: PlanState, facts: PlanFacts | None = None) -> None:
        now = self.clock.now()
        self.plan = self.plans.move(self.plan, (phase, state), facts, now=now, fence=self.fence)


def waited(needed: NeedsHuman | BudgetExhausted, root_id: str) -> JsonValue:
    """What a plan is put down for, until a person has answered, or raised the budget of its whole tree."""
    if isinstance(needed, BudgetExhausted):
        raised = [replace(remedy, plan=root_id) for remedy in needed.remedies]
        return {"for": "budget", "what": needed.what, **offered(raised)}
    told: dict[str, JsonValue] = {"for": "leave", "what": needed.what, **offered(needed.remedies)}
    if not isinstance(needed, ActorAsks):
        return told
    return {**told, "for": "question", "question": needed.question_id, "choices": needed.choices}
