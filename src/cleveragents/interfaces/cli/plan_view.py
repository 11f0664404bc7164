"""Plans as the command line shows them, and how a plan is named on it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cleveragents.domain.plan import PlanState
from cleveragents.domain.redaction import redact_text
from cleveragents.interfaces.cli.narrow import steps_in_lines
from cleveragents.interfaces.cli.output import colour, progress
from cleveragents.interfaces.desk.meanings import what_it_waits_for
from cleveragents.interfaces.desk.next_steps import steps_from

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.application.ports.applies import CommitRequest
    from cleveragents.domain.plan import Plan

__all__ = ["diff_options", "plan_argument", "shown_diff", "to_branch_option", "told_next", "told_reason"]

plan_argument = click.argument("plan_id", metavar="PLAN")

to_branch_option = click.option(
    "--to-branch",
    metavar="NAME",
    help="Of a git remote: push the result to this new branch; {plan} in it stands for the plan's id.",
)


def told_reason(plan: Plan) -> None:
    """Why the plan stands where it does, on stderr, if it has a reason."""
    error = None if plan.error is None else redact_text(plan.error)
    if plan.state is PlanState.WAITING:
        error = f"it waits: {what_it_waits_for(plan)}"
    elif error is not None and plan.state is PlanState.ERRORED:
        error = f"it failed: {error}"
    for line in (error or "").splitlines():
        progress(line)


def told_next(parts: PlanParts, plan: Plan, commit: CommitRequest | None = None) -> None:
    """What can be done with the plan, on stderr."""
    for line in steps_in_lines(steps_from(parts, plan, commit), sys.stderr):
        progress(line)


def diff_options() -> list[str]:
    """How git is to write a whole difference to where stdout goes: a patch, with colours for eyes."""
    coloured = sys.stdout.isatty() and colour() is None
    return ["--binary", "--color=always"] if coloured else ["--binary"]


def shown_diff(text: bytes) -> None:
    """A difference on stdout; through a pager where it is longer than the terminal."""
    # The bytes as they are: a difference is often given to another program.
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        return
    shown = text.decode("utf-8", "backslashreplace")
    if len(shown.splitlines()) < _height():
        click.echo(shown, nl=False, color=colour())
    else:
        click.echo_via_pager(shown, color=colour())


def _height() -> int:
    import shutil

    return shutil.get_terminal_size().lines - 1
