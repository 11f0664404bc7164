"""Checks whether the repository of a plan is reachable.

A repository may have moved, or be on a disk that is not mounted. git would then fail with unclear messages. A
plan whose apply was interrupted waits until the repository is back.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.access.model.project import remote_of
from cleveragents.core.errors import Remedy

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["ensure_reachable", "is_unreachable"]


def is_unreachable(parts: PlanParts, plan: Plan) -> bool:
    """Return whether the plan's repository or directory is missing."""
    from cleveragents.sandboxes.private_clone import PrivateClone
    from cleveragents.sandboxes.resources import is_repository

    if remote_of(plan.resource) is not None:  # a remote has a mirror here, or gets one
        return False
    resource = Path(plan.resource)
    if not resource.is_dir():
        return True
    row = parts.sandboxes.shown_row(plan.id)
    # The mount point of a missing disk is an empty directory, not a repository.
    return row is not None and row.strategy == PrivateClone.name and not is_repository(resource)


def ensure_reachable(parts: PlanParts, plan: Plan) -> None:
    """Raise `NeedsHuman` if the plan's repository is missing."""
    from cleveragents.core.errors import NeedsHuman

    if is_unreachable(parts, plan):
        doctor = Remedy("doctor", text="Restore the repository, or see what else can be done")
        raise NeedsHuman(plan.id, f"{plan.resource} is out of reach", (doctor,))
