"""`agents plan rebase|resolve`: conflicts of a plan with the repository, and between its sub-plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.changes.model.merge_conflict import Take
from cleveragents.cli.output import Output, counted, format_option, printable, progress
from cleveragents.cli.plan.choose import chosen_plan, names_a_plan, optional_plan
from cleveragents.cli.plan.view import ensure_seen, print_plan, tree_option
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import PlanError, ToolRefused
from cleveragents.core.text.control_characters import named_by, shown
from cleveragents.plans.model.plan import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.views import PlanView

__all__ = ["blocking_lines", "other_side", "rebase_plan", "resolve_conflicts", "resolved_by"]

_SIDES = "current: the repository; proposed: this plan"


@click.command("rebase")
@optional_plan
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@format_option
@pass_session
def rebase_plan(session: Session, plan_id: str | None, yes: bool, output: Output) -> None:
    """Merge the result of a plan with the current files of its repository.

    Use it after an apply that failed because of a conflict. The merge is made in the sandbox; your files stay
    unchanged. Changes that do not overlap are merged. If both sides changed the same lines, the agent of the
    plan resolves the conflict; what stays open, you resolve with `agents plan resolve PLAN`. Then the checks
    run again, and the result is ready for review. `agents plan log PLAN` shows the rebase as a call, and
    `agents plan rollback` reverts it.

    \b
    Example:
      agents plan rebase 7QX2
      agents plan diff 7QX2
      agents plan apply 7QX2
    """
    from cleveragents.cli.plan.work import WorkOptions, continue_plan

    client, prefix = session.client(), prefix_of(session)
    plan = client.plans.get(chosen_plan(client, plan_id, "rebase"))

    def act() -> PlanView:
        return client.plans.rebase(plan.id)

    def tell(rebased: PlanView) -> None:
        if rebased.version == plan.version:
            progress(f"plan {plan.id} is already up to date: the repository has not changed")
        else:
            found = counted(len(rebased.conflicts), "conflict")
            then = f"{found} to resolve" if rebased.conflicts else "the checks run again"
            progress(f"plan {plan.id} is merged with the current files; {then}")

    continue_plan(WorkOptions(client, prefix, output, yes=yes), plan, act, tell=tell)


@click.command("resolve")
@optional_plan
@click.argument("paths", nargs=-1)
@click.option("--ours", "take", flag_value=Take.OURS.value, help="Take the side of the plan.")
@click.option(
    "--theirs",
    "take",
    flag_value=Take.THEIRS.value,
    help="Take the side of the repository or of the merged sub-plan.",
)
@click.option(
    "--edited", "take", flag_value=Take.EDITED.value, help="Take the file as you edited it in the sandbox."
)
@tree_option
@format_option
@pass_session
def resolve_conflicts(
    session: Session,
    plan_id: str | None,
    paths: tuple[str, ...],
    take: str | None,
    tree: str | None,
    output: Output,
) -> None:
    """Resolve conflicts of a plan with the repository, or between its sub-plans.

    Without PATHS, list the open conflicts with both sides. In a text file both sides are marked; --ours or
    --theirs takes a side of the marked lines only, and other changes of the file stay. --edited takes the
    file from the sandbox, without marks, and records all your edits there. Names with control characters are
    shown in quotes, and can be passed that way.

    After a failed apply, the first resolution merges the result with your current files, in the sandbox. To
    let the agent resolve the conflicts, run `agents plan rebase PLAN` instead. With --tree, nothing is
    resolved if the result has changed since, and the exit code is 3.

    \b
    Example:
      agents plan resolve 7QX2
      agents plan resolve 7QX2 src/shop.py --theirs
      agents plan resolve 7QX2 README.md docs/index.md --edited
    """
    client, prefix = session.client(), prefix_of(session)
    plans = client.plans
    if take is not None and plan_id is not None and not names_a_plan(plans, plan_id):
        paths, plan_id = (plan_id, *paths), None
    if bool(paths) != (take is not None) or (tree is not None and not paths):
        raise click.UsageError("pass PATHS together with --ours, --theirs or --edited")
    plan_id = chosen_plan(client, plan_id, "resolve")
    if take is None:
        _tell_conflicts(output, plans, plan_id, prefix)
        return
    plan = plans.get(plan_id)
    ensure_seen(plan, tree)
    for path in {named_by(path): path for path in paths}.values():
        plan = plans.resolve(plan.id, path, Take(take), version=plan.version, tree=plan.tree)
        number = max(call.number for call in plan.calls)
        progress(f"resolved, as call {number}: {shown(named_by(path))} ({take})")
    if plan.conflicts:
        left = counted(len(plan.conflicts), "conflict")
        progress(f"{left} left; list them with `{prefix} plan resolve {plan.id}`")
    else:
        onward = "apply" if plan.phase is Phase.APPLY else "resume"
        progress(f"no conflicts left; continue with `{prefix} plan {onward} {plan.id}`")
    print_plan(output, plan)


def _tell_conflicts(output: Output, plans: Plans, plan_id: str, prefix: str) -> None:
    from cleveragents.api.views import as_json, every

    found = [*every(lambda after: plans.conflicts(plan_id, after=after))]
    plan = plans.get(plan_id)
    if not found and plan.in_the_way is not None and not output.machine_readable:
        _tell_blocked(plan, prefix)
        return
    if output.machine_readable or not found:
        rows = [as_json(conflict) for conflict in found]
        output.table(rows, [], empty=f"plan {plan.id} has no open conflicts")
        return
    for conflict in found:
        sides = f"{conflict.ours.name} and {conflict.theirs.name}" if conflict.ours.name else conflict.title
        output.title(printable(f"{conflict.path}: {sides}"))
        for line in conflict.text.split("\n"):
            click.echo(printable(line))
    progress(f"the files are in {plan.sandbox}")
    sides = f"`{prefix} plan resolve {plan.id} PATH --ours`, `--theirs`"
    progress(f"{sides}, or `--edited` after you edited the files there")


def _tell_blocked(plan: PlanView, prefix: str) -> None:
    """Print the conflicts of a failed apply, and how to resolve them."""
    *lines, sides = blocking_lines(plan)
    for line in lines:
        click.echo(printable(line))
    progress(sides)
    if "rebase" not in plan.can:  # a server of 0.1.0, or the sandbox is gone
        progress(f"leave a file out, then apply the rest: `{prefix} plan review {plan.id} PATH`")
        return
    resolver = (
        "let the agent resolve the conflicts" if "revise" in plan.can else "resolve the conflicts yourself"
    )
    progress(f"merge both, and {resolver}: `{prefix} plan rebase {plan.id}`")
    progress(f"or take a side yourself: `{prefix} plan resolve {plan.id} PATH --ours` or `--theirs`")


def blocking_lines(plan: PlanView) -> list[str]:
    """Return the paths of the open conflicts; or, before a merge, the conflict that blocked the last apply,
    with both sides.
    """
    if plan.conflicts or plan.in_the_way is None:
        return [f"{conflict.path}: {conflict.kind}" for conflict in plan.conflicts]
    return [*(plan.in_the_way.details.splitlines() or plan.in_the_way.paths), _SIDES]


def other_side(plan: PlanView) -> str:
    """Return whose lines the plan conflicts with."""
    return "sub-plan" if any(conflict.sub_plan for conflict in plan.conflicts) else "repository"


def resolved_by(plans: Plans, plan: PlanView, take: Take, tell: Callable[[str], None]) -> PlanView:
    """Take one side of the conflicts that `blocking_lines` names, and return the plan. Conflicts that the
    merge with the current files adds stay open. Raises `StalePlan` or `ResultChanged` if the plan or its
    result has changed since, and `PlanError` if none of the named conflicts exists any more.
    """
    named = [one.path for one in plan.conflicts] or list(plan.in_the_way.paths if plan.in_the_way else ())
    resolved, is_merged = 0, bool(plan.conflicts)
    for path in dict.fromkeys(named):
        if is_merged and path not in {one.path for one in plan.conflicts}:
            continue  # the merge has no open conflict there
        try:
            plan = plans.resolve(plan.id, path, take, version=plan.version, tree=plan.tree)
        except ToolRefused:  # no conflict there any more
            continue
        is_merged = True
        resolved += 1
        tell(f"resolved: {printable(path)} ({take.value})")
    if not resolved:
        raise PlanError(plan.id, "the conflicts have changed since they were shown; look at them again")
    return plan
