"""The next steps of a plan: operations for a person, each with a description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cleveragents.access.model.project import remote_of
from cleveragents.api.plans.available_actions import is_revisable, is_withdrawable
from cleveragents.api.plans.budget import more_time
from cleveragents.api.plans.details import has_not_run, place_of, unpassed_checks
from cleveragents.api.plans.sandbox_state import is_kept
from cleveragents.api.plans.status_text import (
    DONE,
    has_active_sub_plans,
    has_open_conflicts,
    is_done,
    is_stopped,
    is_unblocked,
    obstacle_of,
    waiting_for,
)
from cleveragents.api.rules import approval_of
from cleveragents.api.workers import missing_worker, waits_for_worker
from cleveragents.core.errors import OptionValue, PlanError, Remedy, remedies_from_json
from cleveragents.core.json_value import thaw
from cleveragents.plans.apply_policy import is_unknown
from cleveragents.plans.family import below, is_merged, plans_needing_action, title_of
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.strategy import earlier_result
from cleveragents.plans.model.sub_plan import CONFLICT, waits_for_sub_plans
from cleveragents.plans.model.usage_wait import USAGE_LIMIT

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["steps_from"]

_FEW = 3

_ASKING = 5


def steps_from(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the next steps of a plan: operations for a person, each with a description."""
    pushed = remote_of(plan.resource) is not None
    brings = f"push the result to {place_of(parts, plan)}" if pushed else "apply the result to your files"
    diff, apply = _step(plan, "diff", "show the changes"), _step(plan, "apply", brings)
    reject = _step(plan, "reject", "discard the result")
    steps: list[Remedy] = []
    if waits_for_sub_plans(plan):
        return [*_steps_below(parts, plan), *_steps_of_tree(parts, plan)]
    if plan.state is PlanState.WAITING or has_open_conflicts(parts, plan):
        steps = [*_steps_of_waiting(parts, plan), *_withdraw(parts, plan)]
    elif plan.phase_state == DONE and plan.parent_id is not None:
        return _steps_of_part(parts, plan)
    elif is_done(parts, plan):
        steps = _steps_of_done(parts, plan, diff, apply, reject)
    elif plan.phase is Phase.APPLY and plan.state in (PlanState.CONSTRAINED, PlanState.ERRORED):
        again = apply if is_unblocked(parts, plan) else replace(apply, text="try again")
        steps = _steps_of_blocked(parts, plan, diff, again, reject)
    elif plan.state is PlanState.ERRORED:
        return _steps_of_failed(parts, plan, reject)
    elif plan.state in (PlanState.APPLIED, PlanState.CANCELLED):
        steps = _steps_of_ended(parts, plan, diff) if is_kept(parts, plan) else []
    elif parts.lifecycle.should_cancel(plan):
        steps = [_step(plan, "cancel", "complete the cancellation")]
    elif plan.state.running:
        finding_out = [diff, replace(apply, text="check the outcome, and apply if needed")]
        steps = finding_out if is_unknown(plan) else _steps_of_running(parts, plan)
    return [*missing_worker(parts, plan), *steps]


def _step(plan: Plan, name: str, text: str, /, **options: OptionValue) -> Remedy:
    return Remedy(f"plan.{name}", plan.id, options, text)


def _resume(plan: Plan) -> Remedy:
    return _step(plan, "resume", "continue the plan")


def _cancel(plan: Plan) -> Remedy:
    return _step(plan, "cancel", "cancel the plan")


def _steps_of_failed(parts: PlanParts, plan: Plan, reject: Remedy) -> list[Remedy]:
    """Return the steps of a plan that failed or was paused."""
    if is_stopped(plan):
        return [_resume(plan), *_correct(parts, plan), *_withdraw(parts, plan), _cancel(plan)]
    more = _log_of_agent(parts, plan) or _step(plan, "log", "list the tool calls")
    more = more if parts.history.calls(plan.id) else _step(plan, "show", "show the plan")
    resume = _step(plan, "resume", "try again from the failed step")
    if not parts.history.has_changes(plan.id):
        reject = replace(reject, text="close the plan")
    return [*_logs_of_failed(parts, plan), more, resume, *_steps_of_failed_revision(parts, plan), reject]


def _steps_of_failed_revision(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the steps of a plan that failed after guidance was added: try another model, or return to the
    result from before. Empty for other plans.
    """
    made = parts.actor_parts.corrections.of_plan(plan.id)
    if plan.phase is not Phase.EXECUTE or not made or made[-1].made.decision is not None:
        return []
    return [_step(plan, "resume", "try again with another model", model=None), *_withdraw(parts, plan)]


def _withdraw(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the step that restores the result from before a revision without a good result, if any."""
    ready = earlier_result(plan)
    if ready is None or not is_withdrawable(parts, plan):
        return []
    then = "ready to apply" if ready.blocked is None else "which could not be applied"
    return [_step(plan, "rollback", f"return to the result from before the revision, {then}")]


def _steps_of_ended(parts: PlanParts, plan: Plan, diff: Remedy) -> list[Remedy]:
    """Return the steps of an applied or cancelled plan whose sandbox still exists."""
    if plan.state is PlanState.APPLIED:
        pushed = remote_of(plan.resource) is not None
        takes = "push a commit that reverts the result" if pushed else "undo the changes in your files"
        return [diff, _step(plan, "undo", takes)]
    recorded = "show the changes it had made; a pipe gets a patch for `git apply`"
    return [replace(diff, text=recorded)] if parts.history.has_changes(plan.id) else []


def _correct(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the step that adds guidance, if an actor can follow it."""
    try:
        parts.correction.ensure_correctable(plan)
    except PlanError:
        return []
    return [_step(plan, "correct", "continue with guidance", guidance=None, append=True)]


def _steps_of_done(parts: PlanParts, plan: Plan, diff: Remedy, apply: Remedy, reject: Remedy) -> list[Remedy]:
    """Return the steps of a finished plan: show the diff, fix a failed check, apply or discard it. Without
    changes: list its calls or delete it.
    """
    repeat = _repeat(parts, plan)
    if not parts.history.changes_files(plan.id):
        log = _step(plan, "log", "list the tool calls")
        return [*repeat, log, _step(plan, "delete", "remove the plan and its sandbox")]
    unpassed = unpassed_checks(parts, plan)
    fixes = _fixes(parts, plan) if unpassed else []
    if unpassed:
        apply = replace(apply, text=f"run the checks again and {apply.text} if they pass")
    if has_not_run(unpassed):  # a plan keeps its own checks
        reject = replace(reject, text=f"{reject.text}; start another plan with other checks")
    return [diff, *repeat, *_revise(parts, plan), *fixes, *_withdraw(parts, plan), apply, reject]


def _repeat(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the step that makes the calls again that were rolled back, if any."""
    if not parts.history.is_rolled_back(plan):
        return []
    return [_step(plan, "resume", "repeat the calls that were rolled back")]


def _fixes(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the steps that fix a result whose required check did not pass: by the agent, or by hand."""
    revise = _step(plan, "revise", "let the agent fix the result", message=None)
    capture = _step(plan, "reread", "record your own edits in the sandbox")
    return [*([revise] if is_revisable(parts, plan) else []), *([capture] if is_kept(parts, plan) else [])]


def _revise(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the step that sends the open comments, if there are any."""
    count = sum(one.is_open for one in parts.comments.store.of_plan(plan.id))
    if not count:
        return []
    what = "1 open comment" if count == 1 else f"{count} open comments"
    shows = _step(plan, "comments", "show the comments")
    return (
        [shows, _step(plan, "revise", f"request changes: {what}")] if is_revisable(parts, plan) else [shows]
    )


def _steps_of_blocked(
    parts: PlanParts, plan: Plan, diff: Remedy, apply: Remedy, reject: Remedy
) -> list[Remedy]:
    """Return the steps of a result that could not be applied, because of a conflict, a failed check or
    another obstacle.
    """
    ways: list[Remedy] = []
    if obstacle_of(parts, plan) is not None:
        ways = _ways_out_of_conflict(parts, plan)
    elif unpassed_checks(parts, plan):
        ways = [*_fixes(parts, plan), *_withdraw(parts, plan)]
    review = _step(plan, "review", "leave files out", reject=None)
    offered = _offered(plan)
    named = {remedy.action for remedy in offered}
    rest = [step for step in (review, apply) if step.action not in named]
    return [diff, *ways, *_repeat(parts, plan), *offered, *rest, reject]


def _ways_out_of_conflict(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the steps that merge the result with the current files."""
    resolver = "the agent resolves conflicts" if is_revisable(parts, plan) else "you resolve the conflicts"
    rebase = _step(plan, "rebase", f"merge with the current files; {resolver}")
    shows = _step(plan, "resolve", "show the conflicts")
    # A file cannot be edited yet: only a rebase writes both sides into the sandbox.
    ours = _step(plan, "resolve", "take the lines of the plan in a file", path=None, take="ours")
    theirs = _step(plan, "resolve", "keep your lines in a file", path=None, take="theirs")
    return [rebase, shows, ours, theirs]


def _steps_of_running(parts: PlanParts, plan: Plan) -> list[Remedy]:
    is_running = parts.lifecycle.has_worker(plan) or waits_for_worker(parts, plan)
    return [_cancel(plan)] if is_running else [_resume(plan), _cancel(plan)]


def _steps_of_tree(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the steps of a plan that waits for its sub-plans. While workers run them, no resume is
    offered."""
    if has_active_sub_plans(parts, plan):
        return [_step(plan, "watch", "follow the plan"), _cancel(plan)]
    left = any(one.state.running for one in below(parts, plan))
    if plans_needing_action(parts, plan) and not left:
        return [_cancel(plan)]
    return [_resume(plan), _cancel(plan)]


def _steps_below(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the responses to the pending requests of the plan's sub-plans."""
    steps: list[Remedy] = []
    for one in plans_needing_action(parts, plan)[:_ASKING]:
        step, *_ = _steps_of_waiting(parts, one)
        steps.append(replace(step, text=f"{step.text} ({title_of(one)})"))
    return steps


def _steps_of_waiting(parts: PlanParts, plan: Plan) -> list[Remedy]:
    resume, cancel = _resume(plan), _cancel(plan)
    waits = waiting_for(plan)
    if has_open_conflicts(parts, plan):
        shows = _step(plan, "resolve", "show the conflicts")
        decides = _step(plan, "resolve", "resolve a file", path=None, take=None)
        if plan.phase is Phase.APPLY:  # the rebase was begun by the resolution of a file
            rebase = _step(plan, "rebase", "let the agent resolve the rest, and run the checks")
            by_agent = [rebase] if is_revisable(parts, plan) else []
            return [shows, decides, *by_agent, _step(plan, "reject", "discard the result")]
        return [shows, decides, replace(resume, text="then continue"), cancel]
    if waits == USAGE_LIMIT:
        return [replace(resume, text="continue now"), cancel]
    if waits in (CONFLICT, "correction"):
        return [resume, cancel]
    if waits == "question":
        return [_step(plan, "answer", "answer and continue", text=None), cancel]
    if waits == "budget":
        allows = "raise the limit and continue"
        return [replace(resume, options=_budget_option(parts, plan), text=allows), cancel]
    call = parts.lifecycle.asking(plan)
    if call is None:  # a person has to act elsewhere first
        return [*_offered(plan), replace(resume, text="then continue"), cancel]
    return [
        _step(plan, "approve", "approve the request", call=call.number),
        *_approval_in_advance(parts, plan),
        _step(plan, "deny", "deny the request", call=call.number),
    ]


def _approval_in_advance(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the steps that also approve later commands, if a rule is suggested."""
    approval = approval_of(parts, plan)
    if approval is None or approval.pattern is None:
        return []
    places = {"plan": approval.plan_scope, "project": approval.project_scope}
    return [
        _step(
            plan,
            "approve",
            f"approve the request, and `{approval.pattern}` in {place} from now on",
            call=approval.call,
            scope=scope,
        )
        for scope, place in places.items()
        if scope in approval.scopes
    ]


def _steps_of_part(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the steps of a finished sub-plan: apply or discard its parent."""
    steps = [_step(plan, "diff", "show the changes")]
    if not is_merged(parts, plan):
        steps.append(Remedy("plan.resume", plan.root, text="continue the parent plan"))
    return [*steps, Remedy("plan.show", plan.root, text="show the whole plan")]


def _budget_option(parts: PlanParts, plan: Plan) -> dict[str, OptionValue]:
    """Return the limit to raise, from the pending request; for time, with a value well above the current
    limit.
    """
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    offered = _offered(plan)
    options = dict(offered[0].options) if offered else _option_in(str(waiting.get("remedy")))
    return {"limits.seconds": more_time(parts, plan)} if "limits.seconds" in options else options


def _offered(plan: Plan) -> tuple[Remedy, ...]:
    """Return the remedies of the error that the plan has stored."""
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return remedies_from_json(thaw(waiting.get("remedies", ())))


def _option_in(remedy: str) -> dict[str, OptionValue]:
    """Return the option in a command line that version 0.1.0 stored as the remedy."""
    found = re.search(r"--(max-usd|max-tokens|max-steps|timeout) ([^`\s]+)", remedy)
    if found is None:
        return {"limits.tokens": None}
    name = "seconds" if found[1] == "timeout" else found[1].removeprefix("max-")
    return {f"limits.{name}": found[2]}


def _log_of_agent(parts: PlanParts, plan: Plan) -> Remedy | None:
    """Return the step that shows the output of a failed external agent."""
    from cleveragents.core.tool import AGENT_TOOL
    from cleveragents.plans.agents.client import ACP

    agents = (AGENT_TOOL, ACP)
    failed = [call for call in parts.history.calls(plan.id) if call.tool in agents and call.error is not None]
    return _step(plan, "log", "show the agent's last output", call=failed[-1].number) if failed else None


def _logs_of_failed(parts: PlanParts, plan: Plan) -> list[Remedy]:
    """Return the steps that show the calls of failed sub-plans."""
    children = parts.plans.children(plan.id)
    failed = [child for child in children if child.state is PlanState.ERRORED and not is_stopped(child)]
    return [_step(one, "log", f"list the tool calls of {title_of(one)!r}") for one in failed[:_FEW]]
