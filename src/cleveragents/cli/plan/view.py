"""Plans as the command line prints and names them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from cleveragents.api.format import on_one_line
from cleveragents.cli.completion import complete_plan
from cleveragents.cli.output import Output, Styled, ansi, colour, continued, progress, write
from cleveragents.cli.render.narrow_terminal import steps_in_lines
from cleveragents.cli.render.remedies import step_pairs
from cleveragents.core.errors import CleverAgentsError, NotAuthenticated, ResultChanged, ServerUnreachable
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.plans.summary import PlanSummary
    from cleveragents.api.plans.views import PlanView
    from cleveragents.core.errors import Remedy
    from cleveragents.core.json_value import JsonValue

__all__ = [
    "DRAFTED",
    "ReportedPlan",
    "change_lines",
    "commit_option",
    "ensure_seen",
    "next_steps",
    "plan_argument",
    "plan_in_json",
    "print_changes",
    "print_hints",
    "print_next_steps",
    "print_not_applied",
    "print_plan",
    "print_reason",
    "printed_at_end",
    "shown_diff",
    "summary_of",
    "to_branch_option",
    "tree_option",
]

Row = dict[str, "JsonValue"]

_SHOWN_FILES = 20
_HEADER = Styled("", bold=True)
_HUNK = {"+": Styled("", fg="green"), "-": Styled("", fg="red"), "@": Styled("", fg="cyan")}

plan_argument = click.argument("plan_id", metavar="PLAN", shell_complete=complete_plan)

DRAFTED = ""
"""The value of `--commit` without a message: it is drafted from the goal."""

commit_option = click.option(
    "--commit",
    "message",
    metavar="[MESSAGE]",
    is_flag=False,
    flag_value=DRAFTED,
    help=("Commit the applied result with this message; if omitted, with a message drafted from the goal."),
)

to_branch_option = click.option(
    "--to-branch",
    metavar="NAME",
    help="Push the result to this new branch of the git remote; {plan} stands for the plan id.",
)

tree_option = click.option(
    "--tree",
    metavar="TREE",
    help="Refuse any other result than this one: the `tree` of `agents plan show --format json`.",
)


def ensure_seen(plan: PlanView, tree: str | None) -> None:
    """Raise `ResultChanged` if the user named the result that was seen, and the plan has another one."""
    if tree not in (None, plan.tree):
        raise ResultChanged(plan.id)


def print_plan(output: Output, plan: PlanView) -> None:
    """Print a plan: all fields for programs, a few lines for people.

    People also get the answer of a plan that changed nothing, unless the live view has just printed it.
    """
    from cleveragents.cli.render.live_view import is_on_screen

    if output.machine_readable:
        output.record(plan_in_json(plan))
    else:
        _tell_briefly(output, plan)
        if plan.status is PlanStatus.UNCHANGED and plan.answer and not is_on_screen(plan.answer):
            click.echo()
            output.markdown(redact_text(plan.answer))


def _tell_briefly(output: Output, plan: PlanView | PlanSummary) -> None:
    output.record({"plan": plan.id, "goal": on_one_line(plan.goal), "status": plan.meaning})


@dataclass(slots=True)
class ReportedPlan:
    """The plan to print at the end of the block. If `plan` is not set by then, the plan is fetched."""

    plan_id: str
    plan: PlanView | None = None


@contextmanager
def printed_at_end(client: Client, output: Output, plan_id: str) -> Iterator[ReportedPlan]:
    """Print the plan at the end of the block, however the block ends. If the server is lost, print how to
    follow the plan later.
    """
    from cleveragents.api.client import HttpClient

    told = ReportedPlan(plan_id)
    try:
        yield told
    except (NotAuthenticated, ServerUnreachable) as lost:
        if isinstance(client, HttpClient):
            _tell_how_to_follow(told.plan_id, lost)
        raise
    except BaseException as ended:
        if isinstance(client, HttpClient) and _is_interruption(ended):
            # After Ctrl-C, do not wait for a server that may be gone.
            with suppress(CleverAgentsError), client.http.without_patience():
                _tell_now(client, output, told.plan_id)
        else:
            _tell_now(client, output, told.plan_id)
        raise
    if told.plan is None:
        _tell_now(client, output, told.plan_id)
    else:
        print_plan(output, told.plan)


def _tell_how_to_follow(plan_id: str, lost: NotAuthenticated | ServerUnreachable) -> None:
    from cleveragents.cli.servers import prefix_in

    again = "the server answers" if isinstance(lost, ServerUnreachable) else "you have logged in again"
    watch = f"{prefix_in(click.get_current_context())} plan watch {plan_id}"
    progress(f"the plan continues without this connection; once {again}, follow it with `{watch}`")


def _is_interruption(ended: BaseException) -> bool:
    from cleveragents.cli.plan.exit_codes import INTERRUPTED

    if isinstance(ended, click.exceptions.Exit):
        return ended.exit_code == INTERRUPTED
    return isinstance(ended, (KeyboardInterrupt, click.Abort))


def _tell_now(client: Client, output: Output, plan_id: str) -> None:
    """Fetch the plan and print it; people get its summary."""
    if output.machine_readable:
        print_plan(output, client.plans.get(plan_id))
    else:
        _tell_briefly(output, client.plans.summary(plan_id))


def plan_in_json(plan: PlanView) -> dict[str, JsonValue]:
    """Return the JSON of a plan. Without a model call, `spending` is empty."""
    from cleveragents.api.views import as_json

    said = as_json(plan)
    return said if plan.spending.model_calls is not None else {**said, "spending": {}}


def print_reason(plan: PlanView) -> None:
    """Print on stderr why the plan waits or has failed, if it does either."""
    reason = plan.error
    if plan.state is PlanState.WAITING:
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        reason = f"waiting: {waiting.get('what') or plan.meaning}"
    elif reason and plan.state is PlanState.ERRORED:
        reason = f"failed: {reason}"
    for line in continued(reason) if reason else ():
        progress(line)


def print_hints(plan: PlanView) -> None:
    """Print hints about the failure of the plan on stderr."""
    for hint in plan.hints:
        progress(f"hint: {hint}")


def print_next_steps(plan: PlanView, *, commit: str | None = None, to_branch: str | None = None) -> None:
    """Print the next steps of the plan on stderr.

    If `commit` or `to_branch` was requested, it is added to the command that applies the plan.
    """
    for line in steps_in_lines(next_steps(plan, commit=commit, to_branch=to_branch), sys.stderr):
        progress(line)


def next_steps(
    plan: PlanView, *, commit: str | None = None, to_branch: str | None = None
) -> list[tuple[str, str]]:
    """Return the next commands, each with its description. They use the same machine or server as this
    command.
    """
    from cleveragents.cli.local_only import goes_to_server
    from cleveragents.cli.servers import prefix_in

    context = click.get_current_context()
    steps = [_with_commit(step, commit, to_branch) for step in plan.steps]
    if goes_to_server(context):  # the files of the server are not those of the user
        steps = [replace(step, text=step.text.replace("your files", plan.place)) for step in steps]
    return step_pairs(steps, prefix_in(context))


def _with_commit(step: Remedy, commit: str | None, to_branch: str | None) -> Remedy:
    if step.action != "plan.apply":
        return step
    asked = {"commit": True if commit == DRAFTED else commit, "to_branch": to_branch}
    return replace(step, options={**step.options, **{name: said for name, said in asked.items() if said}})


def print_changes(plan: PlanView) -> bool:
    """Print the changed files and the checks that did not pass on stderr. Return whether any file changed."""
    from cleveragents.api.views import as_json

    said = as_json(plan)
    _print_changed_files(said["changes"], _not_applied(plan), said["checks"])
    return bool(plan.changes)


def change_lines(plan: PlanView) -> list[str]:
    """Return the first changed files of a plan as lines, the number of files and lines in all, and which
    files an apply leaves out.
    """
    from cleveragents.api.views import as_json

    return [*_change_lines(as_json(plan)["changes"]), *_not_applied(plan)]


def _change_lines(changes: Sequence[Row]) -> list[str]:
    from cleveragents.api.plans.changes import changes_text, lines_of

    shown = changes[:_SHOWN_FILES]
    width = max((len(lines_of(row)) for row in shown), default=0)
    lines = [f"  {row['change']}  {lines_of(row).ljust(width)}  {row['path']}" for row in shown]
    lines += [f"  … and {len(changes) - _SHOWN_FILES} more"] if len(changes) > _SHOWN_FILES else []
    return [*lines, changes_text(changes)]


def summary_of(plan: PlanView) -> str:
    """Return the number of files and lines that an apply would change, as text."""
    from cleveragents.api.plans.changes import changes_text
    from cleveragents.api.views import as_json

    return changes_text(as_json(plan)["changes"])


def _print_changed_files(changes: Sequence[Row], sentences: Sequence[str], checks: Sequence[Row]) -> None:
    """Print the changed files, sentences about them, and the checks that did not pass on stderr."""
    from cleveragents.api.plans.details import has_passed, verdict_text

    for line in _change_lines(changes):
        progress(line)
    for sentence in sentences:
        progress(sentence)
    for check in checks:
        if not has_passed(check):
            weight = "required before apply" if check["required"] else "informational"
            progress(f"check {check['name']}: {verdict_text(check)} ({weight})")


def print_not_applied(plan: PlanView) -> None:
    """Print on stderr which parts the result lacks, and which files an apply leaves out."""
    for sentence in _not_applied(plan):
        progress(sentence)


def _not_applied(plan: PlanView) -> list[str]:
    from cleveragents.api.plans.changes import unapplied_text
    from cleveragents.plans.sub_plans.messages import left_out_message
    from cleveragents.sandboxes.ports import Unapplied

    lacks = left_out_message([(part.name, part.why) for part in plan.parts_left_out])
    unapplied = Unapplied(plan.ignored, plan.nested_repositories, plan.removed_submodules)
    return [*([lacks] if lacks else []), *unapplied_text(unapplied, checked=bool(plan.checks))]


def shown_diff(text: bytes) -> None:
    """Write an uncoloured diff of git to stdout.

    A pipe gets the bytes unchanged. On a terminal, the diff is coloured, control characters are escaped, and
    a pager is used if the diff is longer than the terminal.
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
        # The pager gets escaped text, because its output to the terminal is not filtered.
        click.echo_via_pager("".join(map(ansi, pieces)), color=colour())


def _coloured(lines: Sequence[str]) -> Iterator[str | Styled]:
    """Style the lines of a patch as git does; lines of other lists have no style."""
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
