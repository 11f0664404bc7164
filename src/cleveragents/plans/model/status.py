"""The status of a plan: one word for its phase, its state and the reason for that state.

The command line, JSON, the HTTP API, the page and the documents use these words. Stores and events keep the
phase and the state.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from itertools import product

from cleveragents.plans.model.plan import Phase, Plan, PlanState

__all__ = ["PlanStatus", "possible_states", "status_of"]


class PlanStatus(str, Enum):
    """The status of a plan, as people and programs see it."""

    QUEUED = "queued"
    """Waits for a worker."""
    PLANNING = "planning"
    """An actor decides what to do."""
    RUNNING = "running"
    """An actor or a command works, or sub-plans do."""
    WAITING = "waiting"
    """Needs a person (approval, question, budget, conflict, correction), or waits for a usage limit."""
    PAUSED = "paused"
    """Stopped by a person or a failed sibling; can be resumed."""
    READY = "ready"
    """The result is ready for review."""
    UNCHANGED = "unchanged"
    """Done without changing a file."""
    MERGED = "merged"
    """A sub-plan whose result is in its parent."""
    APPLYING = "applying"
    """Being applied or pushed; after a crash the outcome may be unknown."""
    BLOCKED = "blocked"
    """Could not be applied: conflict, check, policy, remote."""
    APPLIED = "applied"
    UNDONE = "undone"
    DISCARDED = "discarded"
    FAILED = "failed"
    CANCELLED = "cancelled"


_OF_STATES = {
    PlanState.QUEUED: PlanStatus.QUEUED,
    PlanState.CONSTRAINED: PlanStatus.BLOCKED,
    PlanState.APPLIED: PlanStatus.APPLIED,
    PlanState.UNDONE: PlanStatus.UNDONE,
    PlanState.REJECTED: PlanStatus.DISCARDED,
    PlanState.CANCELLED: PlanStatus.CANCELLED,
}
_OF_APPLY = {
    PlanState.QUEUED: PlanStatus.APPLYING,
    PlanState.PROCESSING: PlanStatus.APPLYING,
    PlanState.WAITING: PlanStatus.APPLYING,
    PlanState.ERRORED: PlanStatus.BLOCKED,
}
_FLAGS = ("stopped", "sub_plans_run", "in_conflict", "merged", "changed", "rolled_back")


def status_of(
    phase: Phase,
    state: PlanState,
    *,
    stopped: bool = False,
    sub_plans_run: bool = False,
    in_conflict: bool = False,
    merged: bool = False,
    changed: bool = True,
    rolled_back: bool = False,
) -> PlanStatus:
    """Return the status of a plan in this phase and state.

    The flags add facts that the state does not contain. `stopped`: a failed plan was only stopped.
    `sub_plans_run`: a waiting plan waits for running sub-plans. `rolled_back`: the result that could not be
    applied was rolled back since, so the plan counts as complete. For a complete plan, `in_conflict`: its
    result has open conflicts; `merged`: it is merged into the parent; `changed`: it changes a file.
    """
    if rolled_back and state is PlanState.CONSTRAINED:
        phase, state = Phase.EXECUTE, PlanState.COMPLETE
    if phase is Phase.APPLY and state in _OF_APPLY:
        return _OF_APPLY[state]
    if state in _OF_STATES:
        return _OF_STATES[state]
    if state is PlanState.ERRORED:
        return PlanStatus.PAUSED if stopped else PlanStatus.FAILED
    if state is PlanState.WAITING:
        return PlanStatus.RUNNING if sub_plans_run else PlanStatus.WAITING
    if phase is not Phase.EXECUTE:
        return PlanStatus.PLANNING
    if state is PlanState.PROCESSING:
        return PlanStatus.RUNNING
    if in_conflict:
        return PlanStatus.WAITING
    if merged:
        return PlanStatus.MERGED
    return PlanStatus.READY if changed else PlanStatus.UNCHANGED


@cache
def possible_states(status: PlanStatus) -> frozenset[PlanState]:
    """Return the states of plans that may have this status."""
    return frozenset(
        state
        for phase, state in product(Phase, PlanState)
        for flags in product((False, True), repeat=len(_FLAGS))
        if status is status_of(phase, state, **dict(zip(_FLAGS, flags, strict=True)))
    )


def status_word(plan: Plan) -> str:
    """Return the status for a message, from the phase and state alone."""
    return status_of(plan.phase, plan.state).value
