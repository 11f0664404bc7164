"""The course of a plan on the command line: run it until it comes to rest, ask the user, then apply the
result or leave it for later.

Plans of this machine and of a server are handled alike: a client acts on them, and its views list the
possible actions.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click
from msgspec import Struct, field

from cleveragents.api.client import LocalClient
from cleveragents.api.format import on_one_line
from cleveragents.api.views import every
from cleveragents.cli.output import progress
from cleveragents.cli.plan.apply import (
    apply_now,
    ensure_checked,
    print_applied,
    wait_for_other_apply,
)
from cleveragents.cli.plan.exit_codes import FAILED, INTERRUPTED, NEEDS_HUMAN, TRY_AGAIN
from cleveragents.cli.plan.view import (
    print_changes,
    print_hints,
    print_next_steps,
    print_reason,
    printed_at_end,
    shown_diff,
)
from cleveragents.cli.prompts import prompt_choice, prompt_key
from cleveragents.cli.usage import as_usage
from cleveragents.core.errors import PlanFailed, ResultChanged
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.plans.client import ApprovalScope, Plans
    from cleveragents.api.plans.summary import PlanSummary
    from cleveragents.api.plans.views import CallSummary, PlanView
    from cleveragents.cli.output import Output
    from cleveragents.cli.plan.follow import StreamPosition

__all__ = [
    "APPLY_IT",
    "WorkOptions",
    "activity_count",
    "applied_or_not",
    "approval_question",
    "asked_for",
    "asking_call",
    "continue_plan",
    "decide",
    "discard_question",
    "interactive",
    "is_discard_confirmed",
    "longer_approvals",
    "name_of",
    "name_review",
    "plans_needing_action",
    "position_before",
    "print_pending_questions",
    "runs_in_front",
    "should_apply",
    "shown_again",
    "shown_result",
    "work_on",
]

_DONE = (Phase.EXECUTE, PlanState.COMPLETE)
_LINES_KEPT = 100
_MOST_ASKED = 5
_READS = 3
"""How often a diff is read again, if the result changes meanwhile. The apply of such a result is refused."""
APPLY_IT = "Apply? [y]es, [n]ot now, show the [d]iff, [r] discard", ("y", "n", "d", "r")
"""The question for `prompt_key`."""

_Reply = TypeVar("_Reply")


class WorkOptions(Struct, frozen=True):
    """The context in which a command works on plans: the client, the output, the prefix of commands, the
    user's options, and the last lines that were printed (`said`), so that they are not repeated.
    """

    client: Client
    prefix: str
    output: Output
    yes: bool = False
    only_review: bool = False
    message: str | None = None
    parallel: int | None = None
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))


def interactive() -> bool:
    """Return whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def position_before(deciding: WorkOptions, plan: PlanView | None = None) -> StreamPosition | None:
    """Return the position after which output is new, for a `plan` that has begun or for one to be created.
    None if the plan runs in the foreground, where all output is new.
    """
    if plan is not None and runs_in_front(deciding.client, plan):
        return None
    from cleveragents.cli.plan.follow import current_position

    return current_position(deciding.client, plan)


def work_on(
    deciding: WorkOptions,
    plan: PlanView,
    *,
    after: StreamPosition | None,
    quiet: bool = False,
    answered: tuple[str, int] | None = None,
) -> PlanView:
    """Run the plan and return it once no job of its tree is left.

    Ctrl-C pauses the tree, waits for the pause, prints how to continue, and exits with 130. `after` is the
    stream position before the plan continued. `quiet` omits the goal. `answered` is the call that the user
    has just answered: the line of its step is not printed again.
    """
    client, at_it = deciding.client, None
    if isinstance(client, LocalClient):
        if runs_in_front(client, plan):
            from cleveragents.cli.run.foreground import work_in_front

            output, parallel = deciding.output, deciding.parallel
            return work_in_front(client, plan, output, parallel=parallel, quiet=quiet, answered=answered)
        at_it = _OwnServer(client)
        if not at_it.lives():
            progress(f"workers of a server run the plan; follow it with `agents plan watch {plan.id}`")
            return client.plans.get(plan.id)
    from cleveragents.cli.plan.follow import current_position, run_until_rest

    return run_until_rest(
        client,
        plan,
        deciding.output,
        after=after or current_position(client, plan),
        prefix=deciding.prefix,
        quiet=quiet,
        hear=deciding.said.append,
        at_it=at_it,
    )


def runs_in_front(client: Client, plan: PlanView) -> bool:
    """Return whether the command itself runs the plan, because no worker takes it from a queue."""
    if not isinstance(client, LocalClient):
        return False
    request = plan.request if plan.parent is None else client.plans.summary(plan.root).request
    return not request.get("queue")


class _OwnServer:
    """The server of this state directory, which runs the plans queued for it."""

    def __init__(self, client: LocalClient) -> None:
        self._state_directory = client.access.container.state_directory

    def lives(self) -> bool:
        from cleveragents.server.server_file import running_server

        return running_server(self._state_directory) is not None

    def is_kept_by(self, plan: PlanSummary) -> bool:
        return False

    def is_gone(self, plan: PlanView) -> bool:
        if self.lives() or plan.worked_on:
            return False
        progress("the server is gone; the next server continues the plan")
        return True


def continue_plan(
    deciding: WorkOptions,
    plan: PlanView,
    act: Callable[[], PlanView],
    *,
    tell: Callable[[PlanView], None] = lambda plan: None,
    deeds: int | None = None,
) -> None:
    """Perform the action `act`, continue the plan and the tree it belongs to, and print the outcome; `tell`
    prints the action first. `deeds` is the `activity_count` before the action: if the plan was done and the
    count has not grown, print that there was nothing to do.
    """
    whole = plan if plan.parent is None else deciding.client.plans.get(plan.root)
    after = position_before(deciding, whole)
    with as_usage():
        plan = act()
    tell(plan)
    with printed_at_end(deciding.client, deciding.output, plan.id) as told:
        worked = work_on(deciding, _followed(deciding, plan), after=after)
        if plan.parent is not None:
            worked = _part_or_whole(deciding, plan, whole)
            told.plan_id = worked.id
        if (worked.phase, worked.state) == _DONE and deeds is not None and deeds == activity_count(worked):
            progress("nothing to do: the plan is already done")
        told.plan = decide(deciding, worked)


def _followed(deciding: WorkOptions, plan: PlanView) -> PlanView:
    """Return the plan to follow: the root of the tree, or the plan itself if the root does not continue or
    the command runs the plan.
    """
    if plan.parent is None or runs_in_front(deciding.client, plan):
        return plan
    whole = deciding.client.plans.get(plan.root)
    return plan if whole.at_rest and not whole.waits_for_sub_plans else whole


def _part_or_whole(deciding: WorkOptions, plan: PlanView, before: PlanView) -> PlanView:
    """Return the root of the tree if it has changed since `before`, that is, if it continued with this
    sub-plan. Otherwise return the sub-plan.
    """
    whole = deciding.client.plans.get(plan.root)
    # A root that failed or is done does not continue because of a sub-plan.
    return deciding.client.plans.get(plan.id) if _standing(whole) == _standing(before) else whole


def _standing(plan: PlanView) -> tuple[object, ...]:
    return plan.phase, plan.state, plan.job, plan.error, plan.waiting_for


def activity_count(plan: PlanView) -> int:
    """Return the number of tool and model calls of the plan. A rollback counts as a call."""
    return len(plan.calls) + (plan.spending.model_calls or 0)


def decide(deciding: WorkOptions, plan: PlanView) -> PlanView:
    """Bring a plan at rest to the outcome that the user chooses, with questions on a terminal.

    Exits with 3 after printing the pending request if a question cannot be asked, with 1 if the plan failed,
    and with 130 if it was cancelled. Raises `CheckFailed` if the result is left with a required check that
    did not pass.
    """
    while plan.state is PlanState.WAITING:
        plan = _answered(deciding, plan)
    _ensure_succeeded(deciding, plan)
    plan = wait_for_other_apply(deciding.client, plan, deciding.message)
    if plan.state is PlanState.APPLIED:
        print_applied(plan)
    if (plan.phase, plan.state) != _DONE:
        return plan
    changed = print_changes(plan)
    print_hints(plan)
    if plan.parent is not None:
        print_next_steps(plan)
    elif changed and (deciding.only_review or _is_for_review(deciding, plan)):
        _tell_how_to_fix(plan)
        print_next_steps(plan, commit=deciding.message)
        if plan.sub_plans:
            name_review(deciding)
    elif changed:
        plan = applied_or_not(deciding, plan)
    if (plan.phase, plan.state) == _DONE:
        ensure_checked(plan)  # guard: a failed check is no success, whatever else was done
    return plan


def name_review(deciding: WorkOptions) -> None:
    """Name the command that goes through all plans that need the user."""
    progress(f"decide about all plans that need you, one key each, with `{deciding.prefix} plan review`")


def _is_for_review(deciding: WorkOptions, plan: PlanView) -> bool:
    """Return whether the plan was created with `--review`, and this command got neither `--yes` nor a commit
    message.
    """
    return plan.request.get("apply") == "review" and not deciding.yes and deciding.message is None


def _ensure_succeeded(deciding: WorkOptions, plan: PlanView) -> None:
    """Exit with 1 after printing the reason if the plan failed, with 3 if it could not be applied, and with
    130 if another command cancelled or paused it.
    """
    if plan.state is PlanState.CANCELLED:
        print_reason(plan)
        print_next_steps(plan)
        raise click.exceptions.Exit(INTERRUPTED)
    if plan.state is PlanState.CONSTRAINED:
        _tell_constrained(deciding, plan)
    if plan.status is PlanStatus.PAUSED:
        from cleveragents.cli.run.foreground import end_interrupted

        end_interrupted(plan)
    if plan.state is PlanState.ERRORED:
        from cleveragents.cli.failure import say_error

        # The error may already name the failed plan.
        say_error(str(PlanFailed(plan.id, plan.error or "no further details")))
        print_hints(plan)
        print_next_steps(plan)
        raise click.exceptions.Exit(FAILED)


def _tell_constrained(deciding: WorkOptions, plan: PlanView) -> NoReturn:
    """Print why the plan cannot be applied to the current files, and exit with 3."""
    if not {*(plan.error or "").splitlines()} <= {*deciding.said}:  # the apply may have printed it
        print_reason(plan)
    print_next_steps(plan, commit=deciding.message)
    raise click.exceptions.Exit(NEEDS_HUMAN)


def should_apply(
    plan: PlanView, *, yes: bool, commit: str | None, tell: Callable[[str], None] = progress
) -> bool:
    """Return whether a result can be applied without a question; print the obstacles if not. Raises
    `CheckFailed`, after printing remedies.
    """
    unpassed = [check for check in plan.checks if check.required and not check.passed]
    if unpassed:  # an apply would refuse it, after running the checks again
        _tell_how_to_fix(plan, tell)
        print_next_steps(plan, commit=commit)
        ensure_checked(plan)
    for objection in plan.held_back:
        tell(objection)
    # A commit message is given now, by a user who wants the result applied.
    if (
        plan.request.get("apply") == "review" and not yes and commit is None
    ):  # guard: the result is for review
        return False
    return (yes or plan.apply_allowed) and not plan.held_back


def _tell_how_to_fix(plan: PlanView, tell: Callable[[str], None] = progress) -> None:
    """Print how to fix required checks that did not pass, if there are any."""
    unpassed = [check for check in plan.checks if check.required and not check.passed]
    if any(check.verdict in ("not run", "void") for check in unpassed):
        tell("a check did not run: install the missing program, or run the goal again with another --check")
    if unpassed and plan.sandbox is not None:
        tell(
            f"to fix the result yourself, edit the files in {plan.sandbox}, "
            "then record the edits with `plan capture`"
        )


def applied_or_not(deciding: WorkOptions, plan: PlanView) -> PlanView:
    """Apply the result if that needs no approval, else ask; without a terminal, print the next steps and exit
    with 3.
    """
    message = deciding.message
    if should_apply(plan, yes=deciding.yes, commit=message):
        return apply_now(deciding.client, plan, commit=message)
    if interactive():
        return _asked(deciding, plan)
    progress("not applied: review the result")
    print_next_steps(plan, commit=message)
    if plan.sub_plans:
        name_review(deciding)
    raise click.exceptions.Exit(NEEDS_HUMAN)


def _asked(deciding: WorkOptions, plan: PlanView) -> PlanView:
    plans, message = deciding.client.plans, deciding.message
    while True:
        answer = _answer(plan, partial(prompt_key, *APPLY_IT), message)
        if answer == "y":
            try:
                return apply_now(deciding.client, plan, commit=message)
            except ResultChanged as changed:
                plan = shown_again(deciding, changed)
                continue
        if answer == "r":
            if is_discard_confirmed(plan):
                return plans.discard(plan.id, version=plan.version)
            continue
        if answer == "n":
            print_next_steps(plan, commit=message)
        if answer in ("n", None):
            return plan
        plan = shown_result(plans, plan)


def shown_result(plans: Plans, plan: PlanView) -> PlanView:
    """Show the diff of the plan, and return the plan with the result that was shown."""
    patch = b""
    for _ in range(_READS):
        seen, patch = plan, plans.patch(plan.id, renames=True)
        plan = plans.get(plan.id)
        if plan.tree == seen.tree:
            break
    shown_diff(patch)
    return seen  # not what came after the patch: an apply takes only what was shown


def shown_again(deciding: WorkOptions, changed: ResultChanged) -> PlanView:
    """Print that the result has changed, show its new diff, and return the plan with this result."""
    from cleveragents.cli.failure import say_error

    say_error(str(changed))
    plans = deciding.client.plans
    return shown_result(plans, plans.get(changed.plan_id))


def is_discard_confirmed(plan: PlanView) -> bool:
    """Ask whether to discard the result, or to close a plan without one; Ctrl-D means no."""
    return prompt_key(f"{discard_question(plan)} [y]es, [n]o", ["y", "n"], end="n") == "y"


def discard_question(plan: PlanView) -> str:
    """Return the question before a plan is discarded."""
    return "Discard the result?" if plan.changes else "Close the plan?"


def _answered(deciding: WorkOptions, plan: PlanView) -> PlanView:
    """Answer the pending request of the plan or of a sub-plan, and return the plan afterwards."""
    needing = plans_needing_action(deciding.client, plan)
    if plan.parked_until is not None:
        watch = f"`{deciding.prefix} plan watch {plan.id}`"
        progress(f"{plan.meaning}; the plan continues by itself, follow it with {watch}")
        raise click.exceptions.Exit(TRY_AGAIN)
    if not needing:
        progress(f"the sub-plans run elsewhere; follow them with `{deciding.prefix} plan watch {plan.id}`")
        raise click.exceptions.Exit(TRY_AGAIN)
    asking = needing[0]
    call = asking_call(asking)
    print_pending_questions(plan, asking)
    reply = _reply(deciding, asking, call) if interactive() else None
    if reply is None:
        _tell_who_needs(deciding, needing)
        raise click.exceptions.Exit(NEEDS_HUMAN)
    after = position_before(deciding, plan)
    reply()
    now, answered = deciding.client.plans.get(plan.id), None if call is None else (asking.id, call.number)
    return work_on(deciding, now, after=after, quiet=True, answered=answered)


def plans_needing_action(client: Client, plan: PlanView) -> list[PlanView]:
    """Return the plans that need a person: the plan itself, or the sub-plans that it waits for."""
    if not plan.waits_for_sub_plans:
        return [plan] if plan.state is PlanState.WAITING else []
    plans = client.plans
    rows = every(lambda after: plans.list(states=(PlanState.WAITING,), sub_plans=True, after=after))
    asking = [row.id for row in rows if row.root == plan.root and row.needs and not row.waits_for_sub_plans]
    return [plans.get(plan_id) for plan_id in sorted(asking)]


def print_pending_questions(plan: PlanView, asking: PlanView) -> None:
    """Print the pending request of the plan or its sub-plan, and failures of other sub-plans."""
    if asking.id != plan.id:
        progress(f"sub-plan {asking.id} needs you: {name_of(asking)}")
    print_reason(asking)
    call = asking_call(asking)
    if call is not None:
        progress(f"  {call.tool}: {call.what}")
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    failed = waiting.get("failed")
    if isinstance(failed, Sequence) and failed:  # guard: the user knows the failures before answering
        progress(redact_text(f"{len(failed)} failed: {', '.join(map(str, failed))}"))


def _tell_who_needs(deciding: WorkOptions, needing: Sequence[PlanView]) -> None:
    print_next_steps(needing[0])
    for other in needing[1:_MOST_ASKED]:
        progress(f"sub-plan {other.id} needs you as well: {name_of(other)}")
        print_next_steps(other)
    if len(needing) > _MOST_ASKED:
        progress(f"and {len(needing) - _MOST_ASKED} more; list them with `{deciding.prefix} plan list`")
    if deciding.message is not None:
        progress("apply and commit the result afterwards; pass the message again")


def name_of(plan: PlanView) -> str:
    """Return the name of a sub-plan; for any other plan, its goal."""
    name = plan.request.get("name") if plan.parent is not None else None
    return on_one_line(str(name)) if name else plan.title


def asking_call(plan: PlanView) -> CallSummary | None:
    """Return the call that waits for approval, or None."""
    asked = [call for call in plan.calls if call.state == "asked"]
    return asked[-1] if asked and _waited_for(plan) == "leave" else None


def _waited_for(plan: PlanView) -> str:
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return str(waiting.get("for") or "leave") if plan.state is PlanState.WAITING else ""


def _reply(
    deciding: WorkOptions, asking: PlanView, call: CallSummary | None
) -> Callable[[], PlanView] | None:
    """Ask the user and return the action that responds to a request. None if the request cannot be answered
    by a prompt. Exits with 3 if the user does not respond now.
    """
    plans = deciding.client.plans
    if call is not None:
        reply = _answer(asking, partial(_approval, deciding, asking, call.number))
        if reply is None:
            raise click.exceptions.Exit(NEEDS_HUMAN)
        return reply
    if _waited_for(asking) != "question":
        return None
    waiting = asking.waiting_for if isinstance(asking.waiting_for, Mapping) else {}
    text = _answer(asking, partial(asked_for, waiting))
    if text is None:
        raise click.exceptions.Exit(NEEDS_HUMAN)
    return partial(plans.answer, asking.id, text, question=str(waiting.get("question")))


def _approval(deciding: WorkOptions, asking: PlanView, number: int) -> Callable[[], PlanView]:
    """Ask whether and for how long the call is approved, and return the response."""
    plans = deciding.client.plans
    question, offered, rule = approval_question(asking, number)
    said = prompt_key(question, ["y", *offered, "n"])
    if said == "y":
        return partial(plans.approve, asking.id, call=number)
    if said in offered:
        return partial(plans.approve, asking.id, call=number, scope=offered[said], pattern=rule)
    reason = str(click.prompt("Reason for the agent (Enter: none)", default="", show_default=False, err=True))
    return partial(plans.deny, asking.id, call=number, reason=reason.strip() or None)


def approval_question(asking: PlanView, number: int) -> tuple[str, Mapping[str, ApprovalScope], str | None]:
    """Return the question about a pending call, the scopes of longer approvals by their keys, and the rule
    that they add. The rule is printed.
    """
    offered, rule = longer_approvals(asking, number)
    approval, words = asking.approval, ["Approve? [y]es"]
    if approval is None or not offered:
        return "Approve? [y]es, [n]o", {}, rule
    progress(f"  a rule can approve later commands: `{rule}`")
    if "p" in offered:
        words.append(f"in {approval.plan_scope.replace('plan', '[p]lan', 1)}")
    if "a" in offered:
        words.append(f"[a]lways in {approval.project_scope}")
    return ", ".join([*words, "[n]o"]), offered, rule


def longer_approvals(asking: PlanView, number: int) -> tuple[Mapping[str, ApprovalScope], str | None]:
    """Return the scopes, by their keys, in which a pending call can be approved for longer, and the rule that
    such an approval adds.
    """
    approval = asking.approval
    if approval is None or approval.call != number:
        return {}, None
    scopes: Mapping[str, ApprovalScope] = {"p": "plan", "a": "project"}
    offered = {key: scope for key, scope in scopes.items() if scope in approval.scopes}
    return offered, approval.pattern or approval.exact


def _answer(plan: PlanView, ask: Callable[[], _Reply], commit: str | None = None) -> _Reply | None:
    """Return the response of the user; None after Ctrl-D, which means "not now". After Ctrl-D or Ctrl-C the
    plan stays as it is, and the next steps are printed.
    """
    try:
        return ask()
    except click.Abort as abort:
        progress("")  # ends the line of the question
        progress("the plan stays as it is")
        print_next_steps(plan, commit=commit)
        if not isinstance(abort.__context__, EOFError):
            raise
        return None


def asked_for(waiting: Mapping[str, object]) -> str:
    """Return the user's answer to the question of an actor."""
    choices = waiting.get("choices")
    several = [*dict.fromkeys(str(one) for one in choices)] if isinstance(choices, Sequence) else []
    if several:
        return prompt_choice(f"Your answer ({', '.join(several)})", several)
    return str(click.prompt("Your answer", type=click.STRING, err=True))
