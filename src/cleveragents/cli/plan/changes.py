"""`agents plan diff|review|capture|rollback`: the changes of a plan, and which of them to apply."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, NoReturn

import click

from cleveragents.api.format import printable_name
from cleveragents.cli.output import Output, counted, format_option, printable, progress
from cleveragents.cli.plan.choose import (
    chosen_plan,
    chosen_version,
    ids_to_decide,
    nothing_to_decide,
    optional_plan,
    plan_and_number,
)
from cleveragents.cli.plan.exit_codes import NEEDS_HUMAN
from cleveragents.cli.plan.view import print_next_steps, print_plan, shown_diff, summary_of
from cleveragents.cli.prompts import ensure_confirmed
from cleveragents.cli.render.remedies import command_line
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import OptionValue, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleveragents.api.client import Client
    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.detail_views import FileDiffView, HunkView
    from cleveragents.api.plans.views import ChangeView, PlanView

__all__ = ["capture_plan", "diff_of_plan", "review_plan", "rollback_plan"]

_NOTHING_YET = "no changes yet: the plan is running, and changes are recorded at the end of each step"
_OUTCOME = re.compile(r"(?P<plan>[^@]+)(?:@(?P<number>[0-9]{1,9}))?")
_MARKS = {"context": " ", "add": "+", "remove": "-"}
_VERSION = 6
"""Characters of a hunk's id in its name."""
_SIGNS = 50
"""Maximum number of signs that `--stat` draws for a file."""


@click.command("diff")
@optional_plan
@click.argument("paths", nargs=-1)
@click.option("--stat", is_flag=True, help="Show only the number of changed lines per file.")
@click.option("--name-only", is_flag=True, help="Show only the names of changed files.")
@click.option("--hunks", is_flag=True, help="List the hunks with their names, those left out included.")
@click.option(
    "--between",
    nargs=2,
    metavar="A B",
    help="Compare two results: PLAN (now) or PLAN@N (before its N-th correction).",
)
@format_option
@pass_session
def diff_of_plan(
    session: Session,
    plan_id: str | None,
    paths: tuple[str, ...],
    stat: bool,
    name_only: bool,
    hunks: bool,
    between: tuple[str, str] | None,
    output: Output,
) -> None:
    """Show the changes of a plan, as they would be applied.

    Changes that the review left out are not shown. In a pipe, the output is a patch for `git apply`. PATHS
    are files and directories relative to the root of the repository. JSON lists the files, their numbers of
    lines, and the object names of their contents before and after; with --hunks, also their hunks. Without
    PLAN, the only result here is shown.

    \b
    Example:
      agents plan diff 7QX2
      agents plan diff 7QX2 --stat src/
      agents plan diff 7QX2 --hunks
      agents plan diff 7QX2 | git apply --check
      agents plan diff --between 7QX2@1 7QX2
    """
    if stat + name_only + hunks + (hunks and between is not None) > 1:
        raise click.UsageError(
            "--stat, --name-only and --hunks exclude each other; --between cannot be combined with --hunks"
        )
    client = session.client()
    plans = client.plans
    if hunks:
        _show_hunks(plans, chosen_plan(client, plan_id, "diff"), paths, output)
        return
    if between is not None:
        # No plan is named, so all arguments are paths.
        found = _compared(plans, between, paths if plan_id is None else (plan_id, *paths))
    else:
        found = _changed(plans, chosen_plan(client, plan_id, "diff"), paths, prefix_of(session))
    if output.machine_readable:
        from cleveragents.api.views import as_json

        output.table([as_json(change) for change in found.changes], [], empty="")
    elif not found.changes:
        progress(found.nothing)
    elif name_only:
        shown_diff("".join(f"{change.path}\n" for change in found.changes).encode())
    else:
        shown_diff(_statistics(found.changes).encode() if stat else found.patch())
        if found.apply and not stat and sys.stdout.isatty():
            progress(f"apply exactly this result with `{found.apply}`")


@dataclass(frozen=True, slots=True)
class _Difference:
    """The changed files, their patch, the message if there are none, and the command that applies only this
    result.
    """

    changes: Sequence[ChangeView]
    patch: Callable[[], bytes]
    nothing: str = ""
    apply: str | None = None


def _changed(plans: Plans, plan_id: str, paths: Sequence[str], prefix: str) -> _Difference:
    plan = plans.get(plan_id)
    found = _meant(plan.changes, paths)
    nothing = "" if found else _nothing(plans, plan, paths, prefix)
    # The tree was read before the patch: if the result changes in between, the apply is refused.
    bound = plan.tree is not None and "apply" in plan.can and not paths
    apply = command_line(Remedy("plan.apply", plan.id, {"tree": plan.tree}), prefix) if bound else None
    return _Difference(found, partial(plans.patch, plan.id, paths=paths, renames=True), nothing, apply)


def _meant(changes: Sequence[ChangeView], paths: Sequence[str]) -> list[ChangeView]:
    from cleveragents.api.plans.review import is_selected

    names = [printable_name(path) for path in paths]
    return [change for change in changes if is_selected(change.path, names)]


def _nothing(plans: Plans, plan: PlanView, paths: Sequence[str], prefix: str) -> str:
    """Return the message for a plan without changes to show, with the reason. Raises `PlanError` or
    `NeedsHuman` if changes cannot be shown.
    """
    left_out = [file for file in plans.diff(plan.id).files if not file.accepted]
    if plan.state.running:
        return _NOTHING_YET
    if _meant(left_out, paths):
        what = "every change at these paths" if paths else "every change"
        return f"{what} is left out; include it with `{prefix} plan review {plan.id} --accept …`"
    return f"no changes{' at these paths' if paths else ''}"


def _compared(plans: Plans, between: tuple[str, str], paths: Sequence[str]) -> _Difference:
    (one, before), (other, other_before) = (_outcome(name) for name in between)
    sides = {"before": before, "other_before": other_before}
    found = plans.compare(one, other, **sides)
    if found.note is not None:
        progress(printable(found.note))
    if found.truncated:
        progress(f"only the first {counted(len(found.files), 'differing file')} are listed")
    nothing = "no differences at these paths" if paths else "no differences"
    patch = partial(plans.compare_patch, one, other, **sides, paths=paths, renames=True)
    return _Difference(_meant(found.files, paths), patch, nothing)


def _outcome(name: str) -> tuple[str, int | None]:
    """Return the plan and the correction that a text names. `PLAN` is the current result, without a
    correction; `PLAN@2` is the result before the second correction.
    """
    spelt = _OUTCOME.fullmatch(name)
    if spelt is None:
        raise click.UsageError(f"{name!r} is not PLAN or PLAN@NUMBER")
    return spelt["plan"], None if spelt["number"] is None else int(spelt["number"])


def _statistics(changes: Sequence[ChangeView]) -> str:
    """Return the number of changed lines in each file, drawn as git does."""
    width = max(len(change.path) for change in changes)
    most = max((change.added or 0) + (change.removed or 0) for change in changes)
    lines = []
    for change in changes:
        added, removed = (_signs(count or 0, most) for count in (change.added, change.removed))
        drawn = f"{added * '+'}{removed * '-'}"
        size = f"{(change.added or 0) + (change.removed or 0):>{len(str(most))}} {drawn}".rstrip()
        lines.append(f" {change.path.ljust(width)} | {'Bin' if change.added is None else size}")
    plus, minus = sum(change.added or 0 for change in changes), sum(change.removed or 0 for change in changes)
    totals = [f"{counted(len(changes), 'file')} changed"]
    totals += [f"{counted(plus, 'insertion')}(+)"] if plus else []
    totals += [f"{counted(minus, 'deletion')}(-)"] if minus else []
    return "\n".join([*lines, f" {', '.join(totals)}\n"])


def _signs(count: int, most: int) -> int:
    """Return the number of `+` or `-` signs for `count` lines; at least one if there is any line."""
    return count if most <= _SIGNS else ceil(count * _SIGNS / most)


@click.command("review")
@optional_plan
@click.argument("paths", nargs=-1)
@click.option(
    "--reject/--accept", "reject", default=True, help="Leave the files out (default), or include them again."
)
@click.option("--changeset", "changesets", multiple=True, metavar="ID", help="A changeset; see `plan log`.")
@click.option(
    "--reject-hunk", "rejected", multiple=True, metavar="HUNK", help="Leave a hunk out; see `diff --hunks`."
)
@click.option("--accept-hunk", "accepted", multiple=True, metavar="HUNK", help="Include a hunk again.")
@format_option
@pass_session
def review_plan(
    session: Session,
    plan_id: str | None,
    paths: tuple[str, ...],
    reject: bool,
    changesets: tuple[str, ...],
    rejected: tuple[str, ...],
    accepted: tuple[str, ...],
    output: Output,
) -> None:
    """Decide about plans, or leave files, hunks or changesets out of the apply.

    Without PLAN, go through all plans of this repository that need you, one after another, with one key per
    decision: approve, deny, answer, apply, discard, continue or skip. With PLAN only, decide about that plan.

    With PATHS, leave these files out of the apply, or include them again. PATHS are those of
    `agents plan diff --name-only`; a directory stands for all changes below it.

    With --reject-hunk or --accept-hunk, leave a hunk out or include it again. HUNK is its name in
    `agents plan diff PLAN --hunks`, such as src/export.py:2@9f2b71. The name ends with the version that you
    saw: if the file has changed since, the command refuses it. If the file changes afterwards, decide again
    before the apply.

    \b
    Example:
      agents plan review
      agents plan review 7QX2 --reject-hunk src/export.py:2@9f2b71
      agents plan review 7QX2 src/generated.py
      agents plan review 7QX2 --accept src/generated.py
      agents plan review 7QX2 --changeset 01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C
    """
    client = session.client()
    plans, again = client.plans, ""
    if plan_id is None or not (paths or changesets or rejected or accepted):
        if changesets or rejected or accepted:
            raise click.UsageError("--changeset, --reject-hunk and --accept-hunk need a PLAN")
        _decide(session, client, plan_id, output)
        return
    if rejected or accepted:
        if paths or changesets:
            raise click.UsageError("pass hunks without PATHS and --changeset")
        _review_hunks(plans, plan_id, rejected, accepted, output)
        return
    if reject:
        plan = plans.review(plan_id, reject=paths, reject_changesets=changesets)
        files = _named(plan.left_out, paths)
        again = f"; include again with `{prefix_of(session)} plan review {plan.id} --accept …`"
    else:
        plan = plans.review(plan_id, accept=paths, accept_changesets=changesets)
        files = _named([change.path for change in plan.changes], paths)
    for name in (*files, *changesets):
        progress(f"{'left out' if reject else 'included'}: {name}{again}")
    progress(f"to be applied: {summary_of(plan) if plan.changes else 'nothing'}")
    print_plan(output, plan)


def _review_hunks(
    plans: Plans, plan_id: str, rejected: Sequence[str], accepted: Sequence[str], output: Output
) -> None:
    rejected, accepted = ([name.removeprefix("./") for name in names] for names in (rejected, accepted))
    hunks = [(file, hunk) for file in plans.diff(plan_id).files for hunk in file.hunks]
    ids = {_hunk_name(file, hunk): hunk.id for file, hunk in hunks}
    numbers = {f"{file.path}:{hunk.number}" for file, hunk in hunks}
    for name in (*rejected, *accepted):
        if name not in ids:
            _refuse_hunk(name, numbers, plan_id)
        if ids[name] is None:
            raise click.UsageError(f"{printable(name)} is a whole file; pass its path to leave the file out")
    chosen = {name: str(hunk) for name, hunk in ids.items()}
    plan = plans.review(
        plan_id,
        reject_hunks=[chosen[name] for name in rejected],
        accept_hunks=[chosen[name] for name in accepted],
    )
    for name in rejected:
        progress(f"left out: hunk {name}")
    for name in accepted:
        progress(f"included: hunk {name}")
    progress(f"to be applied: {summary_of(plan) if plan.changes else 'nothing'}")
    print_plan(output, plan)


def _hunk_name(file: FileDiffView, hunk: HunkView) -> str:
    """Return the name of a hunk: its path, its number, and the version of the file, which is part of its
    id.
    """
    version = "" if hunk.id is None else f"@{hunk.id[:_VERSION]}"
    return f"{file.path}:{hunk.number}{version}"


def _refuse_hunk(name: str, numbers: Collection[str], plan_id: str) -> NoReturn:
    """Raise `click.UsageError` for a name that no current hunk has."""
    said, show = printable(name), f"`agents plan diff {plan_id} --hunks`"
    if name in numbers:
        raise click.UsageError(f"{said} has no version; pass the full name of the hunk, as {show} prints it")
    if name.rpartition("@")[0] in numbers:  # guard: a verdict is on the hunk that was seen
        raise click.UsageError(f"{said} has changed since; list the present hunks with {show}")
    raise click.UsageError(f"no hunk {said!r}; list the hunks with {show}")


def _show_hunks(plans: Plans, plan_id: str, paths: Sequence[str], output: Output) -> None:
    """Print the diff with the number of each hunk, those left out included."""
    from cleveragents.api.plans.review import is_selected
    from cleveragents.api.views import as_json

    names = [printable_name(path) for path in paths]
    files = [file for file in plans.diff(plan_id).files if is_selected(file.path, names)]
    if output.machine_readable or not files:
        output.table([as_json(file) for file in files], [], empty="no changes")
    else:
        shown_diff(_numbered(files).encode())


def _numbered(files: Sequence[FileDiffView]) -> str:
    lines: list[str] = []
    for file in files:
        if file.binary or file.truncated or not file.hunks:
            why = "binary" if file.binary else "too large to show" if file.truncated else "no changed lines"
            lines.append(f"{file.path} ({why}){'' if file.accepted else ': left out'}")
        for hunk in file.hunks:
            lines.append(f"{_hunk_name(file, hunk)}{'' if hunk.accepted else ': left out'}")
            lines.append(hunk.header)
            lines += [f"{_MARKS[line.kind]}{line.text}" for line in hunk.lines]
    return "".join(f"{printable(line)}\n" for line in lines)


def _decide(session: Session, client: Client, plan_id: str | None, output: Output) -> None:
    """Ask for decisions about the plan, or about all plans here that need a person. Without a terminal, print
    the next steps of a plan that needs one and exit with 3.
    """
    from cleveragents.cli.plan.work import WorkOptions, interactive

    named = None if plan_id is None else client.plans.summary(plan_id)
    if named is not None and named.state.ended:
        progress(f"nothing is left to decide: the plan is {named.status.value}")
        return
    if named is not None and not interactive():
        if named.needs is None:
            progress(f"nothing to decide: {named.meaning}")
            return
        progress("no terminal to ask in; decide with one of these commands:")
        print_next_steps(client.plans.get(named.id))
        raise click.exceptions.Exit(NEEDS_HUMAN)
    found = ids_to_decide(client) if named is None else [named.id]
    if not found:
        progress(nothing_to_decide(client, prefix_of(session)))
        return
    from cleveragents.cli.plan.decide_all import decide_all

    decide_all(WorkOptions(client, prefix_of(session), output), found)


def _named(files: Sequence[str], paths: Sequence[str]) -> Sequence[str]:
    """Return the changed files that these paths select; if there are none, the paths themselves."""
    from cleveragents.api.plans.review import is_selected

    names = [printable_name(path) for path in paths]
    return [file for file in files if names and is_selected(file, names)] or names


@click.command("capture")
@optional_plan
@format_option
@pass_session
def capture_plan(session: Session, plan_id: str | None, output: Output) -> None:
    """Record your edits in a plan's sandbox.

    Find the sandbox with `agents plan show PLAN`. Your edits there are recorded as one call.

    \b
    Example:
      agents plan capture 7QX2
    """
    from cleveragents.plans.history import REREAD

    client = session.client()
    plans = client.plans
    before = plans.get(chosen_plan(client, plan_id, "capture"))
    plan = plans.capture(before.id)
    known = {call.number for call in before.calls}
    recorded = [call.number for call in plan.calls if call.tool == REREAD and call.number not in known]
    if not recorded:
        progress("no edits")
    else:
        progress(f"recorded the edits as call {recorded[-1]}: {summary_of(plan)} in total")
        if plan.broken_invariant is not None:
            back = f"revert them with `{prefix_of(session)} plan rollback {plan.id} {recorded[-1]}`"
            progress(f"warning: {plan.broken_invariant}; {back}")
    print_plan(output, plan)


@click.command("rollback")
@optional_plan
@click.argument("checkpoint", type=click.IntRange(1), required=False)
@click.option("--yes", is_flag=True, help="Discard edits by hand without asking.")
@format_option
@pass_session
def rollback_plan(
    session: Session, plan_id: str | None, checkpoint: int | None, yes: bool, output: Output
) -> None:
    """Roll a plan back, or withdraw a revision.

    The checkpoint is the number of a call in `agents plan log PLAN`: this call and all later ones are
    reverted in the sandbox. Your own files stay as they are. `agents plan resume PLAN` repeats these calls,
    except captured edits.

    Without a checkpoint, a revision that failed or did not pass the required checks is withdrawn: the result
    from before it is ready again, and `agents plan apply PLAN` applies it.

    Edits by hand in the sandbox are lost, after a confirmation. A rollback to a checkpoint keeps edits that
    `agents plan capture PLAN` recorded before it; a withdrawal keeps none since the revision.

    \b
    Example:
      agents plan rollback 7QX2 3
      agents plan rollback 7QX2
    """
    client = session.client()
    plan_id, checkpoint = plan_and_number(plan_id, checkpoint)
    question = "Withdraw its revision?" if checkpoint is None else "Roll it back?"
    plan_id, version = chosen_version(client, plan_id, "rollback", question=question)
    if version is None:
        version = client.plans.summary(plan_id).version
    rollback = partial(client.plans.rollback, plan_id, checkpoint, version=version)
    plan = _rolled_back(rollback, checkpoint, yes=yes)
    if checkpoint is None:
        progress(f"returned to the result from before the revision: {summary_of(plan)}")
        print_plan(output, plan)
        return
    number = max(call.number for call in plan.calls)
    progress(f"rolled back to checkpoint {checkpoint}, recorded as call {number}: {summary_of(plan)}")
    if "resume" in plan.can:  # captured edits are not repeated
        progress(f"repeat the calls from {checkpoint} on with `{prefix_of(session)} plan resume {plan.id}`")
    print_plan(output, plan)


def _rolled_back(rollback: Callable[..., PlanView], checkpoint: int | None, *, yes: bool) -> PlanView:
    """Roll the plan back. Edits by hand are discarded only after a confirmation; without a terminal, raises
    `NeedsHuman`.
    """
    from cleveragents.cli.plan.work import interactive
    from cleveragents.core.errors import NeedsHuman, SandboxRefused, ServerFailed

    try:
        return rollback()
    except NeedsHuman as error:
        # The remedy is to capture or discard the edits; other errors of this kind are not about edits.
        if not any(remedy.action in ("plan.reread", "plan.rollback") for remedy in error.remedies):
            raise
        if yes:
            progress(f"discarded: {error.what}")
        elif interactive():
            ensure_confirmed(f"{error.what}. Discard?")
        else:
            if checkpoint is None:
                raise
            options: dict[str, OptionValue] = {"discard": True, "checkpoint": checkpoint}
            discard = Remedy("plan.rollback", error.plan_id, options, "Discard the edits")
            raise NeedsHuman(error.plan_id, error.what, (*error.remedies, discard)) from None
    except (SandboxRefused, ServerFailed):  # the edits are unknown; a server of 0.1.0 has no remedies
        if not yes:
            raise
    return rollback(discard=True)
