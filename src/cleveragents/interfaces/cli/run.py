"""`agents run`: a plan from an action, worked on here and now."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.interfaces.cli.output import Output, format_option
from cleveragents.interfaces.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.plan import Plan

__all__ = ["run"]


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS…]")
@click.option("--action", metavar="NAME", help="What to do; `agents action list` shows what there is.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument of the action.")
@click.option(
    "--check", "checks", multiple=True, metavar="COMMAND", help="Must pass on the result; may be repeated."
)
@click.option("--profile", metavar="NAME", help="What the plan may do by itself (plan.profile).")
@click.option(
    "--from",
    "start",
    type=click.Choice(["tree", "HEAD"]),
    default="tree",
    show_default=True,
    help="Start from your files as they are, or from what is committed.",
)
@click.option("--include", multiple=True, metavar="PATTERN", help="Ignored files to bring along.")
@click.option("--goal", metavar="TEXT", help="What it is for, in your words; kept with the plan.")
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@click.option("--commit", "message", metavar="MESSAGE", help="When applied, commit it with this message.")
@click.option("--review", "only_review", is_flag=True, help="Stop before Apply, whatever the profile says.")
@format_option
@pass_session
def run(
    session: Session,
    words: tuple[str, ...],
    action: str | None,
    pairs: tuple[str, ...],
    checks: tuple[str, ...],
    profile: str | None,
    start: str,
    include: tuple[str, ...],
    goal: str | None,
    yes: bool,
    message: str | None,
    only_review: bool,
    output: Output,
) -> None:
    """Run an action as a plan: sandboxed, reviewed, applied or not.

    Your files are not touched until you say so. What the plan changed is shown as a diff; on a terminal you
    are asked whether to apply it, elsewhere the exit code is 3 and `agents plan apply` does it later.

    \b
    Example:
      agents run --action builtin/command -- sed -i s/colour/color/ README.md
      agents run --action builtin/replace --arg pattern=colour --arg replacement=color --yes
    """
    from cleveragents.application.ports.applies import CommitRequest
    from cleveragents.interfaces.cli.plan_account import told_plan
    from cleveragents.interfaces.cli.plan_work import decide, work_on

    container = session.container()
    parts = container.plan_parts
    parts.apply.settle()
    if yes and only_review:
        raise click.UsageError("--yes applies the result, --review leaves it; say one of them")
    wanted = Wanted(
        action, words, pairs, checks, profile, start == "HEAD", include, goal, message is not None
    )
    plan = _created(parts, wanted)
    commit = None if message is None else CommitRequest(message)
    plan = work_on(container, plan)
    try:
        plan = decide(container, plan, yes=yes, commit=commit, only_review=only_review)
    finally:
        told_plan(output, parts, parts.plans.get(plan.id))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    action: str | None
    words: tuple[str, ...]
    pairs: tuple[str, ...]
    checks: tuple[str, ...]
    profile: str | None
    from_head: bool
    include: tuple[str, ...]
    goal: str | None
    commit: bool


def _created(parts: PlanParts, wanted: Wanted) -> Plan:
    """The plan, queued; everything that can be wrong with the request is found before it exists."""
    from cleveragents.application.ports.plans import NewPlan
    from cleveragents.domain.json_value import freeze, thaw
    from cleveragents.domain.policy import profile
    from cleveragents.infrastructure.sandbox.resources import find_resource, is_repository

    if wanted.action is None:
        raise click.UsageError(
            "name what to do: `agents run --action builtin/command -- COMMAND`; "
            "`agents action list` shows the actions there are"
        )
    root, prefix = find_resource(Path.cwd())
    if wanted.commit and not is_repository(root):
        raise click.UsageError(f"{root} is not a git repository, so there is nothing to --commit to")
    action = parts.action_named(wanted.action, str(root))
    arguments = action.parse(wanted.pairs, wanted.words)
    action.render(arguments)
    name = profile(wanted.profile or parts.default_profile).name
    request = freeze(
        {
            "arguments": thaw(arguments),
            "checks": list(wanted.checks),
            "profile": name,
            "from_head": wanted.from_head,
            "include": list(wanted.include),
            "directory": prefix,
        }
    )
    given = shlex.join([*wanted.pairs, *wanted.words])
    goal = wanted.goal or ": ".join(filter(None, [action.name.removeprefix("builtin/"), given]))
    assert isinstance(request, Mapping)
    return parts.lifecycle.create(NewPlan(goal, action.name, str(root), request))
