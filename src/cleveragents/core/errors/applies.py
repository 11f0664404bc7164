"""What keeps a plan from being applied or undone. All of these leave the user's files as they were."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Conflict, Unavailable
from cleveragents.core.errors.remedy import Remedy

__all__ = ["ApplyBusy", "ApplyConflict", "ApplyRefused", "CheckFailed"]


@dataclass(eq=False)
class ApplyConflict(Conflict):
    """The plan's changes and the present files overlap; `details` shows each place with both sides."""

    exit_code = 3

    plan_id: str
    paths: tuple[str, ...]
    details: str = ""
    wanted: str = "applied"

    def __str__(self) -> str:
        named = ", ".join(self.paths)
        return (
            f"plan {self.plan_id} was not {self.wanted}: it conflicts with the present state of {named}; "
            "nothing was changed"
        )


@dataclass(eq=False)
class ApplyRefused(Conflict):
    """The plan cannot be applied as asked, for a reason a person can remove."""

    message = "plan {plan_id} was not {wanted}: {reason}; nothing was changed"
    exit_code = 3

    plan_id: str
    reason: str
    wanted: str = "applied"
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class CheckFailed(Conflict):
    """A required check did not pass on the merged result."""

    message = "plan {plan_id} was not applied: the check {check!r} {problem}; nothing was changed"
    exit_code = 3

    plan_id: str
    check: str
    problem: str


@dataclass(eq=False)
class ApplyBusy(Unavailable):
    """Another apply to the same repository did not end in time."""

    message = "another plan is being applied to {resource}; nothing was changed, try again"
    resource: str
