"""Whether what a plan works on is there, and what is said when it is not.

A repository may be on a disk that is not plugged in, or moved. git then fails in words that name neither; a
plan whose apply was cut short by that waits for the repository to come back.
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
    """Whether its repository or directory is not where it was."""
    from cleveragents.sandboxes.private_clone import PrivateClone
    from cleveragents.sandboxes.resources import is_repository

    if remote_of(plan.resource) is not None:  # it has a mirror here, or gets one
        return False
    resource = Path(plan.resource)
    if not resource.is_dir():
        return True
    row = parts.sandboxes.row(plan.id)
    # What stays of a disk is an empty directory, and that is no repository.
    return row is not None and row.strategy == PrivateClone.name and not is_repository(resource)


def ensure_reachable(parts: PlanParts, plan: Plan) -> None:
    """`NeedsHuman` unless what the plan works on is there."""
    from cleveragents.core.errors import NeedsHuman

    if is_unreachable(parts, plan):
        doctor = Remedy("doctor", text="Bring it back, or see what else can be done")
        raise NeedsHuman(plan.id, f"{plan.resource} is out of reach", (doctor,))
