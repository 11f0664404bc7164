"""What a person decides about a plan: whether it can be decided now, and the answer to what it asks.

The end of plans that nobody watches at a terminal: told to stop, or deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleveragents.api.format import on_one_line
from cleveragents.api.plans.available_actions import is_resumable
from cleveragents.api.plans.budget import allow, ensure_model_fits, raise_limits
from cleveragents.api.plans.details import find_plan, resource_label
from cleveragents.api.plans.status_text import DONE, pending_request_of, waited
from cleveragents.api.reachability import ensure_reachable, is_unreachable
from cleveragents.core.errors import NeedsHuman, PlanError, Remedy, RequestRefused, remedies_from_json
from cleveragents.core.json_value import thaw
from cleveragents.models.model.budget import BudgetLimits
from cleveragents.plans.apply_policy import is_unknown
from cleveragents.plans.background_logs import remove_log
from cleveragents.plans.family import below
from cleveragents.plans.jobs.names import queue_of
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.tool import ToolCall
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "allow_more",
    "answer_call",
    "cancel",
    "delete",
    "ensure_decidable",
    "ensure_shared",
    "rejected",
    "remove_sandboxes",
    "replied",
    "resumed",
]


_KEPT = (DONE, (Phase.APPLY, PlanState.CONSTRAINED), (Phase.APPLY, PlanState.ERRORED))
"""Where a plan stands that has a result which is not applied."""


def answer_call(
    parts: PlanParts,
    plan_id: str,
    number: int | None,
    *,
    granted: bool,
    shared: bool = False,
    by: str | None = None,
) -> tuple[Plan, ToolCall]:
    """The plan, queued with the answer to the call that asks and to no other; and that call. With `number`,
    only if that is the call; if `shared`, only if workers go on with it, and without a number only if it is
    the first that asks. `PlanError`, `NeedsHuman`, `StalePlan`."""
    plan = find_plan(parts, plan_id)
    if shared:
        ensure_shared(parts, plan)
    if plan.state is PlanState.WAITING:
        ensure_reachable(parts, plan)
    call = parts.lifecycle.asking(plan)
    if call is None:  # guard: what asks only now was seen by nobody
        raise PlanError(plan.id, "no approval is pending")
    if number is None and shared:
        _ensure_first(parts, plan, call)
    number = call.number if number is None else number
    return parts.lifecycle.answer(plan, granted, number, by=by), call


def _ensure_first(parts: PlanParts, plan: Plan, call: ToolCall) -> None:
    """`PlanError` where an answer that names no call may be to one that was answered before: of two people
    who say yes to what they see, the second would say it to what comes next, which nobody has seen."""
    before = [one.number for one in parts.history.calls(plan.id) if one.approval is not None]
    if before:  # guard: an answer is to what was seen
        asks = f"call {before[-1]} was answered before, and call {call.number} asks now"
        raise PlanError(plan.id, f"{asks}: look at it, and answer it by its number (`call`)")


def replied(
    parts: PlanParts,
    plan_id: str,
    text: str,
    question: str | None = None,
    *,
    first: bool = False,
    shared: bool = True,
) -> Plan:
    """The plan, queued with the answer to what an actor asks; with the name of a question, to no other. If
    `first`, an answer without a name is taken only if the plan never waited for anything else. If
    `shared`, only if workers go on with it. `PlanError`, `NeedsHuman`, `StalePlan`."""
    plan = find_plan(parts, plan_id)
    if shared:
        ensure_shared(parts, plan)
    if first and question is None:
        question = _first_question(parts, plan)
    return parts.lifecycle.reply(plan, text, question)


def _first_question(parts: PlanParts, plan: Plan) -> str:
    """The name of the question that is pending, if the plan never waited before. The answer is to that one:
    the plan may ask another while this one is looked at."""
    pending = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    if plan.state is not PlanState.WAITING or waited(plan) != "question":  # guard: not to what comes next
        raise PlanError(plan.id, "no question is pending")
    if parts.plans.has_waited(plan.id):  # guard: an answer is to the question that its author read
        raise PlanError(plan.id, "it has waited before; name the question that you answer (`question`)")
    return str(pending.get("question"))


def resumed(
    parts: PlanParts, plan_id: str, *, model: str | None, limits: BudgetLimits, shared: bool = True
) -> Plan:
    """The plan, queued to go on where it stands, with that model and those limits, if any are named. What is
    wrong with them is found before anything is moved: `RequestRefused`, `PriceUnknown`. If `shared`, only if
    workers go on with it. `PlanError`, `NeedsHuman`, `StalePlan`."""
    parts.apply.settle()
    plan = find_plan(parts, plan_id)
    if shared:
        ensure_shared(parts, plan)
    if not plan.state.ended:
        ensure_reachable(parts, plan)
    if model is not None:
        ensure_model_fits(parts, plan, model, limits)
    if limits != BudgetLimits():
        raise_limits(parts, plan, limits, model)
    return parts.lifecycle.resume(plan, model=model)


def allow_more(parts: PlanParts, plan_id: str, limits: BudgetLimits, *, shared: bool = True) -> Plan:
    """The plan, which may spend so much in all from now on. One that had stopped goes on; one that runs, or
    that waits for something else, finds it with its next call of a model. `RequestRefused`, `PriceUnknown`,
    `PlanError`, `StalePlan`."""
    if limits == BudgetLimits():
        raise RequestRefused("say how much it may spend in all: usd, tokens, steps or seconds")
    parts.apply.settle()
    plan = parts.lifecycle.reconciled(find_plan(parts, plan_id))
    if plan.state.ended:
        raise PlanError(plan.id, f"it is {plan.state.value}, and spends nothing more")
    if is_resumable(parts, plan):
        return resumed(parts, plan.id, model=None, limits=limits, shared=shared)
    allow(parts, plan, limits)
    plan = parts.plans.get(plan.id)
    # It may have come to its old limits while the new ones were looked at.
    stopped = plan.state is PlanState.WAITING and waited(plan) == "budget"
    return parts.lifecycle.resume(plan) if stopped else plan


def rejected(parts: PlanParts, plan_id: str) -> Plan:
    """The plan, whose result is not wanted. `PlanError`, `StalePlan`."""
    plan = find_plan(parts, plan_id)
    ensure_decidable(plan, failed_too=True)
    return parts.lifecycle.reject(plan)


def ensure_shared(parts: PlanParts, plan: Plan) -> None:
    """`PlanError` for a plan that no worker takes from a queue: whoever asked for it runs it."""
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    if not queue_of(root.request):  # guard: what nobody runs is not promised to go on
        show = Remedy("plan.show", plan.id, text="Show where it stands")
        raise PlanError(plan.id, "the command line made it and runs it", (show,))


def ensure_decidable(plan: Plan, *, failed_too: bool = False) -> None:
    """`PlanError`, with what can be done instead, unless there is a result to take or leave."""
    if plan.parent_id is not None and not failed_too:
        whole = Remedy("plan.apply", plan.root, text="Apply the whole plan")
        raise PlanError(plan.id, f"it is a part of plan {plan.root}", (whole,))
    if plan.state is PlanState.APPLIED:
        undo = Remedy("plan.undo", plan.id, text="Undo it")
        raise PlanError(plan.id, "it is applied already", (undo,))
    if plan.state.ended:
        raise PlanError(plan.id, f"it is {plan.state.value}, which is final; run it anew if you want it")
    if plan.state is PlanState.WAITING:
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        remedies = remedies_from_json(thaw(waiting.get("remedies", ())))
        # What version 0.1.0 stored says it in words.
        more = "" if remedies or not waiting.get("remedy") else f"; {waiting['remedy']}"
        what = on_one_line(pending_request_of(plan))
        raise PlanError(plan.id, f"it waits: {what}{more}", remedies)
    if is_unknown(plan):
        raise PlanError(plan.id, str(plan.error))
    if plan.state.running:
        cancel = Remedy("plan.cancel", plan.id, text="Wait for it, or stop it")
        show = Remedy("plan.show", plan.id, text="Show where it stands")
        stands = f"{plan.phase.value}/{plan.state.value}"
        raise PlanError(plan.id, f"it is not done yet ({stands})", (cancel, show))
    if plan.state is PlanState.ERRORED and plan.phase is not Phase.APPLY and not failed_too:
        resume = Remedy("plan.resume", plan.id, text="Try again")
        raise PlanError(plan.id, "it failed and has no result", (resume,))


def cancel(container: Container, plan_id: str, reason: str, *, discard: bool = False) -> Plan:
    """The plan, cancelled or told to stop: then whoever runs it ends its processes and moves it.
    `PlanError` when it was cancelled before, has ended otherwise, or is done and its result is not to be
    dropped with it (`discard`)."""
    parts = container.plan_parts
    parts.apply.settle()  # one whose applier died is not being applied any more
    plan = find_plan(parts, plan_id)
    if plan.state is PlanState.CANCELLED:
        why = (plan.error or "").removeprefix("cancelled: ")
        raise PlanError(plan.id, f"it was cancelled already ({why}); nothing was changed")
    if (
        plan.phase_state in _KEPT and not discard
    ):  # guard: no result is thrown away by a cancel that came late
        reject = Remedy("plan.reject", plan.id, text="Drop its result")
        raise PlanError(plan.id, "it is done, and nothing is left to cancel", (reject,))
    if plan.state.running and plan.phase is Phase.APPLY:
        ensure_reachable(parts, plan)
    job = parts.lifecycle.queueing.job_of(plan)
    told = job is not None and not job.state.ended and job.cancel_reason is not None
    if told and parts.lifecycle.has_worker(plan):
        raise PlanError(plan.id, "it is being stopped already; nothing was changed")
    return parts.lifecycle.cancel(plan, reason)


def remove_sandboxes(container: Container, plan_id: str) -> None:
    """None is left of the plan, or of those below it. `PlanError` unless it is cancelled and all of them are
    here."""
    parts = container.plan_parts
    plan = find_plan(parts, plan_id)
    if plan.state is not PlanState.CANCELLED:  # guard: nobody works there, and no result is lost
        raise PlanError(plan.id, f"it is {plan.state.value}; only a cancelled plan needs no sandbox")
    family = [plan, *below(parts, plan)]
    for one in family:
        row = parts.sandboxes.row(one.id)
        if row is not None and row.home not in (None, container.home):  # guard: not told of what stays
            problem = "its sandbox is on the machine of another worker, which removes it in time"
            raise PlanError(one.id, problem)
    for one in family:
        parts.sandboxes.remove(one.id)


def delete(container: Container, plan_id: str, *, force: bool) -> None:
    """Nothing is left of the plan but what the audit log says. `NeedsHuman`, unless forced, when something is
    lost with it; `PlanError` while it runs, or is a part of another."""
    parts = container.plan_parts
    parts.apply.settle()  # what is half applied is ended while its journal is there
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
    """`NeedsHuman` if something is lost with the plan."""
    force = Remedy("plan.delete", plan.id, {"force": True}, "Delete it all the same")
    if parts.apply.is_left_half_done(plan):  # guard: an apply is given up by who knows of it
        away = "is out of reach" if is_unreachable(parts, plan) else "cannot be ended now"
        what = f"an interrupted apply to {resource_label(plan)}, which {away}, is given up with it"
        doctor = Remedy("doctor", text="See what else can be done")
        raise NeedsHuman(plan.id, f"{what}; the files stay as they are", (doctor, force))
    loss = parts.cleanup.loss_of(plan)
    if loss is not None:  # guard: nobody loses work by one word
        raise NeedsHuman(plan.id, f"{loss}; deleting it loses that", (force,))
