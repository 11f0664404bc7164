"""`agents plan resolve`: what is to become of the conflicts that came of merging a plan's sub-plans."""

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
@click.option("--ours", "take", flag_value=Take.OURS.value, help="Take what the plan itself had.")
@click.option("--theirs", "take", flag_value=Take.THEIRS.value, help="Take what the merged sub-plan had.")
@click.option(
    "--edited", "take", flag_value=Take.EDITED.value, help="Take what you made of it in the sandbox."
)
@format_option
@pass_session
def resolve_conflicts(
    session: Session, plan_id: str, paths: tuple[str, ...], take: str | None, output: Output
) -> None:
    """Say what is to become of the conflicts in a plan whose sub-plans disagree.

    Without PATHS it lists those that are open, with both sides. In text, both sides are marked in the file,
    and --ours or --theirs takes a side in the marked places only; what else was changed in the file stays.
    With --edited the file counts as it is in the sandbox, without marks; all that you edited there is taken
    in. A name with line breaks and the like is shown, and can be given, in quotes with these spelt out. When
    none is left, `agents plan resume PLAN` goes on.

    \b
    Example:
      agents plan resolve 7QX2
      agents plan resolve 7QX2 src/shop.py --theirs
      agents plan resolve 7QX2 README.md docs/index.md --edited
    """
    if bool(paths) != (take is not None):
        raise click.UsageError("name PATHS together with one of --ours, --theirs and --edited")
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
        progress(f"{left} left; `{prefix} plan resolve {plan.id}` shows them")
    else:
        progress(f"no conflict is left; `{prefix} plan resume {plan.id}` goes on")
    print_plan(output, plan)


def _tell_conflicts(output: Output, plans: Plans, plan_id: str, prefix: str) -> None:
    from cleveragents.api.views import as_json, every

    found = [*every(lambda after: plans.conflicts(plan_id, after=after))]
    plan = plans.get(plan_id)
    if output.machine_readable or not found:
        rows = [as_json(conflict) for conflict in found]
        output.table(rows, [], empty=f"plan {plan.id} has no open conflict")
        return
    for conflict in found:
        output.title(printable(f"{conflict.path}, merging: {conflict.title}"))
        for line in conflict.text.split("\n"):
            click.echo(printable(line))
    progress(f"its files are in {plan.sandbox}")
    sides = f"`{prefix} plan resolve {plan.id} PATH --ours`, `--theirs`"
    progress(f"{sides}, or `--edited` after you edited it there")
