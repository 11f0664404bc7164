"""Whether a finished result may be applied by itself, and that without anybody to ask.

Whoever runs plans without a terminal ends them with `concluded`. What speaks against a result is found before
anything of it is applied, and said in the same words wherever plans run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from cleveragents.core.actions.check import CheckVerdict
from cleveragents.core.errors import (
    Cancelled,
    CheckFailed,
    CleverAgentsError,
    Conflict,
    PlanError,
    SandboxMissing,
    StaleFence,
    StalePlan,
    Unavailable,
)
from cleveragents.core.policy import Capability, Verdict
from cleveragents.plans.apply_obstacles import is_for_another_try
from cleveragents.plans.family import FamilyParts, left_out_in_words
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy

if TYPE_CHECKING:
    from cleveragents.core.fence import Fence
    from cleveragents.plans.apply import PlanApply
    from cleveragents.plans.ports.plans import CheckStore
    from cleveragents.plans.result import PlanResult
    from cleveragents.processes.ports import StopSignal
    from cleveragents.sandboxes.ports import Sandboxes

__all__ = [
    "DecidingParts",
    "concluded",
    "ensure_checked",
    "is_to_be_applied",
    "is_wanted_applied",
    "objection_to",
]

_DONE = (Phase.EXECUTE, PlanState.COMPLETE)

Told = Callable[[str], None]


class DecidingParts(FamilyParts, Protocol):
    """What of the plan engine is asked about results."""

    @property
    def sandboxes(self) -> Sandboxes: ...

    @property
    def result(self) -> PlanResult: ...

    @property
    def check_runs(self) -> CheckStore: ...

    @property
    def apply(self) -> PlanApply: ...


def ensure_checked(parts: DecidingParts, plan: Plan) -> None:
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


def objection_to(parts: DecidingParts, plan: Plan) -> str | None:
    """What the reviewer has against the result, if it was not accepted in the end."""
    read = [run for run in parts.check_runs.of_plan(plan.id) if run.is_review]
    if not read or read[-1].verdict is CheckVerdict.PASSED:
        return None
    return " ".join(read[-1].details.split())


def is_wanted_applied(parts: DecidingParts, plan: Plan, *, yes: bool, tell: Told) -> bool:
    """Whether a result that passed its checks can go into the user's files without a question; what speaks
    against it is told. `yes` is what the user said, instead of the policy."""
    allowed = Strategy.from_json(plan.strategy).policy.verdict(Capability.APPLY) is Verdict.ALLOW
    objection = objection_to(parts, plan)
    if objection is not None:
        tell(f"the reviewer does not accept it: {objection}")
    wanted = (yes or allowed) and objection is None
    without = left_out_in_words(parts, plan)
    if wanted and without:
        tell(f"{without}; so it is not applied by itself; applying it applies the rest")
    return wanted and not without  # guard: what is less than was asked for is taken by a person


def is_to_be_applied(parts: DecidingParts, plan: Plan) -> bool:
    """Whether it is done, changed something, and goes into the user's files without a look at it, unless its
    checks or its reviewer object."""
    asked = plan.request.get("apply")
    if plan.standing != _DONE or plan.parent_id is not None or asked == "review":
        return False
    allowed = Strategy.from_json(plan.strategy).policy.verdict(Capability.APPLY) is Verdict.ALLOW
    if asked != "auto" and not allowed:
        return False
    try:
        return bool(parts.result.states(plan, parts.sandboxes.open(plan.id)))
    except SandboxMissing:
        return False


def concluded(
    parts: DecidingParts,
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
    if plan.standing != _DONE or plan.parent_id is not None:
        return plan
    asked = plan.request.get("apply")
    if asked == "review":  # guard: who wants to look at it first does so
        return plan
    with suppress(SandboxMissing):
        if not parts.result.states(plan, parts.sandboxes.open(plan.id)):
            return plan
    try:
        ensure_checked(parts, plan)
        if is_wanted_applied(parts, plan, yes=asked == "auto", tell=tell):
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


def _is_passing(parts: DecidingParts, plan: Plan, error: CleverAgentsError) -> bool:
    """Whether another try may end otherwise, and is needed: the plan does not say what stood in the way, or
    says that it may pass by itself."""
    if isinstance(error, (StalePlan, StaleFence)):
        return True  # guard: who moved it may have taken us for dead, and there may be nobody else
    now = parts.plans.get(plan.id)
    told = now.phase is Phase.APPLY and not now.state.running and not is_for_another_try(now)
    return isinstance(error, Unavailable) and not told
