"""Apply a result from the command line, on this machine or through a server.

Whether a result can be applied is the client's to say. What prevents it is shown, with what can be done about
it, before the error is raised.

Two may well apply the same plan. One of them applies it, and for the other it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.cli.client.selection import prefix_in
from cleveragents.cli.output import counted, progress
from cleveragents.cli.plan.view import tell_hints, tell_next, tell_reason
from cleveragents.core.errors import ApplyConflict, CheckFailed, Conflict, PlanError, ServerFailed, StalePlan
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleveragents.api.client import Client
    from cleveragents.api.plans.views import PlanSummary, PlanView

__all__ = ["apply_now", "ensure_checked", "lines_of", "once_applied_elsewhere", "tell_left_to_server"]

# Its checks may take long.
_LONGEST_SECONDS = 3600.0
_RENAMED = "followed a rename: "


def apply_now(
    client: Client, plan: PlanView, *, commit: str | None = None, to_branch: str | None = None
) -> PlanView:
    """Return the plan, applied, be it by another process meanwhile.

    A plan that changed nothing is returned as it is. What prevents the apply is shown before it is raised:
    `ApplyConflict`, `CheckFailed`, `ApplyRefused`, `PlanError` …
    """
    if _is_unchanged(plan):
        progress("nothing was changed, so there is nothing to apply")
        ensure_checked(plan)
        return plan
    try:
        applied = client.plans.apply(plan.id, commit=commit, to_branch=to_branch, progress=lines_of(plan))
    except (PlanError, StalePlan) as refused:
        return _applied_by_another(client, plan, refused, commit, to_branch)
    except (Conflict, ServerFailed) as refused:
        now = client.plans.get(plan.id)
        if isinstance(refused, ApplyConflict):
            for line in refused.details.splitlines():
                progress(line)
        tell_hints(now)
        tell_next(now, commit=commit, to_branch=to_branch)
        raise
    except KeyboardInterrupt:
        tell_left_to_server(client, plan)
        raise
    _tell_applied(applied)
    return applied


def once_applied_elsewhere(client: Client, plan: PlanView, commit: str | None = None) -> PlanView:
    """Return the plan; if another process applies it, once that is done.

    `StalePlan` if the other did not apply it either, with what can be done now. That another process works on
    it in any other way is said, and no more.
    """
    if _is_being_applied(plan):
        return _applied_by_another(client, plan, StalePlan(plan.id, 0), commit, None)
    if plan.state.running:
        progress("another process works on it now")
    return plan


def ensure_checked(plan: PlanView) -> None:
    """`CheckFailed` if a required check of the result did not pass."""
    for check in plan.checks:
        if check.required and not check.passed:
            said = "passed on other files" if check.verdict == "passed" else check.verdict
            raise CheckFailed(plan.id, check.name, f"did not pass ({said})")


def lines_of(plan: PlanView) -> Callable[[str], None]:
    """Return what shows the progress of an apply or an undo, but for what is said at its end anyway: by the
    error, or by `tell_renames`."""
    last = f"plan {plan.id} was not ", _RENAMED
    return lambda line: None if line.startswith(last) else progress(line)


def tell_renames(plan: PlanView) -> None:
    """Which renames the last apply or undo followed, on stderr."""
    for rename in plan.renames:
        progress(f"{_RENAMED}{rename.old} → {rename.new}")


def tell_left_to_server(client: Client, plan: PlanView) -> None:
    """After Ctrl-C: what a server was asked for, it does. Here it ended with the command."""
    from cleveragents.api.client import HttpClient

    if isinstance(client, HttpClient):
        show = f"{_prefix()} plan show {plan.id}"
        progress(f"the server goes on with it; `{show}` says where it stands")


def _tell_applied(plan: PlanView) -> None:
    tell_renames(plan)
    undo, done = f"`{_prefix()} plan undo {plan.id}` takes it back", plan.last_apply
    files = len(plan.changes) if done is None else done.files  # a server of 0.1.0 does not say it
    if files:
        progress(f"applied to {counted(files, 'file')} of {plan.place}; {undo}")
    else:
        progress("your files have it already; nothing was changed")
    if done is not None and done.commit is not None:
        progress(f"committed as {done.commit}")


def _applied_by_another(
    client: Client,
    plan: PlanView,
    refused: PlanError | StalePlan,
    commit: str | None,
    to_branch: str | None,
) -> PlanView:
    """Return the plan, if another process applies it, or has since it was looked at; else raise `refused`."""
    now = client.plans.summary(plan.id)
    in_hand = now.state is PlanState.APPLIED or _is_being_applied(now) or _is_being_applied(plan)
    if plan.state is PlanState.APPLIED or not in_hand:
        raise refused
    if _is_being_applied(now):
        progress("another process applies it now; waiting for that")
    ended = client.plans.wait(plan.id, timeout=_LONGEST_SECONDS)
    if ended.state is not PlanState.APPLIED:
        tell_reason(ended)
        tell_next(ended, commit=commit, to_branch=to_branch)
        raise refused
    progress(f"another process has applied it; `{_prefix()} plan undo {plan.id}` takes it back")
    if commit is not None:
        progress("it was not committed by this one; whether the other did, `git log` says")
    return ended


def _is_unchanged(plan: PlanView) -> bool:
    """Whether it is done, and changed nothing that could be applied or left out."""
    done = (plan.phase, plan.state) == (Phase.EXECUTE, PlanState.COMPLETE) and plan.parent is None
    kept = plan.sandbox is not None or not any(call.changed for call in plan.calls)
    known = kept and plan.out_of_reach is None and plan.review_problem is None
    return done and known and not plan.changes and not plan.left_out


def _is_being_applied(plan: PlanSummary | PlanView) -> bool:
    """Whether somebody applies it, or a job is to. One that nobody can say that of has an error."""
    has_result = plan.phase is Phase.APPLY or (plan.phase, plan.state) == (Phase.EXECUTE, PlanState.COMPLETE)
    return has_result and not plan.at_rest and plan.error is None


def _prefix() -> str:
    """How a command begins that goes the same way as this one."""
    return prefix_in(click.get_current_context())
