"""The jobs of plans: what they are called, how often they are tried, and which plans need one."""

from __future__ import annotations

from cleveragents.domain.plan import Phase, Plan, PlanState

__all__ = ["ATTEMPTS", "SHARED_ATTEMPTS", "is_to_be_run", "key_of_job", "kind_of_plan"]

ATTEMPTS = 3
SHARED_ATTEMPTS = 10
"""Of a shared queue, whose workers come and go: each that is stopped or killed costs its jobs an attempt."""


def kind_of_plan(root_id: str) -> str:
    """The kind of the jobs of a tree of plans: its own, so that who runs a plan in the foreground runs its
    sub-plans, too, and no other."""
    return f"plan:{root_id}"


def key_of_job(plan: Plan) -> str:
    """Says for which version of the plan a job was submitted, so that it is submitted once."""
    return f"{plan.id}@{plan.version}"


def is_to_be_run(plan: Plan) -> bool:
    """Whether it was left before the end of what a job does: between its two phases, too."""
    if plan.phase is Phase.APPLY:
        return False
    return plan.state.running or plan.standing == (Phase.STRATEGIZE, PlanState.COMPLETE)
