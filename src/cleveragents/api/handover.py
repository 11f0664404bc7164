"""What other agents may do: have plans made, look at them, have them applied where the policy allows it.

Whoever speaks for another agent asks here, whatever the protocol. Such an agent chooses the goal and no more:
the profile is the user's, so it cannot give itself leave, and a result that the profile leaves to a person is
left to one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from cleveragents.api.context import context_view
from cleveragents.api.plans import deciding as ending
from cleveragents.api.plans.account import found_plan
from cleveragents.api.plans.applying import apply_later
from cleveragents.api.plans.diffs import patch_of
from cleveragents.api.plans.overview import overview_of
from cleveragents.api.plans.requests import Wanted, ensure_new_branch, requested_plan
from cleveragents.api.plans.spending import limits_of
from cleveragents.api.resources import place_of
from cleveragents.api.server_requests import Asked, shared_plan
from cleveragents.api.views import as_json
from cleveragents.core.errors import NeedsHuman, PlanError, RequestRefused
from cleveragents.core.errors.remedy import Remedy
from cleveragents.core.json_value import JsonValue, freeze, thaw
from cleveragents.core.policy import Capability, Verdict
from cleveragents.plans.jobs.names import home_queue
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.storage.answers import Claim

__all__ = ["Dollars", "Goal", "Handover", "Seconds", "Tokens"]

# What a limit may be, as for those who ask by HTTP: one without an end could neither be counted nor kept.
Dollars = Annotated[float, Field(gt=0, le=1e6)]
Tokens = Annotated[int, Field(gt=0, le=2**53)]
Seconds = Annotated[float, Field(gt=0, le=30 * 86_400)]

_RESOURCES = Remedy("resource.list", text="List the resources")
_LONGEST_DIFF = 200_000
_LOOK_SECONDS = 0.2
_TOLD = (
    "id",
    "goal",
    "phase",
    "state",
    "branch",
    "needs",
    "meaning",
    "error",
    "files_changed",
    "next_steps",
)


@dataclass(frozen=True, slots=True)
class Goal:
    """What another agent wants done, on a registered resource or where the server was started. `to_branch` is
    the new branch of a git remote that the result is pushed to."""

    goal: str
    resource: str | None = None
    model: str | None = None
    checks: Sequence[str] = ()
    max_usd: float | None = None
    max_tokens: int | None = None
    seconds: float | None = None
    to_branch: str | None = None

    def wanted(self, profile: str | None) -> Wanted:
        """As the desk takes it, with the user's profile."""
        return Wanted(
            action=None,
            words=(self.goal,),
            pairs=(),
            checks=tuple(self.checks),
            profile=profile,
            from_head=False,
            include=(),
            goal=None,
            commit=False,
            model=self.model,
            limits=limits_of(self.max_usd, self.max_tokens, None, self.seconds),
        )


@dataclass(frozen=True, slots=True)
class Handover:
    """One agent's way to us. Stateless but for the parts: any thread may ask. `directory` is where plans run
    that name no resource; without one they must. `profile` is what plans may do by themselves; None is the
    settings' own."""

    container: Container
    by: str
    directory: Path | None = None
    profile: str | None = None

    def create(self, goal: Goal) -> Mapping[str, JsonValue]:
        """A plan, queued for a worker. What is wrong with the request is raised, and nothing made."""
        return self._told(self.created(goal))

    def created(self, goal: Goal, claim: Claim | None = None) -> Plan:
        """As `create`, as the plan; on a resource, the one that was made under the claim before, if there is
        one."""
        wanted = goal.wanted(self.profile)
        if goal.resource is not None:
            asked = Asked(goal.resource, wanted, to_branch=goal.to_branch)
            return shared_plan(self.container, asked, by=self.by, claim=claim)
        if self.directory is None:
            raise RequestRefused("name a resource that plans may run on", "resource", (_RESOURCES,))
        if goal.to_branch is not None:
            ensure_new_branch(goal.to_branch, remote=False)
        parts = self.container.plan_parts
        new = requested_plan(parts, wanted, self.directory)
        known = thaw(new.request)
        assert isinstance(known, dict)
        request = freeze({**known, "queue": home_queue(self.container.home), "by": self.by})
        assert isinstance(request, Mapping)
        return parts.lifecycle.create(replace(new, request=request))

    def status(self, plan_id: str, wait_seconds: float = 0.0) -> Mapping[str, JsonValue]:
        """Where the plan stands; with `wait_seconds`, once it needs somebody or has come to rest, if that is
        sooner. `UnknownPlan`."""
        parts, clock = self.container.plan_parts, self.container.clock
        plan = found_plan(parts, plan_id)
        deadline = clock.monotonic() + wait_seconds
        while plan.state.running and clock.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            plan = found_plan(parts, plan.id)
        return self._told(plan)

    def diff(self, plan_id: str, *, masked: bool = False) -> str:
        """What the plan changed, as a patch; `masked`, without secrets. `UnknownPlan`, `SandboxMissing`."""
        parts = self.container.plan_parts
        text = patch_of(parts, found_plan(parts, plan_id), masked=masked).decode("utf-8", "replace")
        if len(text) <= _LONGEST_DIFF:
            return text
        left = len(text) - _LONGEST_DIFF
        return f"{text[:_LONGEST_DIFF]}\n… {left:,} more characters, which the diff of plan {plan_id} shows"

    def apply(
        self, plan_id: str, message: str | None = None, to_branch: str | None = None
    ) -> Mapping[str, JsonValue]:
        """Has the result applied, to a new branch of its git remote if one is named. Only if the plan's own
        policy allows that without a person: else `NeedsHuman`. `PlanError` when there is nothing to apply,
        `RequestRefused` and `InvalidName` for the branch."""
        parts = self.container.plan_parts
        plan = found_plan(parts, plan_id)
        if plan.standing == (Phase.APPLY, PlanState.APPLIED):
            raise PlanError(plan.id, "it is applied already")
        if plan.strategy is None:
            raise PlanError(plan.id, f"it is {plan.state.value}; there is nothing to apply yet")
        verdict = Strategy.from_json(plan.strategy).policy.verdict(Capability.APPLY)
        if verdict is not Verdict.ALLOW:  # guard: another agent has no more leave than the policy gives
            apply = Remedy("plan.apply", plan.id, text="Apply it")
            raise NeedsHuman(plan.id, "its profile leaves applying to a person", (apply,))
        job = apply_later(self.container, plan.id, message=message, by=self.by, to_branch=to_branch)
        return {"plan": plan.id, "job": job.id, "state": "queued"}

    def cancel(self, plan_id: str, reason: str) -> Mapping[str, JsonValue]:
        """Stops the plan and all its processes. `PlanError` when there is nothing left to stop."""
        return self._told(ending.cancel(self.container, plan_id, f"{reason} ({self.by})"))

    def context(
        self, question: str, resource: str | None = None, budget: int | None = None
    ) -> Mapping[str, JsonValue]:
        """The code that matters for a question. No model is asked."""
        from cleveragents.context.code_index import CodePlace
        from cleveragents.context.query import ContextQuery

        container = self.container
        place = self.directory
        if resource is not None:
            place = place_of(container, container.projects.resource(resource))
        if place is None:
            raise RequestRefused("name a resource to be asked about", "resource", (_RESOURCES,))
        settings = container.settings.context
        asked = ContextQuery(
            question=question,
            place=CodePlace(place, None),
            budget_tokens=budget or settings.budget_tokens,
            deadline_seconds=settings.deadline_seconds,
        )
        answer = container.context_parts.pipeline.ask(asked)
        return {name: value for name, value in as_json(context_view(answer)).items() if name != "ranking"}

    def _told(self, plan: Plan) -> dict[str, JsonValue]:
        account = overview_of(self.container.plan_parts, plan)
        return {name: account[name] for name in _TOLD} | {
            "checks": [
                {name: row[name] for name in ("name", "verdict", "stale")} for row in _rows(account["checks"])
            ],
            "changes": [{"path": row["path"], "change": row["change"]} for row in _rows(account["changes"])],
        }


def _rows(value: JsonValue) -> list[Mapping[str, JsonValue]]:
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [item for item in items if isinstance(item, Mapping)]
