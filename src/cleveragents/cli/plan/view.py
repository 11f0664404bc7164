"""Plans as the command line shows them, and how a plan is named on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.meanings import what_it_waits_for
from cleveragents.api.plans.next_steps import steps_from
from cleveragents.cli.output import Styled, ansi, colour, continued, progress, write
from cleveragents.cli.render.narrow import steps_in_lines
from cleveragents.cli.render.remedies import step_pairs
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.apply.ports import CommitRequest
    from cleveragents.plans.model.plan import Plan

__all__ = ["plan_argument", "shown_diff", "to_branch_option", "told_next", "told_reason"]

_HEADER = Styled("", bold=True)
_HUNK = {"+": Styled("", fg="green"), "-": Styled("", fg="red"), "@": Styled("", fg="cyan")}

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
    for line in continued(error) if error else ():
        progress(line)


def told_next(parts: PlanParts, plan: Plan, commit: CommitRequest | None = None) -> None:
    """What can be done with the plan, on stderr."""
    for line in steps_in_lines(step_pairs(steps_from(parts, plan, commit)), sys.stderr):
        progress(line)


def shown_diff(text: bytes) -> None:
    """Write a diff that git made without colours to stdout.

    A pipe gets its bytes. A terminal gets it coloured and with control characters escaped, through a pager
    where it is longer than the terminal.
    """
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        return
    lines = text.decode("utf-8", "backslashreplace").split("\n")
    pieces = [piece for line in _coloured(lines) for piece in (line, "\n")][:-1]
    if len(lines) <= _height():
        write(*pieces, end="")
    else:
        # A pager gets escaped text: nothing guards what it writes to the terminal.
        click.echo_via_pager("".join(map(ansi, pieces)), color=colour())


def _coloured(lines: Sequence[str]) -> Iterator[str | Styled]:
    """Style the lines of a patch as git does; others, as of a list of names, have no style."""
    styles: Mapping[str, Styled] = {}
    header = False
    for line in lines:
        if line.startswith("diff --git "):
            header = True
        elif line == "GIT binary patch":
            header, styles = False, {}
        elif line.startswith("@@ ") and (header or styles):
            header, styles = False, _HUNK
        style = _HEADER if header else styles.get(line[:1])
        yield line if style is None else style._replace(text=line)


def _height() -> int:
    import shutil

    return shutil.get_terminal_size().lines - 1
