"""Responses of a person to a plan (approve, answer, resume, budget, resolve, discard, pause, cancel, delete),
and whether each is possible now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.access.model.project import ResourceKind, remote_of
from cleveragents.access.model.user import Role
from cleveragents.api.format import on_one_line
from cleveragents.api.plans.available_actions import is_pausable, is_resumable
from cleveragents.api.plans.budget import allow, ensure_model_fits, raise_limits
from cleveragents.api.plans.details import find_plan, resource_label
from cleveragents.api.plans.status_text import (
    DONE,
    is_stopped,
    pending_request_of,
    plan_status,
    waiting_for,
)
from cleveragents.api.reachability import ensure_reachable, is_unreachable
from cleveragents.api.rules import requested_rule
from cleveragents.api.workers import has_worker_for
from cleveragents.config.loader import load_configuration
from cleveragents.core.cancellation import resumable_stop
from cleveragents.core.errors import (
    NeedsHuman,
    PlanError,
    Remedy,
    RequestRefused,
    StalePlan,
    UnknownPlan,
    remedies_from_json,
)
from cleveragents.core.json_value import thaw
from cleveragents.jobs.model.job import JobState
from cleveragents.models.model.budget import BudgetLimits
from cleveragents.plans.apply_policy import is_unknown
from cleveragents.plans.background_logs import remove_log
from cleveragents.plans.family import below
from cleveragents.plans.jobs.names import home_queue, queue_of, should_run
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.strategy import earlier_result
from cleveragents.plans.model.sub_plan import PAUSED
from cleveragents.plans.model.usage_wait import is_parked

if TYPE_CHECKING:
    from cleveragents.api.access import Access
    from cleveragents.api.rules import CallAnswer
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.changes.model.merge_conflict import Take
    from cleveragents.core.tool import ToolCall
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "adopted",
    "adoption_refusal",
    "allow_more",
    "answer_call",
    "cancel",
    "delete",
    "discard",
    "ensure_decidable",
    "pause",
    "remove_sandboxes",
    "reply_to_question",
    "resolve",
    "resume",
    "taken_back",
]


_KEPT = (DONE, (Phase.APPLY, PlanState.CONSTRAINED), (Phase.APPLY, PlanState.ERRORED))
"""Phase and state of a plan with a result that is not applied."""


def answer_call(
    parts: PlanParts,
    plan_id: str,
    answer: CallAnswer,
    *,
    shared: bool = False,
) -> Plan:
    """Queue the plan with the answer to the pending call, and return it.

    An answer that names a call applies only to that call. If `shared`, an answer without a call applies only
    to the first call that the plan ever asked about. Raises `PlanError`, `NeedsHuman`, `StalePlan`, and
    `RequestRefused` for an impossible scope or pattern.
    """
    reason = answer.kept_reason()
    plan = find_plan(parts, plan_id)
    if plan.state is PlanState.WAITING:
        ensure_reachable(parts, plan)
    call = parts.lifecycle.asking(plan)
    if call is None:  # guard: a call that is pending only now was not seen
        raise PlanError(plan.id, "no approval is pending")
    if answer.number is None and shared:
        _ensure_first(parts, plan, call)
    number = call.number if answer.number is None else answer.number
    rule = None
    if number == call.number:  # otherwise the answer is refused below
        rule = requested_rule(parts, plan, call, answer.scope, answer.pattern)
    return parts.lifecycle.answer(plan, answer.granted, number, by=answer.by, reason=reason, rule=rule)


def _ensure_first(parts: PlanParts, plan: Plan, call: ToolCall) -> None:
    """Raise `PlanError` if an answer without a call number may be meant for an earlier call.

    Without this check, if two people approve the same request, the second approval would apply to the next
    request, which neither of them has seen.
    """
    before = [one.number for one in parts.history.calls(plan.id) if one.approval is not None]
    if before:  # guard: an answer is for the call that was seen
        asks = f"call {before[-1]} was already answered, and call {call.number} is pending now"
        raise PlanError(plan.id, f"{asks}: review it and pass its number as `call`")


def reply_to_question(
    parts: PlanParts,
    plan_id: str,
    text: str,
    question: str | None = None,
    *,
    first: bool = False,
) -> Plan:
    """Queue the plan with the answer to the pending question. An answer that names a question applies only to
    that question.

    If `first`, an answer without a name counts only if the plan never waited before. Raises `PlanError`,
    `NeedsHuman`, `StalePlan`.
    """
    plan = find_plan(parts, plan_id)
    if first and question is None:
        question = _first_question(parts, plan)
    return parts.lifecycle.reply(plan, text, question)


def _first_question(parts: PlanParts, plan: Plan) -> str:
    """Return the name of the pending question if the plan never waited before.

    The answer is bound to this name, because the plan may ask another question meanwhile. Raises `PlanError`.
    """
    pending = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    if (
        plan.state is not PlanState.WAITING or waiting_for(plan) != "question"
    ):  # guard: not to the next request
        raise PlanError(plan.id, "no question is pending")
    if parts.plans.has_waited(plan.id):  # guard: an answer is for the question that its author read
        raise PlanError(
            plan.id, "an earlier question was already answered; name the `question` that you answer"
        )
    return str(pending.get("question"))


def resume(parts: PlanParts, plan_id: str, *, model: str | None, limits: BudgetLimits) -> Plan:
    """Queue the plan to continue, with this model and these limits, if given.

    Model and limits are checked before the plan moves: raises `RequestRefused`, `PriceUnknown`. Raises
    `PlanError`, `NeedsHuman`, `StalePlan`.
    """
    parts.apply.settle()
    plan = find_plan(parts, plan_id)
    if not plan.state.ended:
        ensure_reachable(parts, plan)
    if model is not None:
        ensure_model_fits(parts, plan, model, limits)
    if limits != BudgetLimits():
        raise_limits(parts, plan, limits, model)
    return parts.lifecycle.resume(plan, model=model)


def allow_more(parts: PlanParts, plan_id: str, limits: BudgetLimits) -> Plan:
    """Raise the limits of the plan.

    A plan that waits for budget continues. A running plan, or a plan with another pending request, uses the
    new limits from its next model call on. Raises `RequestRefused`, `PriceUnknown`, `PlanError`, `StalePlan`.
    """
    if limits == BudgetLimits():
        raise RequestRefused("missing limit: pass usd, tokens, steps or seconds")
    parts.apply.settle()
    plan = parts.lifecycle.reconciled(find_plan(parts, plan_id))
    if plan.state.ended:
        raise PlanError(plan.id, f"the plan is already {status_word(plan)} and makes no more calls")
    if is_resumable(parts, plan) and not is_parked(plan):
        return resume(parts, plan.id, model=None, limits=limits)
    allow(parts, plan, limits)
    plan = parts.plans.get(plan.id)
    # The plan may have reached its old limits meanwhile.
    stopped = plan.state is PlanState.WAITING and waiting_for(plan) == "budget"
    return parts.lifecycle.resume(plan) if stopped else plan


def resolve(
    parts: PlanParts, plan: Plan, path: str, take: Take, *, version: int | None, tree: str | None
) -> None:
    """Resolve the conflicts at the path. A result that could not be applied because of a conflict is first
    merged with the current files.

    Raises `StalePlan` unless the plan is at this `version`; `ResultChanged` unless its result is this `tree`;
    `PlanError`, `NeedsHuman`; `ToolRefused` if there is no such conflict or `take` is not possible.
    """
    from cleveragents.api.plans.apply_jobs import ensure_unmoved

    ensure_unmoved(plan, version)
    if plan.state is PlanState.CONSTRAINED and not parts.sub_plan_merge.open_conflicts(plan.id):
        parts.rebase.merge(plan, path=path, of=tree)  # its files have no markers of the conflict yet
        tree = None  # the merge made another one
    parts.manual_resolution.resolve(plan, path, take, tree=tree)


def discard(parts: PlanParts, plan_id: str) -> Plan:
    """Discard the result of the plan. Raises `PlanError`, `StalePlan`."""
    plan = find_plan(parts, plan_id)
    ensure_decidable(plan, failed_too=True)
    return parts.lifecycle.reject(plan)


def adoption_refusal(access: Access, plan: Plan) -> str | None:
    """Return why no worker of this machine can continue the plan for the user; None if one can."""
    parts = access.container.plan_parts
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    if queue_of(root.request):
        return None
    if any(_has_owner(parts, one) for one in (root, *below(parts, root))):
        return "a command in a terminal runs the plan; respond there"
    row = parts.sandboxes.row(root.id)
    if row is not None and row.home not in (None, parts.home):  # guard: a worker needs the sandbox
        return "the plan's sandbox is on another machine; continue the plan there"
    if not _is_registered(access, root):  # guard: users of a server use no other directory of its machine
        return "the plan's directory is not a resource that you may use; continue the plan in a terminal"
    if not has_worker_for(parts, home_queue(parts.home)):
        return "no worker is running on this machine; continue the plan in a terminal"
    return None


def _is_registered(access: Access, root: Plan) -> bool:
    """Return whether the user may use the plan's directory on the server: as a resource, or as an admin."""
    user = access.user
    if user.is_server_admin:
        return True
    # A viewer sees the actions of the operators.
    needed = Role.OPERATOR if user.may(Role.OPERATOR, root.project) else Role.VIEWER
    return any(
        one.kind is ResourceKind.DIRECTORY
        and (one.location, one.home) == (root.resource, access.container.home)
        and user.may(needed, one.project)
        for one in access.resources()
    )


def _has_owner(parts: PlanParts, plan: Plan) -> bool:
    """Return whether a command runs the plan or is about to run it."""
    job = parts.lifecycle.queueing.job_of(plan) if should_run(plan) else None
    return job is not None and (job.state is JobState.QUEUED or parts.lifecycle.has_worker(plan))


@contextmanager
def adopted(access: Access, plan: Plan) -> Iterator[Plan]:
    """Yield the plan for an action, after which the workers of this machine continue the plan. If the action
    is refused, the plan stays with the command that created it. A plan of a queue is yielded unchanged.

    Raises `PlanError` with the reason if no worker can continue it; `StalePlan` if it moved meanwhile.
    """
    container = access.container
    parts = container.plan_parts
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    if queue_of(root.request):
        yield plan
        return
    show = Remedy("plan.show", plan.id, text="Show the plan")
    refusal = adoption_refusal(access, root) or _stricter_file(container, root)
    if refusal is not None:
        raise PlanError(plan.id, refusal, (show,))
    parts.plans.assign_queue(root, home_queue(container.home), now=container.clock.now())
    try:
        yield parts.plans.get(plan.id)
    except BaseException:
        with suppress(StalePlan, UnknownPlan):  # another process continues or deleted it
            _give_back(parts, parts.plans.get(root.id))
        raise


def _give_back(parts: PlanParts, root: Plan) -> None:
    """Take the plan out of its queue, unless the plan or one of its sub-plans was queued in it."""
    jobs = [parts.lifecycle.queueing.job_of(one) for one in (root, *below(parts, root))]
    if not any(job is not None and job.queue and not job.state.ended for job in jobs):
        parts.plans.assign_queue(root, None, now=parts.lifecycle.clock.now())


def taken_back(access: Access, plan: Plan) -> Plan:
    """Take a plan back from the server that adopted it, so that the caller can run it. Only a plan that a
    command created is taken back, and only if no worker of this machine is left. Other plans are returned
    unchanged. Raises `StalePlan`.
    """
    parts = access.container.plan_parts
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    queue = home_queue(parts.home)
    # A server records for whom it creates a plan.
    if queue_of(root.request) != queue or "by" in root.request or has_worker_for(parts, queue):
        return plan
    parts.plans.assign_queue(root, None, now=access.container.clock.now())
    return parts.plans.get(plan.id)


def _stricter_file(container: Container, root: Plan) -> str | None:
    """Return a refusal if the repository's settings file is stricter than the settings of this process."""
    if remote_of(root.resource) is not None:
        return None
    there = load_configuration(os.environ, Path(root.resource))
    keys = there.tightened_beyond(container.settings)
    if not keys:
        return None
    return (
        f"{there.repository_file} sets stricter values for {', '.join(keys)}; continue the plan in a terminal"
    )


def ensure_decidable(plan: Plan, *, failed_too: bool = False) -> None:
    """Raise `PlanError`, with the possible actions, unless the plan has a result to apply or discard."""
    if plan.parent_id is not None and not failed_too:
        whole = Remedy("plan.apply", plan.root, text="Apply the whole plan")
        raise PlanError(plan.id, f"this is a sub-plan of {plan.root}", (whole,))
    if plan.state is PlanState.APPLIED:
        undo = Remedy("plan.undo", plan.id, text="Undo it")
        raise PlanError(plan.id, "already applied", (undo,))
    if plan.state.ended:
        raise PlanError(plan.id, f"already {status_word(plan)}, which is final; start a new plan")
    if plan.state is PlanState.WAITING:
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        remedies = remedies_from_json(thaw(waiting.get("remedies", ())))
        # Version 0.1.0 stored it as text.
        more = "" if remedies or not waiting.get("remedy") else f"; {waiting['remedy']}"
        what = on_one_line(pending_request_of(plan))
        raise PlanError(plan.id, f"waiting: {what}{more}", remedies)
    if is_unknown(plan):
        raise PlanError(plan.id, str(plan.error))
    if plan.state.running:
        cancel = Remedy("plan.cancel", plan.id, text="Wait for the plan, or cancel it")
        show = Remedy("plan.show", plan.id, text="Show the plan")
        raise PlanError(plan.id, f"still {status_word(plan)}", (cancel, show))
    if plan.state is PlanState.ERRORED and plan.phase is not Phase.APPLY and not failed_too:
        resume = Remedy("plan.resume", plan.id, text="Try again")
        back = Remedy("plan.rollback", plan.id, text="Return to the result from before the revision")
        show = Remedy("plan.show", plan.id, text="Show the plan and all next steps")
        remedies = (resume, back, show) if earlier_result(plan) is not None else (resume, show)
        raise PlanError(plan.id, "the plan failed, and only a finished result can be applied", remedies)


def pause(parts: PlanParts, plan_id: str, by: str | None) -> Plan:
    """Stop the plan. If a worker runs it, only request the stop; the worker then ends the processes and
    updates the plan. `by` is the acting user of a server.

    A paused plan is returned unchanged. Raises `PlanError` if the plan does not run or is a sub-plan.
    """
    plan = parts.lifecycle.reconciled(find_plan(parts, plan_id))
    if plan.parent_id is not None:  # guard: its parent would take a paused sub-plan for a failed one
        whole = Remedy("plan.pause", plan.root, text="Pause the whole plan")
        raise PlanError(plan.id, f"this is a sub-plan of {plan.root}", (whole,))
    if is_stopped(plan):
        return plan
    if not is_pausable(parts, plan):
        show = Remedy("plan.show", plan.id, text="Show the plan")
        raise PlanError(plan.id, f"not running ({plan_status(parts, plan).value})", (show,))
    return parts.lifecycle.stop(plan, PAUSED if by is None else resumable_stop(f"{by} paused it"))


def cancel(container: Container, plan_id: str, reason: str, *, discard: bool = False) -> Plan:
    """Cancel the plan. If a worker runs it, only request the cancellation; the worker then ends the processes
    and updates the plan.

    Raises `PlanError` if the plan has ended, or if it is finished and `discard` is not set.
    """
    parts = container.plan_parts
    parts.apply.settle()  # a plan whose applier died is no longer being applied
    plan = find_plan(parts, plan_id)
    if plan.state is PlanState.CANCELLED:
        why = (plan.error or "").removeprefix("cancelled: ")
        raise PlanError(plan.id, f"already cancelled ({why}); nothing was changed")
    if plan.phase_state in _KEPT and not discard:  # guard: a late cancel must not drop a result
        reject = Remedy("plan.reject", plan.id, text="Discard the result")
        raise PlanError(plan.id, "already finished; there is nothing to cancel", (reject,))
    if plan.state.running and plan.phase is Phase.APPLY:
        ensure_reachable(parts, plan)
    job = parts.lifecycle.queueing.job_of(plan)
    told = job is not None and not job.state.ended and job.cancel_reason is not None
    if told and parts.lifecycle.has_worker(plan):
        raise PlanError(plan.id, "already stopping; nothing was changed")
    return parts.lifecycle.cancel(plan, reason)


def remove_sandboxes(container: Container, plan_id: str) -> None:
    """Remove the sandboxes of the plan and of all plans below it.

    Raises `PlanError` unless the plan is cancelled and all sandboxes are on this machine.
    """
    parts = container.plan_parts
    plan = find_plan(parts, plan_id)
    if plan.state is not PlanState.CANCELLED:  # guard: no worker runs it, and no result is lost
        raise PlanError(plan.id, f"{status_word(plan)}; cancel the plan to remove its sandbox")
    family = [plan, *below(parts, plan)]
    for one in family:
        row = parts.sandboxes.row(one.id)
        if row is not None and row.home not in (
            None,
            container.home,
        ):  # guard: it stays there
            problem = "the sandbox is on another machine, whose worker removes it later"
            raise PlanError(one.id, problem)
    for one in family:
        parts.sandboxes.remove(one.id)


def delete(container: Container, plan_id: str, *, force: bool) -> None:
    """Delete the plan; only the audit log stays.

    Raises `NeedsHuman`, unless forced, if changes would be lost; `PlanError` while the plan runs, and for a
    sub-plan.
    """
    parts = container.plan_parts
    parts.apply.settle()  # a half-finished apply is completed while its journal exists
    plan = find_plan(parts, plan_id)
    if not force:
        _ensure_nothing_lost(parts, plan)
    else:
        plan = parts.apply.give_up(plan)
    family = [plan, *below(parts, plan)]
    parts.cleanup.delete(plan)
    for one in family:
        remove_log(container.state_directory, one.id)


def _ensure_nothing_lost(parts: PlanParts, plan: Plan) -> None:
    """Raise `NeedsHuman` if something would be lost with the plan."""
    force = Remedy("plan.delete", plan.id, {"force": True}, "Delete the plan anyway")
    if parts.apply.is_left_half_done(plan):  # guard: only a person gives up an apply
        away = "is out of reach" if is_unreachable(parts, plan) else "cannot be ended now"
        what = f"the interrupted apply to {resource_label(plan)}, which {away}, would be abandoned"
        doctor = Remedy("doctor", text="See what else can be done")
        raise NeedsHuman(plan.id, f"{what}; the files stay unchanged", (doctor, force))
    loss = parts.cleanup.loss_of(plan)
    if loss is not None:  # guard: work is never lost without confirmation
        raise NeedsHuman(plan.id, f"{loss}; a deletion loses them for good", (force,))
