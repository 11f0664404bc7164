"""`agents plan approve|deny|answer|resume`: respond to a plan and continue it."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from cleveragents.cli.budget_options import budget_options
from cleveragents.cli.completion import complete_model, complete_plan
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.plan.choose import chosen_plan, names_a_plan, optional_plan
from cleveragents.cli.prompts import ensure_confirmed
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.models.model.budget import BudgetLimits
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.client import ApprovalScope
    from cleveragents.api.plans.request import Limits
    from cleveragents.api.plans.views import PlanView
    from cleveragents.cli.plan.work import WorkOptions

__all__ = ["answer_plan", "approve_plan", "deny_plan", "resume_plan"]


@click.command("approve")
@optional_plan
@click.argument("number", type=int, required=False)
@click.option(
    "--for",
    "scope",
    type=click.Choice(["once", "plan", "project"]),
    default="once",
    help="Also approve later commands like this one: in this plan, or in its project. Default: once.",
)
@click.option("--pattern", metavar="COMMAND", help="The rule for later commands, with --for: pytest *.")
@format_option
@pass_session
def approve_plan(
    session: Session,
    plan_id: str | None,
    number: int | None,
    scope: ApprovalScope,
    pattern: str | None,
    output: Output,
) -> None:
    """Approve the pending request of a plan, and continue. With NUMBER, only the request of this call.

    Without PLAN, approve the only pending request here: the request is printed, and a terminal asks first.

    With `--for plan` or `--for project`, a rule approves later commands like this one, if they are isolated:
    the same program, or sub-command, with any arguments. The rule is printed first; choose another one with
    --pattern. List and revoke the rules with `agents policy`.

    \b
    Example:
      agents plan approve
      agents plan approve 7QX2
      agents plan approve 7QX2 3
      agents plan approve 7QX2 --for project
      agents plan approve 7QX2 --for plan --pattern "pytest tests/unit *"
    """
    from cleveragents.cli.plan.work import continue_plan, interactive

    deciding = _deciding(session, output)
    plans = deciding.client.plans
    plan = plans.get(chosen_plan(deciding.client, plan_id, "approve"))
    if plan_id is None:
        number = _shown_request(plan, number)
    if scope != "once" and plan.approval is not None:
        number = plan.approval.call if number is None else number
        pattern = pattern or plan.approval.pattern
        if pattern is not None:  # what is saved is what was shown
            where = plan.approval.plan_scope if scope == "plan" else plan.approval.project_scope
            progress(f"rule for {where}: `{pattern}`")
    if plan_id is None and interactive():
        ensure_confirmed("Approve?")
    approve = partial(plans.approve, plan.id, call=number, scope=scope, pattern=pattern)
    continue_plan(deciding, plan, approve, tell=_tell_answered)


@click.command("deny")
@optional_plan
@click.argument("number", type=int, required=False)
@click.option("--reason", metavar="TEXT", help="Reason, for the agent.")
@format_option
@pass_session
def deny_plan(
    session: Session, plan_id: str | None, number: int | None, reason: str | None, output: Output
) -> None:
    """Deny the pending request of a plan.

    A plan without actors fails; actors read the reason and try something else. With NUMBER, deny only the
    request of this call. Without PLAN, deny the only pending request here.

    \b
    Example:
      agents plan deny 7QX2
      agents plan deny 7QX2 3 --reason "use make test instead"
    """
    from cleveragents.cli.plan.work import position_before, work_on

    deciding = _deciding(session, output)
    plans = deciding.client.plans
    plan = plans.get(chosen_plan(deciding.client, plan_id, "deny"))
    after = position_before(deciding, plan)
    plan = plans.deny(plan.id, call=number, reason=reason)
    _tell_answered(plan)
    print_denied(deciding, work_on(deciding, plan, after=after))


@click.command("answer")
@click.argument("words", metavar="[PLAN] TEXT", nargs=-1, required=True, shell_complete=complete_plan)
@format_option
@pass_session
def answer_plan(session: Session, words: tuple[str, ...], output: Output) -> None:
    """Answer a plan's question, and continue. `-` reads the answer from stdin.

    Without PLAN, answer the only question here.

    \b
    Example:
      agents plan answer "keep the old flag as an alias"
      agents plan answer 7QX2 "keep the old flag as an alias"
    """
    from cleveragents.cli.plan.work import continue_plan

    if len(words) > 2:
        raise click.UsageError("quote the answer: pass PLAN and one TEXT")
    deciding = _deciding(session, output)
    plans = deciding.client.plans
    text = words[-1]
    if len(words) == 1 and names_a_plan(plans, text):  # guard: an id is not sent as an answer
        raise click.UsageError(f"{text!r} names a plan; pass PLAN and TEXT")
    given = sys.stdin.read().strip() if text == "-" else text
    if not given.strip():
        raise click.UsageError("the answer is empty")
    plan = plans.get(chosen_plan(deciding.client, words[0] if len(words) == 2 else None, "answer"))
    continue_plan(deciding, plan, lambda: plans.answer(plan.id, given))


@click.command("resume")
@optional_plan
@click.option(
    "--model", metavar="PROVIDER/NAME", shell_complete=complete_model, help="Continue with another model."
)
@budget_options
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@format_option
@pass_session
def resume_plan(
    session: Session, plan_id: str | None, model: str | None, limits: BudgetLimits, yes: bool, output: Output
) -> None:
    """Resume a plan that failed or was interrupted. Finished calls are not repeated.

    If an apply failed, it is tried again. A plan that has spent its budget needs a larger one. Without PLAN,
    resume the only plan here that failed or was interrupted.

    \b
    Example:
      agents plan resume 7QX2
      agents plan resume 7QX2 --max-tokens 500000
      agents plan resume 7QX2 --model openai/gpt-4.1
    """
    from cleveragents.cli.plan.apply import apply_now
    from cleveragents.cli.plan.view import printed_at_end
    from cleveragents.cli.plan.work import activity_count, applied_or_not, continue_plan

    deciding = _deciding(session, output, yes=yes)
    plans = deciding.client.plans
    plan = plans.get(chosen_plan(deciding.client, plan_id, "resume"))
    # A blocked plan that was rolled back continues, also if no worker can run it now.
    proposed = any(step.action == "plan.resume" for step in plan.steps)
    continues = "resume" in plan.can or (plan.state is PlanState.CONSTRAINED and proposed)
    if plan.phase is Phase.APPLY and not plan.state.ended and not continues:
        for_review = plan.request.get("apply") == "review" and not yes
        with printed_at_end(deciding.client, deciding.output, plan.id) as told:
            # guard: a failed apply does not replace a review, and an objection holds until a person applies
            if plan.state is not PlanState.PROCESSING and (for_review or plan.held_back):
                told.plan = applied_or_not(deciding, plan)
            else:
                told.plan = apply_now(deciding.client, plan)
        return
    asked = _asked(limits)
    was_done = (plan.phase, plan.state) == (Phase.EXECUTE, PlanState.COMPLETE)
    deeds = activity_count(plan) if was_done else None
    continue_plan(deciding, plan, lambda: plans.resume(plan.id, model=model, limits=asked), deeds=deeds)


def print_denied(deciding: WorkOptions, plan: PlanView) -> None:
    """Print a denied plan and its parent. Raises `Cancelled` if the plan was cancelled."""
    from cleveragents.cli.plan.view import print_next_steps, print_plan
    from cleveragents.core.errors import Cancelled

    whole = plan if plan.parent is None else deciding.client.plans.get(plan.root)
    ended = [one for one in (plan, whole) if one.state is PlanState.CANCELLED]
    if plan.error is not None and not ended:
        progress(f"denied: {plan.error}")
    print_plan(deciding.output, plan)
    if plan.parent is not None:
        progress(f"part of plan {whole.id}, {_how(whole)}")
        print_next_steps(whole)
    if ended:
        raise Cancelled((ended[0].error or "").removeprefix("cancelled: "))


def _how(whole: PlanView) -> str:
    if whole.state is not PlanState.QUEUED:
        return whole.meaning
    # The worker of the sub-plan may not have continued the parent yet.
    return f"{whole.status.value}: a worker continues it; if no worker runs, resume it"


def _shown_request(plan: PlanView, number: int | None) -> int | None:
    """Print the pending request, and return the call to approve: `number`, or the call that was printed."""
    from cleveragents.cli.plan.work import asking_call, print_pending_questions

    print_pending_questions(plan, plan)
    call = asking_call(plan)
    return call.number if number is None and call is not None else number


def _tell_answered(plan: PlanView) -> None:
    """Print the call that was approved or denied."""
    answered = [call for call in plan.calls if call.approval is not None]
    for call in answered[-1:]:  # a server of 0.1.0 does not report it
        said = "approved" if call.approval == "granted" else "denied"
        progress(f"{said}: call {call.number}, {call.tool}: {call.what}")


def _deciding(session: Session, output: Output, *, yes: bool = False) -> WorkOptions:
    from cleveragents.cli.plan.work import WorkOptions

    return WorkOptions(session.client(), prefix_of(session), output, yes=yes)


def _asked(limits: BudgetLimits) -> Limits | None:
    """Convert the limits for the client; None if no limit is given."""
    if limits == BudgetLimits():
        return None
    from cleveragents.api.plans.request import Limits
    from cleveragents.models.model.budget import PICODOLLARS

    usd = None if limits.picodollars is None else limits.picodollars / PICODOLLARS
    return Limits(usd=usd, tokens=limits.tokens, steps=limits.steps, seconds=limits.seconds)
