"""Runs a plan in the foreground: its job, what it says meanwhile, the questions it asks, what comes of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from cleveragents.api.plans.account import found_plan, has_not_run, place_of, spelt_arguments, unpassed_checks
from cleveragents.api.plans.changes import changes_of
from cleveragents.api.plans.hints import hints_of
from cleveragents.api.plans.meanings import goal_of, waited
from cleveragents.cli.asking import asked_choice, confirmed
from cleveragents.cli.output import counted, progress
from cleveragents.cli.plan.account import told_changes
from cleveragents.cli.plan.applied_by_another import applied_by_another, once_applied_elsewhere
from cleveragents.cli.plan.outcome import TRY_AGAIN
from cleveragents.cli.plan.view import shown_diff, told_next, told_reason
from cleveragents.cli.render.board import Board, board_for
from cleveragents.cli.run.foreground import end_unless_cancelled, run_in_front
from cleveragents.core.errors import (
    ApplyConflict,
    Cancelled,
    CheckFailed,
    Conflict,
    PlanError,
    PlanFailed,
    StalePlan,
)
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_known_text, redact_text
from cleveragents.plans.deciding import ensure_checked, is_wanted_applied
from cleveragents.plans.family import title_of, who_needs_somebody
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.sub_plan import failed_below

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.apply.ports import CommitRequest
    from cleveragents.cli.output import Output
    from cleveragents.core.tool import ToolCall
    from cleveragents.jobs.ports import JobHandler
    from cleveragents.jobs.worker.async_worker import AsyncWorker

__all__ = [
    "APPLY_IT",
    "apply_now",
    "asked_for",
    "asked_parallel",
    "decide",
    "handler_of",
    "interactive",
    "is_to_be_applied",
    "work_on",
]

_NEEDS_HUMAN = 3
_MOST_ASKED = 5
APPLY_IT = "Apply it? [y]es, [n]ot now, show the [d]iff, [r]eject it", ("y", "n", "d", "r")
"""The question, for `asked_choice`."""

_Reply = TypeVar("_Reply")


def interactive() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def work_on(
    container: Container,
    plan: Plan,
    output: Output | None = None,
    *,
    answered: ToolCall | None = None,
    parallel: int | None = None,
) -> Plan:
    """The plan, once no job of it or of the tree that it belongs to is left. Ctrl-C cancels the tree, and its
    processes are gone when this returns; twice kills them. Exits with 130, having said how it goes on, where
    that came too late for a cancel.

    What was said when the call that is now `answered` was asked for is not said again.
    """
    from cleveragents.plans.jobs.names import kind_of_plan, queue_of

    parts = container.plan_parts
    root = plan if plan.parent_id is None else parts.plans.get(plan.root)
    if queue_of(root.request):  # guard: what is for all workers is not run here
        return _worked_on_elsewhere(container, plan, output)

    def hire(board: Board) -> AsyncWorker:
        view = board.view_of(plan)
        if answered is None and plan.parent_id is None:
            view.say(f"plan {plan.id}: {goal_of(plan)}")
        handlers = {kind_of_plan(root.id): handler_of(container, board, answered)}
        at_once = parallel or asked_parallel(root) or container.settings.plan.max_parallel
        return container.worker(handlers, name=f"run-{os.getpid()}", concurrency=at_once)

    show = partial(board_for, container, [root], output, alone=True)
    interrupted = run_in_front(container, [root], show, hire)
    now = parts.lifecycle.reconciled(parts.plans.get(plan.id))
    if interrupted:
        end_unless_cancelled(parts, parts.lifecycle.reconciled(parts.plans.get(root.id)))
    return now


def _worked_on_elsewhere(container: Container, plan: Plan, output: Output | None) -> Plan:
    """The plan, when the server of this state is done with it; at once, where none is."""
    from cleveragents.server.server_file import running_server

    parts = container.plan_parts
    if running_server(container.state_directory) is None:
        progress(f"workers of a server run it; `agents plan watch {plan.id}` follows it")
        return parts.lifecycle.reconciled(parts.plans.get(plan.id))
    from cleveragents.cli.run.handover import watched

    return watched(container, plan, output, begun=bool(parts.history.calls(plan.id)))


def asked_parallel(plan: Plan) -> int | None:
    """How many plans of its tree may run at once, as its user said."""
    asked = plan.request.get("max_parallel")
    return asked if isinstance(asked, int) else None


def decide(
    container: Container,
    plan: Plan,
    *,
    yes: bool,
    commit: CommitRequest | None,
    only_review: bool = False,
    output: Output | None = None,
) -> Plan:
    """Takes a plan from where its job left it to where the user wants it, asking on a terminal.

    Exits with 3, having said what is needed, where somebody would have to be asked and nobody is there.
    `PlanFailed`, `Cancelled`; `CheckFailed` when it is left undecided and a required check did not pass.
    """
    parts = container.plan_parts
    while plan.state is PlanState.WAITING:
        plan = _answered(container, plan, commit, output)
    if plan.state is PlanState.CANCELLED:
        raise Cancelled((plan.error or "").removeprefix("cancelled: "))
    if plan.state is PlanState.ERRORED:
        tell_of_network(parts, plan)
        told_next(parts, plan)
        # The error may already say which plan failed.
        problem = plan.error or "it says no more"
        raise PlanFailed(plan.id, problem)
    plan = once_applied_elsewhere(parts, plan, commit)
    if plan.standing != (Phase.EXECUTE, PlanState.COMPLETE):
        return plan
    changed = told_changes(parts, plan)
    tell_of_network(parts, plan)
    if plan.parent_id is not None:
        told_next(parts, plan)
    elif changed and only_review:
        told_next(parts, plan, commit)
    elif changed:
        plan = _applied_or_not(parts, plan, yes=yes, commit=commit)
    if plan.standing == (Phase.EXECUTE, PlanState.COMPLETE):
        ensure_checked(parts, plan)  # guard: a failed check is no success, whatever else was done
    return plan


def apply_now(parts: PlanParts, plan: Plan, commit: CommitRequest | None) -> Plan:
    """The plan, applied, be it by another process meanwhile; what stands in the way is shown before it is
    raised."""
    from cleveragents.jobs.worker.async_worker import CancellationToken

    if not changes_of(parts, plan):
        if parts.history.changes(plan.id):
            reason = f"all it changed is left out; `agents plan review {plan.id} --accept .` takes it in"
            raise PlanError(plan.id, reason)
        progress("nothing was changed, so there is nothing to apply")
        ensure_checked(parts, plan)
        return plan
    try:
        plan, applied = parts.apply.apply(plan, CancellationToken(), commit=commit, told=progress)
    except StalePlan as stale:
        return applied_by_another(parts, stale, commit)
    except Conflict as conflict:
        if isinstance(conflict, ApplyConflict):
            for line in conflict.details.splitlines():
                progress(line)
        tell_of_network(parts, plan)
        told_next(parts, parts.plans.get(plan.id), commit)
        raise
    undo = f"`agents plan undo {plan.id}` takes it back"
    if applied.changes:
        progress(f"applied to {counted(len(applied.changes), 'file')} of {place_of(parts, plan)}; {undo}")
    else:
        progress("your files have it already; nothing was changed")
    if applied.commit is not None:
        progress(f"committed as {applied.commit}")
    return plan


def tell_of_network(parts: PlanParts, plan: Plan) -> None:
    """What may explain why it failed, on stderr."""
    for hint in hints_of(parts, plan):
        progress(f"hint: {hint}")


def handler_of(container: Container, board: Board, answered: ToolCall | None = None) -> JobHandler:
    """What runs the jobs of a tree of plans, and shows each plan there."""
    from cleveragents.jobs.ports import JobHandler
    from cleveragents.plans.output_recorder import PlanWatch

    known = None if answered is None else f"step {answered.step} of "

    def watch(plan: Plan) -> PlanWatch:
        view = board.view_of(plan)

        def told(message: str) -> None:
            if known is None or plan.id != answered_plan or not message.startswith(known):
                view.say(message)

        return PlanWatch(told, view.output, view.seen)

    answered_plan = None if answered is None else answered.plan_id
    return JobHandler(run=container.plan_parts.run(watch=watch))


def is_to_be_applied(
    parts: PlanParts,
    plan: Plan,
    *,
    yes: bool,
    commit: CommitRequest | None,
    tell: Callable[[str], None] = progress,
) -> bool:
    """Whether a result can go into the user's files without a question; what speaks against it is said.

    `CheckFailed`, having said what can be done.
    """
    try:
        ensure_checked(parts, plan)  # an apply would refuse it, after running the checks once more
    except CheckFailed:
        if has_not_run(unpassed_checks(parts, plan)):
            tell("a check did not run: install what it lacks, or run the goal again with another --check;")
        tell("edit its files where `agents plan show` says they are, then `agents plan reread` it; or:")
        told_next(parts, plan, commit)
        raise
    wanted = is_wanted_applied(parts, plan, yes=yes, tell=tell)
    # A message for its commit is what somebody says now, and who says that wants it applied.
    if plan.request.get("apply") == "review" and not yes and commit is None:  # guard: it was to be left
        return False
    return wanted


def _applied_or_not(parts: PlanParts, plan: Plan, *, yes: bool, commit: CommitRequest | None) -> Plan:
    if is_to_be_applied(parts, plan, yes=yes, commit=commit):
        return apply_now(parts, plan, commit)
    if interactive():
        return _asked(parts, plan, commit)
    progress("it is not applied: that is for you to decide")
    told_next(parts, plan, commit)
    raise click.exceptions.Exit(_NEEDS_HUMAN)


def _asked(parts: PlanParts, plan: Plan, commit: CommitRequest | None) -> Plan:
    while True:
        answer = _answer(parts, plan, partial(asked_choice, *APPLY_IT), commit)
        if answer == "y":
            return apply_now(parts, plan, commit)
        if answer == "r":
            return parts.lifecycle.reject(plan)
        if answer == "n":
            told_next(parts, plan, commit)
        if answer in ("n", None):
            return plan
        shown_diff(parts.result.diff(plan, parts.sandboxes.open(plan.id), options=["--binary", "--no-color"]))


def _answered(container: Container, plan: Plan, commit: CommitRequest | None, output: Output | None) -> Plan:
    """The plan, after whoever needs somebody was answered: the plan itself, or one below it."""
    parts = container.plan_parts
    needing = who_needs_somebody(parts, plan)
    if not needing:
        progress("its sub-plans run elsewhere; `agents plan watch` follows them")
        raise click.exceptions.Exit(TRY_AGAIN)
    asking = needing[0]
    waiting = asking.waiting_for if isinstance(asking.waiting_for, Mapping) else {}
    call = parts.lifecycle.asking(asking)
    _tell_who_asks(plan, asking, call)
    if interactive() and call is not None:
        granted = _answer(parts, asking, partial(confirmed, "Allow it?"))
        if granted is None:
            raise click.exceptions.Exit(_NEEDS_HUMAN)
        work_on(container, parts.lifecycle.answer(asking, granted, call.number), output, answered=call)
        return found_plan(parts, plan.id)
    if interactive() and waited(asking) == "question":
        question = str(waiting.get("question"))
        reply = _answer(parts, asking, partial(asked_for, waiting))
        if reply is None:
            raise click.exceptions.Exit(_NEEDS_HUMAN)
        work_on(container, parts.lifecycle.reply(asking, reply, question), output)
        return found_plan(parts, plan.id)
    told_next(parts, asking)
    for other in needing[1:_MOST_ASKED]:
        progress(f"sub-plan {other.id} needs you as well: {title_of(other)}")
        told_next(parts, other)
    if len(needing) > _MOST_ASKED:
        progress(f"and {len(needing) - _MOST_ASKED} more; `agents plan list` has them")
    if commit is not None:
        progress("then it can be applied and committed; the message is to be given again")
    raise click.exceptions.Exit(_NEEDS_HUMAN)


def _tell_who_asks(plan: Plan, asking: Plan, call: ToolCall | None) -> None:
    """The question of the plan, or of the one below it; and what failed there meanwhile."""
    if asking.id != plan.id:
        progress(f"sub-plan {asking.id} needs you: {title_of(asking)}")
    told_reason(asking)
    if call is not None:
        progress(redact_known_text(f"  {call.tool}: {spelt_arguments(call.arguments)}"))
    failed = failed_below(plan)
    if failed:  # guard: nobody answers without knowing what failed
        progress(redact_text(f"{len(failed)} failed: {', '.join(map(str, failed))}"))


def _answer(
    parts: PlanParts, plan: Plan, ask: Callable[[], _Reply], commit: CommitRequest | None = None
) -> _Reply | None:
    """What is answered; None for Ctrl-D, which means "not now". After Ctrl-C, too, the plan is left as it
    is, and what can be done with it is said."""
    try:
        return ask()
    except click.Abort as abort:
        progress("")  # the line of the question was not ended
        progress("it is left as it is")
        told_next(parts, plan, commit)
        if not isinstance(abort.__context__, EOFError):
            raise
        return None


def asked_for(waiting: Mapping[str, JsonValue]) -> str:
    """What the user answers to an actor's question."""
    choices = waiting.get("choices")
    several = [*dict.fromkeys(str(one) for one in choices)] if isinstance(choices, Sequence) else []
    if several:
        return asked_choice(f"Your answer ({', '.join(several)})", several)
    return str(click.prompt("Your answer", type=click.STRING, err=True))
