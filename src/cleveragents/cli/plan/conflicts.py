"""`agents plan resolve`: what is to become of the conflicts that came of merging a plan's sub-plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import found_plan
from cleveragents.api.plans.changes import conflict_with_sides
from cleveragents.api.reach import ensure_reachable
from cleveragents.changes.model.merge_conflict import KeptConflict, Take
from cleveragents.cli.output import Output, counted, format_option, printable, progress
from cleveragents.cli.plan.account import told_plan
from cleveragents.cli.plan.view import plan_argument
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.text.control_characters import named_by

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.plans.model.plan import Plan

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
    container = session.container()
    plan = found_plan(container.plan_parts, plan_id)
    ensure_reachable(container.plan_parts, plan)
    if take is None:
        _told_conflicts(output, container, plan)
        return
    _resolve(container, plan, paths, Take(take))
    left = container.plan_parts.merging.open_conflicts(plan.id)
    progress(_what_is_left(plan, left))
    told_plan(output, container.plan_parts, plan)


def _resolve(container: Container, plan: Plan, paths: Sequence[str], take: Take) -> None:
    from cleveragents.app.merge_parts import conflicts_by_hand

    by_hand = conflicts_by_hand(container)
    for path in {named_by(path): path for path in paths}.values():
        call = by_hand.resolve(plan, path, take)
        progress(f"resolved, as call {call.number}: {call.arguments['path']} ({take.value})")


def _what_is_left(plan: Plan, left: Sequence[KeptConflict]) -> str:
    if left:
        return f"{counted(len(left), 'conflict')} left; `agents plan resolve {plan.id}` shows them"
    return f"no conflict is left; `agents plan resume {plan.id}` goes on"


def _told_conflicts(output: Output, container: Container, plan: Plan) -> None:
    from cleveragents.plans.conflicts.resolution import conflict_in_words

    found = container.plan_parts.merging.open_conflicts(plan.id)
    sandbox = container.plan_parts.sandboxes.open(plan.id) if found else None
    if output.for_programs or sandbox is None:
        rows = [conflict_with_sides(conflict, sandbox) for conflict in found if sandbox is not None]
        output.table(rows, [], empty=f"plan {plan.id} has no open conflict")
        return
    for conflict in found:
        output.title(printable(f"{conflict.shown_path}, merging: {conflict.title}"))
        for line in conflict_in_words(conflict, sandbox.content).split("\n")[1:]:
            click.echo(printable(line))
    progress(f"its files are in {sandbox.root}")
    progress(
        f"`agents plan resolve {plan.id} PATH --ours`, `--theirs`, or `--edited` after you edited it there"
    )
