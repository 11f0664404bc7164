"""`agents plan diff|review|reread|rollback`: what a plan changed, and which of it counts."""

from __future__ import annotations

import sys

import click

from cleveragents.domain.json_value import JsonValue
from cleveragents.interfaces.cli.output import Output, colour, format_option, progress
from cleveragents.interfaces.cli.plan_view import found_plan, plan_argument, shown_diff, summary_of, told_plan
from cleveragents.interfaces.cli.session import Session, pass_session

__all__ = ["diff_of_plan", "reread_plan", "review_plan", "rollback_plan"]


@click.command("diff")
@plan_argument
@click.argument("paths", nargs=-1)
@click.option("--stat", is_flag=True, help="Only how much changed in each file.")
@click.option("--name-only", is_flag=True, help="Only the names of changed files.")
@format_option
@pass_session
def diff_of_plan(
    session: Session, plan_id: str, paths: tuple[str, ...], stat: bool, name_only: bool, output: Output
) -> None:
    """Show what a plan changed, as it would be applied.

    It is computed from what was recorded, less what the review left out. In a pipe it is a patch that
    `git apply` takes.

    \b
    Example:
      agents plan diff 7QX2
      agents plan diff 7QX2 --stat src/
      agents plan diff 7QX2 --format json
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    sandbox = parts.sandboxes.open(plan.id)
    if output.for_programs:
        states = parts.result.states(plan, sandbox)
        base = sandbox.base_states(states)
        rows: list[dict[str, JsonValue]] = [
            {
                "path": path,
                "change": _change(base[path] is not None, states[path] is not None),
                "before": _state(base[path]),
                "after": _state(states[path]),
            }
            for path in sorted(states)
        ]
        output.table(rows, [], empty="")
        return
    options = ["--binary"]
    if stat:
        options = ["--stat"]
    elif name_only:
        options = ["--name-only"]
    elif sys.stdout.isatty() and colour() is None:
        options.append("--color=always")
    text = parts.result.diff(plan, sandbox, options=options, paths=paths)
    if not text:
        progress("nothing was changed")
    shown_diff(text)


@click.command("review")
@plan_argument
@click.argument("paths", nargs=-1)
@click.option("--reject/--accept", "reject", default=True, help="Leave these out, or take them in again.")
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
    """Accept or leave out files and changesets of a plan before it is applied.

    \b
    Example:
      agents plan review 7QX2 --reject src/generated.py
      agents plan review 7QX2 --accept src/generated.py
      agents plan review 7QX2 --reject --changeset 01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C
    """
    from cleveragents.domain.review import ReviewKind
    from cleveragents.errors import PlanError

    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    if not paths and not changesets:
        raise click.UsageError("name files, or changesets with --changeset")
    if plan.state.running or plan.state.ended:
        raise PlanError(plan.id, f"it is {plan.state.value}; what is not yet applied can be reviewed")
    for path in paths:
        parts.result.review(plan, ReviewKind.PATH, path, accepted=not reject)
    for changeset in changesets:
        parts.result.review(plan, ReviewKind.CHANGESET, changeset, accepted=not reject)
    progress(f"to be applied: {summary_of(parts, plan)}")
    told_plan(output, plan)


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
    call = parts.rewriting.reread(plan)
    progress("nothing was edited" if call is None else f"recorded as call {call.number}")
    told_plan(output, plan)


@click.command("rollback")
@plan_argument
@click.argument("checkpoint", type=click.IntRange(1))
@format_option
@pass_session
def rollback_plan(session: Session, plan_id: str, checkpoint: int, output: Output) -> None:
    """Take a plan's sandbox back to a checkpoint.

    The checkpoint is the number of a call in `agents plan log PLAN`: that call and all later ones are taken
    back. Your own files are not touched. `agents plan resume PLAN` makes those calls again.

    \b
    Example:
      agents plan rollback 7QX2 3
    """
    parts = session.container().plan_parts
    plan = found_plan(parts, plan_id)
    call = parts.rewriting.rollback(plan, checkpoint)
    progress(f"back at checkpoint {checkpoint}; recorded as call {call.number}")
    told_plan(output, plan)


def _change(before: bool, after: bool) -> str:
    if not before:
        return "created"
    return "changed" if after else "deleted"


def _state(state: object) -> JsonValue:
    from cleveragents.domain.file_state import FileState

    return {"mode": f"{state.mode:o}", "content": state.content} if isinstance(state, FileState) else None
