"""`agents plan apply|undo|reject|approve|deny|resume`: what becomes of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import found_plan, place_of, spelt_arguments
from cleveragents.api.plans.deciding import answered_call, ensure_decidable
from cleveragents.api.plans.meanings import meaning_of
from cleveragents.api.plans.remains import applied_commit, ensure_undoable
from cleveragents.api.plans.requests import ensure_can_be_asked
from cleveragents.api.plans.spending import raise_limits
from cleveragents.api.reach import ensure_reachable
from cleveragents.cli.budget_options import budget_options
from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.cli.plan.account import tell_left_out, tell_unapplied, told_plan
from cleveragents.cli.plan.view import plan_argument, to_branch_option, told_next
from cleveragents.cli.session import Session, pass_session
from cleveragents.cli.usage import as_usage
from cleveragents.core.text.redaction import redact_known_text
from cleveragents.models.model.budget import Limits
from cleveragents.plans.model.plan import Phase, PlanState, spelt

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "apply_plan",
    "approve_plan",
    "deny_plan",
    "reject_plan",
    "resume_plan",
    "told_whole",
    "undo_plan",
    "worked_on",
]


@click.command("apply")
@plan_argument
@click.option("--commit", "message", metavar="MESSAGE", help="Commit what was applied, with this message.")
@to_branch_option
@format_option
@pass_session
def apply_plan(
    session: Session, plan_id: str, message: str | None, to_branch: str | None, output: Output
) -> None:
    """Bring a plan's result into your files: merged with what they are now, all of it or nothing.

    Required checks run first, on the merged result. Where your own edits or another plan's overlap with it,
    nothing is changed, the places are shown and the exit code is 3. Without --commit git's index, branches
    and stash stay as they are. What was made on a git remote is pushed there, as one commit: to the branch
    that the plan began with, unless --to-branch names another.

    \b
    Example:
      agents plan apply 7QX2
      agents plan apply 7QX2 --commit "Format the code"
    """
    from cleveragents.apply.ports import CommitRequest
    from cleveragents.cli.plan.work import apply_now

    parts = session.container().plan_parts
    parts.apply.settle()
    plan = found_plan(parts, plan_id)
    if not plan.state.ended:
        ensure_reachable(parts, plan)
    ensure_decidable(plan)
    ensure_can_be_asked(plan, message, to_branch)
    tell_left_out(parts, plan)
    tell_unapplied(parts, plan)
    try:
        asked = message is not None or to_branch is not None
        apply_now(parts, plan, CommitRequest(message or "", to_branch) if asked else None)
    finally:
        told_plan(output, parts, parts.plans.get(plan.id))


@click.command("undo")
@plan_argument
@click.option("--commit", "message", metavar="MESSAGE", help="Commit the undoing, with this message.")
@format_option
@pass_session
def undo_plan(session: Session, plan_id: str, message: str | None, output: Output) -> None:
    """Take an applied plan out of your files again; what you changed since stays.

    A commit that was made when it was applied stays in the history: an undo adds, it never rewrites.

    \b
    Example:
      agents plan undo 7QX2
    """
    from cleveragents.apply.ports import CommitRequest
    from cleveragents.core.errors import ApplyConflict

    container = session.container()
    parts = container.plan_parts
    parts.apply.settle()
    plan = found_plan(parts, plan_id)
    ensure_undoable(container, plan)
    if not plan.state.ended or plan.state is PlanState.APPLIED:
        ensure_reachable(parts, plan)
    ensure_can_be_asked(plan, message, None)
    commit = None if message is None else CommitRequest(message)
    stays = applied_commit(container, plan)
    try:
        plan, undone = parts.apply.undo(plan, commit=commit, told=progress)
    except ApplyConflict as conflict:
        for line in conflict.details.splitlines():
            progress(line)
        by_hand = f"agents plan diff {plan.id} | git apply --reverse --reject"
        progress("take your edits of those places out for a moment, and undo it again; or by hand:")
        progress(f"  {by_hand}  undoes what fits; the rest is left in *.rej files")
        raise
    if undone.changes:
        progress(f"taken back from {counted(len(undone.changes), 'file')} of {place_of(parts, plan)}")
    else:
        progress("your files do not have it any more; nothing was changed")
    if undone.commit is not None:
        progress(f"committed as {undone.commit}")
    if stays is not None:
        also = "" if undone.commit else "; only your files were changed, and committing them is for you to do"
        progress(f"its commit {stays} stays in the history{also}")
    told_plan(output, parts, plan)


@click.command("reject")
@plan_argument
@format_option
@pass_session
def reject_plan(session: Session, plan_id: str, output: Output) -> None:
    """Say that a plan's result is not wanted. Your files were not touched, and will not be.

    \b
    Example:
      agents plan reject 7QX2
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    ensure_decidable(plan, failed_too=True)
    plan = parts.lifecycle.reject(plan)
    told_plan(output, parts, plan)


@click.command("approve")
@plan_argument
@click.argument("number", type=int, required=False)
@format_option
@pass_session
def approve_plan(session: Session, plan_id: str, number: int | None, output: Output) -> None:
    """Give leave to what a plan waits for, and go on with it. With NUMBER, only if that call asks.

    \b
    Example:
      agents plan approve 7QX2
      agents plan approve 7QX2 3
    """
    container = session.container()
    parts = container.plan_parts
    worked_on(container, _answered(parts, plan_id, number, granted=True), output)


@click.command("deny")
@plan_argument
@click.argument("number", type=int, required=False)
@format_option
@pass_session
def deny_plan(session: Session, plan_id: str, number: int | None, output: Output) -> None:
    """Refuse leave to what a plan waits for. A plan of plain steps ends with an error that says so; actors
    are told, and try something else.

    With NUMBER, only if that call asks.

    \b
    Example:
      agents plan deny 7QX2
      agents plan deny 7QX2 3
    """
    from cleveragents.cli.plan.work import work_on
    from cleveragents.core.errors import Cancelled

    container = session.container()
    parts = container.plan_parts
    plan = work_on(container, _answered(parts, plan_id, number, granted=False), output)
    ended = [one for one in (plan, parts.plans.get(plan.root)) if one.state is PlanState.CANCELLED]
    if plan.error is not None and not ended:
        progress(f"denied: {plan.error}")
    told_plan(output, parts, plan)
    if plan.parent_id is not None:
        told_whole(parts, plan)
    if ended:
        raise Cancelled((ended[0].error or "").removeprefix("cancelled: "))


@click.command("resume")
@plan_argument
@click.option("--model", metavar="PROVIDER/NAME", help="Go on with another model, from now on.")
@budget_options
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@format_option
@pass_session
def resume_plan(
    session: Session, plan_id: str, model: str | None, limits: Limits, yes: bool, output: Output
) -> None:
    """Go on with a plan that failed or was interrupted, where it stands: finished calls are not repeated.

    A plan that has spent its budget goes on with a larger one.

    \b
    Example:
      agents plan resume 7QX2
      agents plan resume 7QX2 --max-tokens 500000
      agents plan resume 7QX2 --model openai/gpt-4.1
    """
    from cleveragents.api.plans.spending import ensure_model_fits
    from cleveragents.cli.plan.work import apply_now

    container = session.container()
    parts = container.plan_parts
    parts.apply.settle()
    plan = found_plan(parts, plan_id)
    if not plan.state.ended:
        ensure_reachable(parts, plan)
    if plan.phase is Phase.APPLY and not plan.state.ended:
        ensure_decidable(plan)
        try:
            apply_now(parts, plan, None)
        finally:
            told_plan(output, parts, parts.plans.get(plan.id))
        return
    with as_usage():
        if model is not None:
            ensure_model_fits(parts, plan, model, limits)
        if limits != Limits():
            raise_limits(parts, plan, limits, model)
    deeds = _deeds(parts, plan) if plan.standing == (Phase.EXECUTE, PlanState.COMPLETE) else None
    worked_on(container, parts.lifecycle.resume(plan, model=model), output, yes=yes, deeds=deeds)


def _answered(parts: PlanParts, plan_id: str, number: int | None, *, granted: bool) -> Plan:
    """The plan, with the answer to the call that is shown, and to no other."""
    plan, call = answered_call(parts, plan_id, number, granted=granted)
    if call is not None:
        what = redact_known_text(spelt_arguments(call.arguments))
        progress(f"{'allowed' if granted else 'denied'}: call {call.number}, {call.tool}: {what}")
    return plan


def worked_on(
    container: Container, plan: Plan, output: Output, *, yes: bool = False, deeds: int | None = None
) -> None:
    """Works on the plan here and now, and on the whole that it is a part of, as far as that goes, and tells
    where it stands then. Of one that was done before, and has still no more than those `deeds`, it says that
    there was nothing to do."""
    from cleveragents.cli.plan.work import decide, work_on

    parts = container.plan_parts
    told = plan
    before = parts.plans.get(plan.root).version
    try:
        worked = work_on(container, plan, output)
        if plan.parent_id is not None:
            whole = found_plan(parts, plan.root)
            # One that failed, or is done with it, does not go on because a part of it does.
            told = worked = worked if whole.version == before else whole
        still_done = worked.standing == (Phase.EXECUTE, PlanState.COMPLETE)
        if still_done and deeds is not None and deeds == _deeds(parts, worked):
            progress("it was done already, so there was nothing to do")
        decide(container, worked, yes=yes, commit=None, output=output)
    finally:
        told_plan(output, parts, parts.plans.get(told.id))


def told_whole(parts: PlanParts, plan: Plan) -> None:
    """How the plan stands that this one is a part of, and what can be done with it."""
    whole = found_plan(parts, plan.root)
    how = meaning_of(parts, whole)
    if whole.state is PlanState.QUEUED:  # whoever ran its part may not have come to that yet
        how = f"{spelt(whole.standing)}: whoever runs it goes on with it; if nobody does, a resume does"
    progress(f"it is a part of plan {whole.id}, {how}")
    told_next(parts, whole)


def _deeds(parts: PlanParts, plan: Plan) -> int:
    """How often it used a tool or asked a model. A rollback, after which there is more to do, takes some."""
    return len(parts.history.calls(plan.id)) + len(parts.thinking.budgets.calls_of(plan.id))
