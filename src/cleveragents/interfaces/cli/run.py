"""`agents run`: a plan from an action, worked on here and now."""

from __future__ import annotations

import click

from cleveragents.domain.budget import Limits
from cleveragents.interfaces.cli.budget_options import budget_options
from cleveragents.interfaces.cli.output import Output, format_option
from cleveragents.interfaces.cli.session import Session, pass_session

__all__ = ["run"]


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="GOAL | -- ARGUMENTS…")
@click.option("--model", metavar="PROVIDER/NAME", help="The model that thinks (models.default).")
@click.option("--actor", metavar="NAME", help="The actor that does all of it, instead of the usual three.")
@budget_options
@click.option("--action", metavar="NAME", help="An action instead of a goal; see `agents action list`.")
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
    model: str | None,
    actor: str | None,
    limits: Limits,
    output: Output,
) -> None:
    """Reach a goal, or run an action, as a plan: sandboxed, reviewed, applied or not.

    Your files are not touched until you say so. What the plan changed is shown as a diff; on a terminal you
    are asked whether to apply it, elsewhere the exit code is 3 and `agents plan apply` does it later.

    \b
    Example:
      agents run "Add a --json flag to the export command" --check "pytest -q" --max-usd 0.50
      agents run --action builtin/command -- sed -i s/colour/color/ README.md
      agents run --action builtin/replace --arg pattern=colour --arg replacement=color --yes
    """
    from cleveragents.application.ports.applies import CommitRequest
    from cleveragents.interfaces.cli.plan_account import told_plan
    from cleveragents.interfaces.cli.plan_work import decide, work_on
    from cleveragents.interfaces.cli.run_request import Wanted, requested_plan

    if yes and only_review:
        raise click.UsageError("--yes applies the result, --review leaves it; say one of them")
    container = session.container()
    parts = container.plan_parts
    wanted = Wanted(
        action=action,
        words=words,
        pairs=pairs,
        checks=checks,
        profile=profile,
        from_head=start == "HEAD",
        include=include,
        goal=goal,
        commit=message is not None,
        actor=actor,
        model=model,
        limits=limits,
    )
    # What is wrong with it is told before the database is opened.
    request = requested_plan(parts, wanted)
    parts.apply.settle()
    commit = None if message is None else CommitRequest(message)
    plan = work_on(container, parts.lifecycle.create(request), output)
    try:
        plan = decide(container, plan, yes=yes, commit=commit, only_review=only_review, output=output)
    finally:
        told_plan(output, parts, parts.plans.get(plan.id))
