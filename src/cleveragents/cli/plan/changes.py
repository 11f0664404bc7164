"""`agents plan diff|review|reread|rollback`: what a plan changed, and which of it counts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import found_plan
from cleveragents.api.plans.changes import changed_files, changes_of, summary_of
from cleveragents.api.plans.remains import ensure_diffable
from cleveragents.api.plans.reviewing import ensure_reviewable, is_meant, review_files
from cleveragents.api.reach import ensure_reachable
from cleveragents.cli.asking import ensure_confirmed
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.plan.account import told_plan
from cleveragents.cli.plan.view import plan_argument, shown_diff
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors.remedy import Remedy

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "NOTHING_YET",
    "diff_of_plan",
    "nothing_to_show",
    "reread_plan",
    "review_plan",
    "rollback_plan",
]

NOTHING_YET = "nothing yet: it still runs, and what a step changes is recorded when the step ends"


@click.command("diff")
@click.argument("plan_id", metavar="PLAN", required=False)
@click.argument("paths", nargs=-1)
@click.option("--stat", is_flag=True, help="Only how much changed in each file.")
@click.option("--name-only", is_flag=True, help="Only the names of changed files.")
@click.option(
    "--between",
    nargs=2,
    metavar="A B",
    help="Compare two outcomes: PLAN now, or PLAN@N before its N-th correction.",
)
@format_option
@pass_session
def diff_of_plan(
    session: Session,
    plan_id: str | None,
    paths: tuple[str, ...],
    stat: bool,
    name_only: bool,
    between: tuple[str, str] | None,
    output: Output,
) -> None:
    """Show what a plan changed, as it would be applied.

    It is computed from what was recorded, less what the review left out. In a pipe it is a patch that
    `git apply` takes. PATHS are files and directories, from the root of the repository; JSON tells which
    files, how many lines, and their content's names before and after.

    \b
    Example:
      agents plan diff 7QX2
      agents plan diff 7QX2 --stat src/
      agents plan diff 7QX2 | git apply --check
      agents plan diff --between 7QX2@1 7QX2
    """
    if stat and name_only:
        raise click.UsageError("--stat and --name-only exclude each other")
    parts = session.container().plan_parts
    if between is not None:
        from cleveragents.cli.plan.between import show_between

        # There is no plan to name, so whatever else is said is a path.
        named = paths if plan_id is None else (plan_id, *paths)
        show_between(parts, output, between, named, _options(stat, name_only))
        return
    if plan_id is None:
        raise click.UsageError("name a PLAN, or two outcomes with --between")
    plan = found_plan(parts, plan_id)
    ensure_diffable(parts, plan)
    ensure_reachable(parts, plan)
    if output.for_programs:
        rows = [row for row in changes_of(parts, plan) if is_meant(str(row["path"]), paths)]
        output.table(rows, [], empty="")
        return
    text = b""
    if parts.history.changes(plan.id):
        sandbox = parts.sandboxes.open(plan.id)
        text = parts.result.diff(plan, sandbox, options=_options(stat, name_only), paths=paths)
    if not text:
        progress(_nothing(parts, plan, paths))
    shown_diff(text)


def _nothing(parts: PlanParts, plan: Plan, paths: Sequence[str]) -> str:
    if plan.state.running:
        return NOTHING_YET
    left_out = any(is_meant(str(row["path"]), paths) for row in changed_files(parts, plan))
    return nothing_to_show(paths, left_out=left_out, review=f"agents plan review {plan.id}")


def nothing_to_show(paths: Sequence[str], *, left_out: bool, review: str) -> str:
    """Why a plan has no difference, or none at these paths; `review` is how that command begins."""
    if left_out:
        what = "all of that" if paths else "all that it changed"
        return f"{what} is left out; `{review} --accept …` takes it in again"
    return f"nothing {'of that ' if paths else ''}was changed"


@click.command("review")
@plan_argument
@click.argument("paths", nargs=-1)
@click.option(
    "--reject/--accept", "reject", default=True, help="Leave these out (the default), or take them in again."
)
@click.option("--changeset", "changesets", multiple=True, metavar="ID", help="A changeset; see `plan log`.")
@format_option
@pass_session
def review_plan(
    session: Session,
    plan_id: str,
    paths: tuple[str, ...],
    reject: bool,
    changesets: tuple[str, ...],
    output: Output,
) -> None:
    """Leave files or changesets of a plan out before it is applied, or take them in again.

    PATHS are written as `agents plan diff --name-only` shows them; a directory stands for all that was
    changed below it.

    \b
    Example:
      agents plan review 7QX2 src/generated.py
      agents plan review 7QX2 --accept src/generated.py
      agents plan review 7QX2 --changeset 01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    if not paths and not changesets:
        raise click.UsageError("name files, or changesets with --changeset")
    ensure_reviewable(parts, plan)
    verdicts = [(path, not reject) for path in paths]
    files = review_files(parts, plan, verdicts, [(one, not reject) for one in changesets])
    for name in (*files, *changesets):
        again = "" if not reject else f"; `agents plan review {plan.id} --accept …` takes it in again"
        progress(f"{'left out' if reject else 'taken in'}: {name}{again}")
    progress(f"to be applied: {summary_of(parts, plan) if changes_of(parts, plan) else 'nothing'}")
    told_plan(output, parts, plan)


@click.command("reread")
@plan_argument
@format_option
@pass_session
def reread_plan(session: Session, plan_id: str, output: Output) -> None:
    """Take in what you edited in a plan's sandbox.

    `agents plan show PLAN` says where the sandbox is. What you change there is recorded as yours.

    \b
    Example:
      agents plan reread 7QX2
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    ensure_reachable(parts, plan)
    call = parts.rewriting.reread(plan)
    if call is None:
        progress("nothing was edited")
    else:
        progress(f"your edits are recorded as call {call.number}: {summary_of(parts, plan)} in all")
        broken = _broken(parts, plan)
        if broken is not None:
            progress(f"mind that {broken}; `agents plan rollback {plan.id} {call.number}` takes them back")
    told_plan(output, parts, plan)


def _broken(parts: PlanParts, plan: Plan) -> str | None:
    """Which invariant the result breaks by now. Who edits by hand may do that, and not know that it was not
    their hand: a program that the plan had started may have changed the files, too."""
    from cleveragents.core.actions.model import broken_by
    from cleveragents.plans.model.strategy import Strategy

    if plan.strategy is None:
        return None
    return broken_by(Strategy.from_json(plan.strategy).invariants, parts.history.states(plan.id))


@click.command("rollback")
@plan_argument
@click.argument("checkpoint", type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Throw edits by hand away without asking.")
@format_option
@pass_session
def rollback_plan(session: Session, plan_id: str, checkpoint: int, yes: bool, output: Output) -> None:
    """Take a plan's sandbox back to a checkpoint.

    The checkpoint is the number of a call in `agents plan log PLAN`: that call and all later ones are taken
    back. Your own files are not touched. `agents plan resume PLAN` makes those calls again.

    Files that you edited in the sandbox are thrown away, too, if you confirm it; `agents plan reread PLAN`
    takes them in instead.

    \b
    Example:
      agents plan rollback 7QX2 3
    """
    from cleveragents.cli.plan.work import interactive
    from cleveragents.core.errors import NeedsHuman

    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    ensure_reachable(parts, plan)
    if yes:
        _tell_discarded(parts, plan)
    try:
        call = parts.rewriting.rollback(plan, checkpoint, discard=yes)
    except NeedsHuman as edits:
        if not interactive():
            options = {"discard": True, "checkpoint": checkpoint}
            discard = Remedy("plan.rollback", plan.id, options, "Throw it away")
            raise NeedsHuman(plan.id, edits.what, (*edits.remedies, discard)) from None
        ensure_confirmed(f"{edits.what}. Throw it away?")
        call = parts.rewriting.rollback(plan, checkpoint, discard=True)
    progress(f"back at checkpoint {checkpoint}, recorded as call {call.number}: {summary_of(parts, plan)}")
    progress(f"`agents plan resume {plan.id}` makes the calls from {checkpoint} on again")
    told_plan(output, parts, plan)


def _tell_discarded(parts: PlanParts, plan: Plan) -> None:
    """Which edits a rollback throws away; one is wanted even where they cannot be told."""
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.plans.history import named

    with suppress(SandboxRefused):
        edited = parts.history.unrecorded(plan.id, parts.sandboxes.open(plan.id))
        if edited:
            progress(f"thrown away, as it is not recorded: {named(edited)}")


def _options(stat: bool, name_only: bool) -> list[str]:
    if stat:
        return ["--stat", "--no-color"]
    return ["--name-only"] if name_only else ["--binary", "--no-color"]
