"""Decide whether a finished result is applied automatically, and record why it was not applied.

Every process that runs plans without a terminal ends them with `apply_if_allowed`. All objections to a result
are found before the apply begins. This module contains their texts.
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
from cleveragents.plans.model.status import status_word
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
    "ensure_rebasable",
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
"""The key under which a plan that was not applied stores its conflicting files and their details."""

INTERRUPTED = "the apply was interrupted"
"""The beginning of the error of a plan whose apply was interrupted."""

MERGED_TREE = "merged_tree"
"""The key under which a plan that is being applied stores its merged result."""
_INTERRUPTED = (INTERRUPTED, "applying it was interrupted")  # the second as version 0.1.0 stored it
_AWAY = "away"
_MOST_NAMED = 100
_MOST_DETAILS = 8_000


class ApplyPolicyParts(FamilyParts, Protocol):
    """The parts of the plan engine that this module uses."""

    @property
    def sandboxes(self) -> Sandboxes: ...

    @property
    def result(self) -> PlanResult: ...

    @property
    def check_runs(self) -> SqlCheckStore: ...

    @property
    def apply(self) -> PlanApply: ...


def ensure_checked(parts: ApplyPolicyParts, plan: Plan, tree: str | None) -> None:
    """Raise `CheckFailed` if a required check did not pass on this tree. On an unknown tree, none passed."""
    required = [check for check in Strategy.from_json(plan.strategy).checks if check.required]
    if not required:
        return
    runs = {run.command: run for run in parts.check_runs.of_plan(plan.id) if run.is_check_of(tree)}
    for check in required:
        verdict = runs[check.command].verdict if check.command in runs else CheckVerdict.NOT_RUN
        if verdict is not CheckVerdict.PASSED:  # guard: only a pass is a pass
            raise CheckFailed(plan.id, check.name, f"did not pass ({verdict.value.replace('_', ' ')})")


def reviewer_objection(parts: ApplyPolicyParts, plan: Plan) -> str | None:
    """Return the findings of the reviewer, unless the last review accepted the result. A review of the tree
    that would be applied now counts before later reviews of other trees.
    """
    read = [run for run in parts.check_runs.of_plan(plan.id) if run.is_review]
    if all(run.verdict is CheckVerdict.PASSED for run in read):
        return None
    with suppress(SandboxMissing, PlanError):  # the accepted changes may not be separable from the others
        tree = parts.result.tree(plan, parts.sandboxes.open(plan.id))
        read = [run for run in read if run.tree == tree] or read
    return None if read[-1].verdict is CheckVerdict.PASSED else " ".join(read[-1].details.split())


def may_apply_unattended(parts: ApplyPolicyParts, plan: Plan, *, yes: bool, tell: Told) -> bool:
    """Return whether a result that passed its checks may be applied without asking. Objections are passed to
    `tell`. With `yes`, the user has allowed the apply, and the policy does not count.
    """
    wanted = yes or is_apply_allowed(plan)
    objections = held_back(parts, plan)
    for objection in objections:
        tell(objection)
    return wanted and not objections  # guard: a person decides about a partial result


def is_apply_allowed(plan: Plan) -> bool:
    """Return whether the profile allows an apply without asking."""
    return Strategy.from_json(plan.strategy).policy.verdict(Capability.APPLY) is Verdict.ALLOW


def held_back(parts: ApplyPolicyParts, plan: Plan) -> list[str]:
    """Return the objections to an automatic apply: findings of the reviewer, a withdrawn revision, and
    sub-plans that were left out.
    """
    objection, without = reviewer_objection(parts, plan), left_out_text(parts, plan)
    said = [] if objection is None else [f"the reviewer rejected the result: {objection}"]
    if Strategy.from_json(plan.strategy).restored is not None:  # guard: a command may still follow it
        said.append("a revision was withdrawn; not applied automatically: apply the plan to take this result")
    rest = f"{without}; not applied automatically: apply the plan to take the remaining changes"
    return [*said, rest] if without else said


def should_apply(parts: ApplyPolicyParts, plan: Plan) -> bool:
    """Return whether the result of the plan should be applied automatically, provided that its checks pass
    and its reviewer accepts it.
    """
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
    again: bool = False,
) -> Plan:
    """Apply the plan if it is done, its policy or its user allows an automatic apply, and there is no
    objection. With `again`, also if its apply was interrupted.

    Return the plan as it is stored afterwards.

    `apply` in the request is the choice of the user: `auto` applies the result, `review` never does. A failed
    apply does not raise: the plan stores the reason. Raises `Cancelled` if `stop` is set.

    With the `fence` of a job, errors that another attempt may avoid are raised: `StalePlan` and `StaleFence`
    if another process moved the plan, and `Unavailable` if the plan stores no reason.
    """
    tell = told or (lambda message: None)
    possible = plan.phase_state == _DONE or (again and can_retry_apply(plan))
    if not possible or plan.parent_id is not None:
        return plan
    asked = plan.request.get("apply")
    if asked == "review":  # guard: the user reviews the result first
        return plan
    tree = None
    with suppress(SandboxMissing):
        sandbox = parts.sandboxes.open(plan.id)
        if not parts.result.states(plan, sandbox):
            return plan
        tree = parts.result.tree(plan, sandbox)
    try:
        ensure_checked(parts, plan, tree)
        if may_apply_unattended(parts, plan, yes=asked == "auto", tell=tell):
            from cleveragents.core.cancellation import CancellationToken

            # Only the tree that passed: edits of a person may have been recorded meanwhile.
            parts.apply.apply(plan, stop or CancellationToken(), told=told, fence=fence, tree=tree)
    except Cancelled:
        raise
    except CleverAgentsError as error:
        tell(str(error))
        if not isinstance(error, (Conflict, PlanError)):
            # The result exists and can be applied later, but the failed attempt is worth a log entry.
            import structlog

            structlog.get_logger().warning("plan.not_applied", plan_id=plan.id, error=str(error))
        if fence is not None and _is_passing(parts, plan, error):
            raise
    return parts.plans.get(plan.id)


def _is_passing(parts: ApplyPolicyParts, plan: Plan, error: CleverAgentsError) -> bool:
    """Return whether the job should try again, because the error may be temporary and the plan stores no
    other reason for the failure.
    """
    if isinstance(error, (StalePlan, StaleFence)):
        return True  # guard: the other process may have taken us for dead, and no third one follows
    now = parts.plans.get(plan.id)
    told = now.phase is Phase.APPLY and not now.state.running and not can_retry_apply(now)
    return isinstance(error, Unavailable) and not told


def obstacle_of(error: BaseException) -> tuple[PlanState, PlanFacts]:
    """Return the state and the facts of a plan whose apply failed with this error."""
    state = PlanState.CONSTRAINED
    if isinstance(error, (Cancelled, KeyboardInterrupt)):
        text = INTERRUPTED
    elif isinstance(error, RemoteUnreachable):
        text = f"{error}; nothing was changed. Apply it again when the remote answers"
    elif isinstance(error, CleverAgentsError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    if not isinstance(error, (Cancelled, KeyboardInterrupt, Conflict, Unavailable)):
        state = PlanState.ERRORED
    return state, PlanFacts(error=text, waiting_for=_in_the_way(error))


def unknown(error: BaseException) -> str:
    """Return the error text for a plan whose push has an unknown outcome."""
    return f"the outcome of the apply is unknown: {error}. Apply it again when the remote answers"


def is_unknown(plan: Plan) -> bool:
    """Return whether the outcome of the push is unknown."""
    return plan.phase_state == (Phase.APPLY, PlanState.PROCESSING) and plan.error is not None


def merged_tree_of(plan: Plan) -> str | None:
    """Return the merged tree of a plan that is being applied; None for other plans."""
    kept = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return str(kept[MERGED_TREE]) if MERGED_TREE in kept else None


def can_retry_apply(plan: Plan) -> bool:
    """Return whether the apply failed for a temporary reason, which may no longer exist."""
    if plan.phase is not Phase.APPLY or plan.state not in (PlanState.ERRORED, PlanState.CONSTRAINED):
        return False
    away = isinstance(plan.waiting_for, Mapping) and _AWAY in plan.waiting_for
    return away or (plan.error or "").startswith(_INTERRUPTED)


def ensure_no_conflict(plan_id: str, conflicts: Sequence[FileConflict], wanted: str = "applied") -> None:
    """Raise `ApplyConflict` if there is a conflict."""
    if conflicts:
        details = "\n".join(map(str, conflicts))
        later = dict.fromkeys(one.author for one in conflicts if wanted == "undone" and one.author)
        first = tuple(Remedy("plan.undo", author, text="Undo the later plan first") for author in later)
        raise ApplyConflict(plan_id, tuple(conflict.path for conflict in conflicts), details, wanted, first)


def _in_the_way(error: BaseException) -> JsonValue:
    """Return the details of a failed apply for a person."""
    if isinstance(error, RemoteUnreachable):
        return freeze({_AWAY: error.location})
    if isinstance(error, ApplyRefused) and error.remedies:
        return freeze({"remedies": remedies_to_json(error.remedies)})
    if not isinstance(error, ApplyConflict):
        return None
    # Mask before the cut: half a secret would not be recognized.
    details = redact_text(error.details)[:_MOST_DETAILS]  # guard: it quotes files
    return freeze({IN_THE_WAY: {"paths": list(error.paths[:_MOST_NAMED]), "details": details}})


def ensure_root_plan(plan: Plan, done: str) -> None:
    """Raise `PlanError` for a sub-plan: its result belongs to its parent."""
    if plan.parent_id is not None:
        verb = "apply" if done == "applied" else "undo"
        whole = f"this is a sub-plan of {plan.parent_id}, which is {done} as a whole"
        remedy = Remedy(f"plan.{verb}", plan.root, text=f"{verb.capitalize()} the whole plan")
        raise PlanError(plan.id, whole, (remedy,))


def ensure_rebasable(plan: Plan) -> None:
    """Raise `PlanError` unless the plan has a result that is not applied."""
    if plan.parent_id is not None:
        whole = Remedy("plan.rebase", plan.root, text="Rebase the whole plan")
        raise PlanError(plan.id, f"this is a sub-plan of {plan.root}", (whole,))
    if plan.phase_state not in (_DONE, (Phase.APPLY, PlanState.CONSTRAINED)):
        problem = f"only a result that is not applied can be rebased; the plan is {status_word(plan)}"
        raise PlanError(plan.id, problem)
