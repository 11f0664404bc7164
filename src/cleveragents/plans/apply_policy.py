"""Whether a finished result may be applied by itself, and that without anybody to ask.

Whoever runs plans without a terminal calls `apply_if_allowed`. What speaks against a result is found before
anything of it is applied, and said in the same words wherever plans run.

Why a result was not applied: as its plan says it, and whether it may have passed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from cleveragents.core.actions.model import CheckVerdict
from cleveragents.core.errors import (
    ApplyConflict,
    ApplyRefused,
    Cancelled,
    CheckFailed,
    CleverAgentsError,
    Conflict,
    PlanError,
    Remedy,
    RemoteUnreachable,
    SandboxMissing,
    StaleFence,
    StalePlan,
    Unavailable,
    remedies_to_json,
)
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.policy import Capability, Verdict
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.family import FamilyParts, left_out_text
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import PlanFacts

if TYPE_CHECKING:
    from cleveragents.apply.ports import FileConflict
    from cleveragents.core.identifiers import Fence
    from cleveragents.plans.apply import PlanApply
    from cleveragents.plans.history import PlanResult
    from cleveragents.plans.store.sql_plan_records import SqlCheckStore
    from cleveragents.processes.ports import StopSignal
    from cleveragents.sandboxes.ports import Sandboxes

__all__ = [
    "INTERRUPTED",
    "IN_THE_WAY",
    "MERGED_TREE",
    "ApplyPolicyParts",
    "apply_if_allowed",
    "can_retry_apply",
    "ensure_checked",
    "ensure_no_conflict",
    "ensure_root_plan",
    "held_back",
    "is_apply_allowed",
    "is_unknown",
    "may_apply_unattended",
    "merged_tree_of",
    "obstacle_of",
    "reviewer_objection",
    "should_apply",
    "unknown",
]


_DONE = (Phase.EXECUTE, PlanState.COMPLETE)
Told = Callable[[str], None]

IN_THE_WAY = "in_the_way"
"""Under which a plan that was not applied keeps which files conflict, and how."""

INTERRUPTED = "applying it was interrupted"
"""How it begins, of one that was."""

MERGED_TREE = "merged_tree"
"""Under which a plan that is being applied keeps the result, merged with what is there by now."""
_AWAY = "away"
_MOST_NAMED = 100
_MOST_DETAILS = 8_000


class ApplyPolicyParts(FamilyParts, Protocol):
    """What of the plan engine is asked about results."""

    @property
    def sandboxes(self) -> Sandboxes: ...

    @property
    def result(self) -> PlanResult: ...

    @property
    def check_runs(self) -> SqlCheckStore: ...

    @property
    def apply(self) -> PlanApply: ...


def ensure_checked(parts: ApplyPolicyParts, plan: Plan) -> None:
    """`CheckFailed` if a required check did not pass on what would be applied now."""
    required = [check for check in Strategy.from_json(plan.strategy).checks if check.required]
    if not required:
        return
    tree = parts.result.tree(plan, parts.sandboxes.open(plan.id))
    runs = {run.command: run for run in parts.check_runs.of_plan(plan.id) if run.is_check_of(tree)}
    for check in required:
        verdict = runs[check.command].verdict if check.command in runs else CheckVerdict.NOT_RUN
        if verdict is not CheckVerdict.PASSED:  # guard: only a pass is a pass
            raise CheckFailed(plan.id, check.name, f"did not pass ({verdict.value.replace('_', ' ')})")


def reviewer_objection(parts: ApplyPolicyParts, plan: Plan) -> str | None:
    """What the reviewer has against the result, if it was not accepted in the end."""
    read = [run for run in parts.check_runs.of_plan(plan.id) if run.is_review]
    if not read or read[-1].verdict is CheckVerdict.PASSED:
        return None
    return " ".join(read[-1].details.split())


def may_apply_unattended(parts: ApplyPolicyParts, plan: Plan, *, yes: bool, tell: Told) -> bool:
    """Whether a result that passed its checks can go into the user's files without a question; what speaks
    against it is told. `yes` is what the user said, instead of the policy."""
    wanted = yes or is_apply_allowed(plan)
    objections = held_back(parts, plan)
    for objection in objections:
        tell(objection)
    return wanted and not objections  # guard: what is less than was asked for is taken by a person


def is_apply_allowed(plan: Plan) -> bool:
    """Whether its profile lets a result be applied without a question."""
    return Strategy.from_json(plan.strategy).policy.verdict(Capability.APPLY) is Verdict.ALLOW


def held_back(parts: ApplyPolicyParts, plan: Plan) -> list[str]:
    """What speaks against applying a result that nobody looked at: the reviewer, and parts that it lacks."""
    objection, without = reviewer_objection(parts, plan), left_out_text(parts, plan)
    said = [] if objection is None else [f"the reviewer does not accept it: {objection}"]
    rest = f"{without}; so it is not applied by itself; applying it applies the rest"
    return [*said, rest] if without else said


def should_apply(parts: ApplyPolicyParts, plan: Plan) -> bool:
    """Whether it is done, changed something, and goes into the user's files without a look at it, unless its
    checks or its reviewer object."""
    asked = plan.request.get("apply")
    if plan.phase_state != _DONE or plan.parent_id is not None or asked == "review":
        return False
    if asked != "auto" and not is_apply_allowed(plan):
        return False
    try:
        return bool(parts.result.states(plan, parts.sandboxes.open(plan.id)))
    except SandboxMissing:
        return False


def apply_if_allowed(
    parts: ApplyPolicyParts,
    plan: Plan,
    told: Told | None = None,
    *,
    stop: StopSignal | None = None,
    fence: Fence | None = None,
) -> Plan:
    """The plan, applied if it is done, its policy or its user allows that, and nothing speaks against it;
    else as it is. `apply` in its request is what the user said: `auto` applies it, `review` never does.

    Never raises because it was not applied: where it was tried, the plan carries what stood in the way.
    `Cancelled` when `stop` says so. `fence` is the job's that it is done for, if it is; that is to be tried
    again where the plan carries nothing: `StalePlan` and `StaleFence` when somebody else moved it, and what
    is `Unavailable`.
    """
    tell = told or (lambda message: None)
    if plan.phase_state != _DONE or plan.parent_id is not None:
        return plan
    asked = plan.request.get("apply")
    if asked == "review":  # guard: who wants to look at it first does so
        return plan
    with suppress(SandboxMissing):
        if not parts.result.states(plan, parts.sandboxes.open(plan.id)):
            return plan
    try:
        ensure_checked(parts, plan)
        if may_apply_unattended(parts, plan, yes=asked == "auto", tell=tell):
            from cleveragents.jobs.worker.async_worker import CancellationToken

            parts.apply.apply(plan, stop or CancellationToken(), told=told, fence=fence)
    except Cancelled:
        raise
    except CleverAgentsError as error:
        tell(str(error))
        if not isinstance(error, (Conflict, PlanError)):
            # The result is there, and anybody can apply it; but somebody should know that it was tried.
            import structlog

            structlog.get_logger().warning("plan.not_applied", plan_id=plan.id, error=str(error))
        if fence is not None and _is_passing(parts, plan, error):
            raise
    return parts.plans.get(plan.id)


def _is_passing(parts: ApplyPolicyParts, plan: Plan, error: CleverAgentsError) -> bool:
    """Whether another try may end otherwise, and is needed: the plan does not say what stood in the way, or
    says that it may pass by itself."""
    if isinstance(error, (StalePlan, StaleFence)):
        return True  # guard: who moved it may have taken us for dead, and there may be nobody else
    now = parts.plans.get(plan.id)
    told = now.phase is Phase.APPLY and not now.state.running and not can_retry_apply(now)
    return isinstance(error, Unavailable) and not told


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
    return plan.phase_state == (Phase.APPLY, PlanState.PROCESSING) and plan.error is not None


def merged_tree_of(plan: Plan) -> str | None:
    """What is checked and applied at present, if it is being applied."""
    kept = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return str(kept[MERGED_TREE]) if MERGED_TREE in kept else None


def can_retry_apply(plan: Plan) -> bool:
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


def ensure_root_plan(plan: Plan, done: str) -> None:
    """`PlanError` for a part of another plan: its result is that one's."""
    if plan.parent_id is not None:
        verb = "apply" if done == "applied" else "undo"
        whole = f"it is a part of plan {plan.parent_id}, and {done} with it"
        remedy = Remedy(f"plan.{verb}", plan.root, text=f"{verb.capitalize()} the whole plan")
        raise PlanError(plan.id, whole, (remedy,))
