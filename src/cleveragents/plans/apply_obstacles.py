"""Why a result was not applied: as its plan says it, and whether it may have passed by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleveragents.core.errors import (
    ApplyConflict,
    ApplyRefused,
    Cancelled,
    CleverAgentsError,
    Conflict,
    PlanError,
    RemoteUnreachable,
    Unavailable,
)
from cleveragents.core.errors.remedy import Remedy, remedies_to_json
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanFacts

if TYPE_CHECKING:
    from cleveragents.apply.ports import FileConflict

__all__ = [
    "INTERRUPTED",
    "IN_THE_WAY",
    "MERGED_TREE",
    "ensure_no_conflict",
    "ensure_whole",
    "is_for_another_try",
    "is_unknown",
    "merged_tree_of",
    "obstacle_of",
    "unknown",
]

IN_THE_WAY = "in_the_way"
"""Under which a plan that was not applied keeps which files conflict, and how."""

INTERRUPTED = "applying it was interrupted"
"""How it begins, of one that was."""

MERGED_TREE = "merged_tree"
"""Under which a plan that is being applied keeps the result, merged with what is there by now."""

_AWAY = "away"
_MOST_NAMED = 100
_MOST_DETAILS = 8_000


def obstacle_of(error: BaseException) -> tuple[PlanState, PlanFacts]:
    """What the plan is then, and says."""
    state = PlanState.CONSTRAINED
    if isinstance(error, (Cancelled, KeyboardInterrupt)):
        text = INTERRUPTED
    elif isinstance(error, RemoteUnreachable):
        text = f"{error}; nothing was changed, apply it again once it answers"
    elif isinstance(error, CleverAgentsError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    if not isinstance(error, (Cancelled, KeyboardInterrupt, Conflict, Unavailable)):
        state = PlanState.ERRORED
    return state, PlanFacts(error=text, waiting_for=_in_the_way(error))


def unknown(error: BaseException) -> str:
    """What one says whose push nobody can ask about now."""
    return f"it may be applied or not: {error}; apply it again to find out, once it answers"


def is_unknown(plan: Plan) -> bool:
    """Whether it is one of these."""
    return plan.standing == (Phase.APPLY, PlanState.PROCESSING) and plan.error is not None


def merged_tree_of(plan: Plan) -> str | None:
    """What is checked and applied at present, if it is being applied."""
    kept = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return str(kept[MERGED_TREE]) if MERGED_TREE in kept else None


def is_for_another_try(plan: Plan) -> bool:
    """Whether it was not applied for a reason that may have passed by itself."""
    if plan.phase is not Phase.APPLY or plan.state not in (PlanState.ERRORED, PlanState.CONSTRAINED):
        return False
    away = isinstance(plan.waiting_for, Mapping) and _AWAY in plan.waiting_for
    return away or (plan.error or "").startswith(INTERRUPTED)


def ensure_no_conflict(plan_id: str, conflicts: Sequence[FileConflict], wanted: str = "applied") -> None:
    """`ApplyConflict` if there is one."""
    if conflicts:
        details = "\n".join(map(str, conflicts))
        raise ApplyConflict(plan_id, tuple(conflict.path for conflict in conflicts), details, wanted)


def _in_the_way(error: BaseException) -> JsonValue:
    """What somebody needs to know who was not there when it was tried."""
    if isinstance(error, RemoteUnreachable):
        return freeze({_AWAY: error.location})
    if isinstance(error, ApplyRefused) and error.remedies:
        return freeze({"remedies": remedies_to_json(error.remedies)})
    if not isinstance(error, ApplyConflict):
        return None
    # Masked before it is cut: half a secret would not be known for one.
    details = redact_text(error.details)[:_MOST_DETAILS]  # guard: it quotes files
    return freeze({IN_THE_WAY: {"paths": list(error.paths[:_MOST_NAMED]), "details": details}})


def ensure_whole(plan: Plan, done: str) -> None:
    """`PlanError` for a part of another plan: its result is that one's."""
    if plan.parent_id is not None:
        verb = "apply" if done == "applied" else "undo"
        whole = f"it is a part of plan {plan.parent_id}, and {done} with it"
        remedy = Remedy(f"plan.{verb}", plan.root, text=f"{verb.capitalize()} the whole plan")
        raise PlanError(plan.id, whole, (remedy,))
