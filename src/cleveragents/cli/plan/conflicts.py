"""`agents plan resolve`: resolve conflicts between the sub-plans of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.changes.model.merge_conflict import Take
from cleveragents.cli.output import Output, counted, format_option, printable, progress
from cleveragents.cli.plan.view import plan_argument, print_plan
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.text.control_characters import named_by, shown

if TYPE_CHECKING:
    from cleveragents.api.plans.client import Plans

__all__ = ["resolve_conflicts"]


@click.command("resolve")
@plan_argument
@click.argument("paths", nargs=-1)
@click.option("--ours", "take", flag_value=Take.OURS.value, help="Take the side of the plan.")
@click.option("--theirs", "take", flag_value=Take.THEIRS.value, help="Take the side of the merged sub-plan.")
@click.option(
    "--edited", "take", flag_value=Take.EDITED.value, help="Take the file as you edited it in the sandbox."
)
@format_option
@pass_session
def resolve_conflicts(
    session: Session, plan_id: str, paths: tuple[str, ...], take: str | None, output: Output
) -> None:
    """Resolve conflicts between the sub-plans of a plan.

    Without PATHS, list the open conflicts with both sides. In a text file both sides are marked; --ours or
    --theirs takes a side of the marked lines only, and other changes of the file stay. --edited takes the
    file from the sandbox, without marks, and records all your edits there. Names with control characters are
    shown in quotes, and can be passed that way. After the last conflict, run `agents plan resume PLAN`.

    \b
    Example:
      agents plan resolve 7QX2
      agents plan resolve 7QX2 src/shop.py --theirs
      agents plan resolve 7QX2 README.md docs/index.md --edited
    """
    if bool(paths) != (take is not None):
        raise click.UsageError("pass PATHS together with --ours, --theirs or --edited")
    plans, prefix = session.client().plans, prefix_of(session)
    if take is None:
        _tell_conflicts(output, plans, plan_id, prefix)
        return
    plan = plans.get(plan_id)
    for path in {named_by(path): path for path in paths}.values():
        plan = plans.resolve(plan.id, path, Take(take))
        number = max(call.number for call in plan.calls)
        progress(f"resolved, as call {number}: {shown(named_by(path))} ({take})")
    if plan.conflicts:
        left = counted(len(plan.conflicts), "conflict")
        progress(f"{left} left; list them with `{prefix} plan resolve {plan.id}`")
    else:
        progress(f"no conflicts left; continue with `{prefix} plan resume {plan.id}`")
    print_plan(output, plan)


def _tell_conflicts(output: Output, plans: Plans, plan_id: str, prefix: str) -> None:
    from cleveragents.api.views import as_json, every

    found = [*every(lambda after: plans.conflicts(plan_id, after=after))]
    plan = plans.get(plan_id)
    if output.machine_readable or not found:
        rows = [as_json(conflict) for conflict in found]
        output.table(rows, [], empty=f"plan {plan.id} has no open conflicts")
        return
    for conflict in found:
        output.title(printable(f"{conflict.path}, merging: {conflict.title}"))
        for line in conflict.text.split("\n"):
            click.echo(printable(line))
    progress(f"the files are in {plan.sandbox}")
    sides = f"`{prefix} plan resolve {plan.id} PATH --ours`, `--theirs`"
    progress(f"{sides}, or `--edited` after an edit there")
