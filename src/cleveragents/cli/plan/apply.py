"""`agents plan apply|undo|discard`: actions on a result, on this machine or through a server.

The client decides whether a result can be applied. The obstacles are printed, with remedies, before the error
is raised.

If two processes apply the same plan, one of them applies it, and the other reports success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.changes import commit_message
from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.cli.plan.choose import chosen_plan, names_a_plan, optional_plan, plan_to_undo
from cleveragents.cli.plan.view import (
    DRAFTED,
    commit_option,
    ensure_seen,
    print_hints,
    print_next_steps,
    print_not_applied,
    print_plan,
    print_reason,
    printed_at_end,
    to_branch_option,
    tree_option,
)
from cleveragents.cli.servers import prefix_in
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import (
    ApplyConflict,
    CheckFailed,
    Conflict,
    PlanError,
    ResultChanged,
    ServerFailed,
    StalePlan,
)
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleveragents.api.client import Client
    from cleveragents.api.plans.summary import PlanSummary
    from cleveragents.api.plans.views import PlanView

__all__ = [
    "apply_now",
    "apply_plan",
    "discard_plan",
    "ensure_checked",
    "print_applied",
    "undo_plan",
    "wait_for_other_apply",
]

# Checks may take long.
_LONGEST_SECONDS = 3600.0
_RENAMED = "followed a rename: "


@click.command("apply")
@optional_plan
@commit_option
@to_branch_option
@tree_option
@format_option
@pass_session
def apply_plan(
    session: Session,
    plan_id: str | None,
    message: str | None,
    to_branch: str | None,
    tree: str | None,
    output: Output,
) -> None:
    """Apply a plan's result to your files. Without PLAN, the only result that is ready here.

    The result is merged with your current files, completely or not at all. Required checks run first, on the
    merged result. In a conflict with your edits or another plan, nothing changes, the conflicts are shown,
    and the exit code is 3. Without --commit, the index, branches and stash of git stay as they are. A result
    for a git remote is pushed as one commit, to the branch of the plan or to --to-branch. With --tree, only
    that result is applied; if it has changed since, the exit code is 3.

    \b
    Example:
      agents plan apply 7QX2
      agents plan apply 7QX2 --commit "Format the code"
      agents plan apply 7QX2 --commit
      agents plan apply 7QX2 --tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904
    """
    client = session.client()
    if plan_id is None and message is not None and names_a_plan(client.plans, message):
        raise click.UsageError(f"{message!r} names a plan; write the PLAN before --commit")
    plan = client.plans.get(chosen_plan(client, plan_id, "apply"))
    ensure_seen(plan, tree)
    if "apply" in plan.can:
        print_not_applied(plan)
    with printed_at_end(client, output, plan.id) as told:
        told.plan = apply_now(client, plan, commit=message, to_branch=to_branch)


@click.command("undo")
@optional_plan
@click.option("--commit", "message", metavar="MESSAGE", help="Commit the undo with this message.")
@click.option("--yes", is_flag=True, help="If PLAN is omitted, undo the last applied plan without asking.")
@format_option
@pass_session
def undo_plan(session: Session, plan_id: str | None, message: str | None, yes: bool, output: Output) -> None:
    """Undo an applied plan; later edits stay.

    Without PLAN, undo the plan that was applied last in this repository, after a confirmation. A commit of
    the apply stays in the history: undo never rewrites commits.

    \b
    Example:
      agents plan undo 7QX2
      agents plan undo
    """
    client = session.client()
    plan = client.plans.get(plan_to_undo(client, plan_id, yes=yes))
    try:
        undone = client.plans.undo(plan.id, commit=message, progress=_shown(plan))
    except ApplyConflict as conflict:
        for line in conflict.details.splitlines():
            progress(line)
        by_hand = f"{_prefix()} plan diff {plan.id} | git apply --reverse --reject"
        own = "" if conflict.remedies else "remove your edits of these lines, then run undo again; or "
        progress(f"{own}undo by hand:")
        progress(f"  {by_hand}  # undo what fits; the rest goes to *.rej files")
        raise
    except KeyboardInterrupt:
        _tell_left_to_server(client, plan)
        raise
    _tell_undone(plan, undone)
    print_plan(output, undone)


@click.command("discard")
@optional_plan
@tree_option
@format_option
@pass_session
def discard_plan(session: Session, plan_id: str | None, tree: str | None, output: Output) -> None:
    """Discard a plan's result. Your files stay as they are.

    Without PLAN, discard the only result here. A second discard changes nothing.

    \b
    Example:
      agents plan discard 7QX2
    """
    client = session.client()
    plan = client.plans.get(chosen_plan(client, plan_id, "discard"))
    if plan.status is PlanStatus.DISCARDED:
        progress(f"plan {plan.id} is already discarded; nothing changed")
    else:
        ensure_seen(plan, tree)
        plan = client.plans.discard(plan.id, version=None if tree is None else plan.version)
    print_plan(output, plan)


def apply_now(
    client: Client, plan: PlanView, *, commit: str | None = None, to_branch: str | None = None
) -> PlanView:
    """Apply the plan and return it, also if another process applied it in the meantime.

    A plan without changes is returned unchanged. The commit message `DRAFTED` is replaced by a message from
    the goal. Obstacles are printed before the error is raised: `ApplyConflict`, `CheckFailed`,
    `ApplyRefused`, `PlanError` …
    """
    if _is_unchanged(plan):
        progress("the plan changed nothing; there is nothing to apply")
        ensure_checked(plan)
        return plan
    if commit == DRAFTED:
        commit = commit_message(plan)
        progress(f"commit message: {commit.partition(chr(10))[0]}")
    try:
        applied = client.plans.apply(
            plan.id,
            commit=commit,
            to_branch=to_branch,
            version=plan.version,
            tree=plan.tree,
            progress=_shown(plan),
        )
    except (PlanError, StalePlan) as refused:
        return _applied_by_another(client, plan, refused, commit, to_branch)
    except ResultChanged:  # its remedy is the new diff
        raise
    except (Conflict, ServerFailed) as refused:
        now = client.plans.get(plan.id)
        if isinstance(refused, ApplyConflict):
            for line in refused.details.splitlines():
                progress(line)
        print_hints(now)
        print_next_steps(now, commit=commit, to_branch=to_branch)
        raise
    except KeyboardInterrupt:
        _tell_left_to_server(client, plan)
        raise
    print_applied(applied)
    return applied


def wait_for_other_apply(client: Client, plan: PlanView, commit: str | None = None) -> PlanView:
    """Return the plan. If another process applies it, first wait for the end of that apply.

    Raises `StalePlan`, with remedies, if the other process did not apply it. If another process works on the
    plan in any other way, a message is printed.
    """
    if _is_being_applied(plan):
        return _applied_by_another(client, plan, StalePlan(plan.id, 0), commit, None)
    if plan.state.running:
        progress("another process works on the plan now")
    return plan


def ensure_checked(plan: PlanView) -> None:
    """Raise `CheckFailed` if a required check of the result did not pass."""
    for check in plan.checks:
        if check.required and not check.passed:
            said = (
                "out of date: the files changed after this check"
                if check.verdict == "passed"
                else check.verdict
            )
            raise CheckFailed(plan.id, check.name, f"did not pass ({said})")


def _shown(plan: PlanView) -> Callable[[str], None]:
    """Return a function that prints the progress of an apply or undo, without lines that the error or
    `_tell_renames` prints at the end.
    """
    last = f"plan {plan.id} was not ", _RENAMED
    return lambda line: None if line.startswith(last) else progress(line)


def _tell_renames(plan: PlanView) -> None:
    """Print on stderr the renames that the last apply or undo followed."""
    for rename in plan.renames:
        progress(f"{_RENAMED}{rename.old} → {rename.new}")


def _tell_left_to_server(client: Client, plan: PlanView) -> None:
    """After Ctrl-C, print that the server completes the request. A local request ended with the command, so
    nothing is printed.
    """
    from cleveragents.api.client import HttpClient

    if isinstance(client, HttpClient):
        show = f"{_prefix()} plan show {plan.id}"
        progress(f"the server continues; check with `{show}`")


def print_applied(plan: PlanView) -> None:
    """Print where the result was applied, and how to undo it."""
    _tell_renames(plan)
    undo, done = f"undo with `{_prefix()} plan undo {plan.id}`", plan.last_apply
    files = len(plan.changes) if done is None else done.files  # a server of 0.1.0 does not report it
    if files:
        progress(f"applied to {counted(files, 'file')} of {plan.place}; {undo}")
    else:
        progress("your files already contain the result; nothing changed")
    if done is not None and done.commit is not None:
        progress(f"committed as {done.commit}")


def _tell_undone(before: PlanView, plan: PlanView) -> None:
    _tell_renames(plan)
    done = plan.last_apply
    files = len(before.changes) if done is None else done.files  # a server of 0.1.0 does not report it
    if files:
        progress(f"undone in {counted(files, 'file')} of {plan.place}")
    else:
        progress("your files no longer contain the result; nothing changed")
    commit = None if done is None else done.commit
    if commit is not None:
        progress(f"committed as {commit}")
    if (files or commit) and before.last_apply is not None and before.last_apply.commit is not None:
        also = "" if commit else "; only your files changed, commit them yourself"
        progress(f"commit {before.last_apply.commit} stays in the history{also}")


def _applied_by_another(
    client: Client,
    plan: PlanView,
    refused: PlanError | StalePlan,
    commit: str | None,
    to_branch: str | None,
) -> PlanView:
    """Return the plan if another process applies it or has applied it by now; otherwise raise `refused`."""
    now = client.plans.summary(plan.id)
    in_hand = now.state is PlanState.APPLIED or _is_being_applied(now) or _is_being_applied(plan)
    if plan.state is PlanState.APPLIED or not in_hand:
        raise refused
    if _is_being_applied(now):
        progress("another process applies the plan; waiting for it")
    ended = client.plans.wait(plan.id, timeout=_LONGEST_SECONDS)
    if ended.state is not PlanState.APPLIED:
        print_reason(ended)
        print_next_steps(ended, commit=commit, to_branch=to_branch)
        raise refused
    progress(f"another process has applied the plan; undo with `{_prefix()} plan undo {plan.id}`")
    if commit is not None:
        progress("not committed by this command; check `git log` for a commit of the other process")
    return ended


def _is_unchanged(plan: PlanView) -> bool:
    """Return whether the plan is done and has no change that could be applied or left out."""
    done = (plan.phase, plan.state) == (Phase.EXECUTE, PlanState.COMPLETE) and plan.parent is None
    kept = plan.sandbox is not None or not any(call.changed for call in plan.calls)
    known = kept and plan.out_of_reach is None and plan.review_problem is None
    return done and known and not plan.changes and not plan.left_out


def _is_being_applied(plan: PlanSummary | PlanView) -> bool:
    """Return whether a process applies the plan, or a queued job will. A plan with an error, such as an apply
    of unknown outcome, does not count.
    """
    has_result = plan.phase is Phase.APPLY or (plan.phase, plan.state) == (Phase.EXECUTE, PlanState.COMPLETE)
    return has_result and not plan.at_rest and plan.error is None


def _prefix() -> str:
    """Return the beginning of a command line that uses the same server: `agents`, or with `--server`."""
    return prefix_in(click.get_current_context())
