"""Views of plans in a list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from cleveragents.api.views import shown, view
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus, status_of
from cleveragents.plans.model.usage_wait import reset_time

__all__ = [
    "EXAMPLE_PLAN",
    "EXAMPLE_TIME",
    "Needs",
    "Phase",
    "PlanCount",
    "PlanFields",
    "PlanState",
    "PlanSummary",
    "plan_counts",
]

EXAMPLE_PLAN = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"
_JOB = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"
EXAMPLE_TIME = "2026-11-15T12:00:00Z"
Needs = Literal["approval", "question", "budget", "conflict", "error", "review"]


def _is_worked_on(phase: Phase, state: PlanState, needs: str | None) -> bool:
    """Return whether a worker runs or will run the plan, or the plan waits without needing a person."""
    between = (phase, state) == (Phase.STRATEGIZE, PlanState.COMPLETE)
    return state.running or between or (state is PlanState.WAITING and needs is None)


@view
class PlanFields:
    id: str = shown(examples=[EXAMPLE_PLAN])
    goal: str = shown(examples=["Add a --json flag to the export command"])
    action: str = shown(examples=["builtin/goal"])
    phase: Phase = shown(examples=["execute"])
    state: PlanState = shown(examples=["complete"])
    status: PlanStatus = shown(
        "the status: phase, state and reason in one word", examples=["ready"], default_factory=lambda: None
    )
    version: int | None = shown(
        "increases with each move; send it to act on this version only; null from a server of 0.1.0",
        default=None,
        examples=[7],
    )
    resource: str = shown("the repository or directory", examples=["/srv/shop"])
    project: str | None = shown("the project; `default` for plans of the command line", examples=["shop"])
    resource_name: str | None = shown("the name of the resource", examples=["shop-main"])
    created: datetime = shown(examples=[EXAMPLE_TIME])
    updated: datetime = shown(examples=[EXAMPLE_TIME])
    waiting_for: object = shown(
        "the pending request: its kind (`for`), its text (`what`), the `remedies`; for a usage limit, the "
        "time of its reset (`until`)",
        examples=[None],
    )
    error: str | None = shown(examples=[None])
    request: Mapping[str, object] = shown(
        "the request, masked",
        examples=[{"profile": "supervised", "checks": ["pytest -q"]}],
    )
    job: str | None = shown("the last job of the plan", examples=[_JOB])
    parent: str | None = shown("the parent of a sub-plan", examples=[None])
    root: str = shown("the plan at the top of the tree of sub-plans", examples=[EXAMPLE_PLAN])
    depth: int = shown(examples=[0])
    label: str = shown("the status, with the number of finished sub-plans", examples=["ready"], default="")
    at_rest: bool = shown(
        "whether no worker runs the plan, and none will until a person acts",
        examples=[True],
        default_factory=lambda: None,
    )
    isolation: Literal["bubblewrap", "none"] | None = shown(
        "the weakest isolation of the plan's commands in all runs; null if unknown",
        examples=["bubblewrap"],
    )
    needs: Needs | None = shown("the kind of the pending request", examples=["review"])
    meaning: str = shown(
        "the status with its explanation", examples=["ready: the result is ready for review"]
    )

    def __post_init__(self) -> None:
        if self.at_rest is None:  # a server of 0.1.0 does not send it
            object.__setattr__(self, "at_rest", not _is_worked_on(self.phase, self.state, self.needs))
        if self.status is None:
            object.__setattr__(self, "status", self._status())

    def _status(self) -> PlanStatus:
        from cleveragents.core.cancellation import is_resumable_stop

        return status_of(
            self.phase,
            self.state,
            stopped=is_resumable_stop(self.error),
            sub_plans_run=self.waits_for_sub_plans and self.needs is None,
            in_conflict=self.needs == "conflict",
            merged=self.label == "merged",
            changed=self.parent is not None or self.needs == "review",
        )

    @property
    def title(self) -> str:
        """The goal on one line; for a sub-plan, its name and the first line of its goal."""
        if self.parent is None:
            return " ".join(self.goal.split())
        goal = " ".join(self.goal.strip().partition("\n")[0].split())
        name = self.request.get("name")
        called = " ".join(name.split()) if isinstance(name, str) and name else goal
        return called if called == goal else f"{called}: {goal}"

    @property
    def waits_for_sub_plans(self) -> bool:
        """Whether the plan waits for its sub-plans, not for a person."""
        waiting = self.waiting_for if isinstance(self.waiting_for, Mapping) else {}
        return self.state is PlanState.WAITING and waiting.get("for") == "sub-plans"

    @property
    def parked_until(self) -> datetime | None:
        """The time at which a plan that waits for the reset of a usage limit continues; None for others."""
        return reset_time(self.state, self.waiting_for)


@view
class PlanSummary(PlanFields):
    """A plan in a list."""

    sub_plans: int = shown("number of sub-plans, started or not", examples=[0])
    sub_plans_done: int = shown(examples=[0])
    sub_plans_left_out: int = shown(examples=[0])


@view
class PlanCount:
    """The number of plans in one phase and state."""

    phase: Phase = shown(examples=["execute"])
    state: PlanState = shown(examples=["complete"])
    count: int = shown(examples=[3])


def plan_counts(found: Mapping[tuple[Phase, PlanState], int]) -> tuple[PlanCount, ...]:
    """Return the views of counted plans, in a fixed order."""
    return tuple(
        PlanCount(phase=phase, state=state, count=found[phase, state])
        for phase in Phase
        for state in PlanState
        if found.get((phase, state))
    )
