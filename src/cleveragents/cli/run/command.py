"""`agents run`: plans from goals or an action, worked on here and now, or in the background."""

from __future__ import annotations

import click

from cleveragents.cli.budget_options import budget_options
from cleveragents.cli.output import Output, format_option
from cleveragents.cli.session import Session, pass_session
from cleveragents.models.model.budget import Limits

__all__ = ["run"]


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="GOAL | -- ARGUMENTS…")
@click.option("--model", metavar="PROVIDER/NAME", help="The model that thinks (models.default).")
@click.option(
    "--actor", metavar="NAME_OR_FILE", help="Who does all of it, instead of the usual three actors."
)
@budget_options
@click.option("--action", metavar="NAME", help="An action instead of a goal; see `agents action list`.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument of the action.")
@click.option(
    "--check", "checks", multiple=True, metavar="COMMAND", help="Must pass on the result; may be repeated."
)
@click.option(
    "--invariant",
    "invariants",
    multiple=True,
    metavar="TEXT",
    help="Must hold: 'never touch migrations/'; may be repeated.",
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
@click.option(
    "-f", "--file", "file", metavar="FILE", help="Several goals: one to a line, or a .yaml; - reads stdin."
)
@click.option("--parallel", type=click.IntRange(1, 64), metavar="N", help="At most so many plans at once.")
@click.option("--background", is_flag=True, help="Return at once; `agents plan watch` follows it.")
@click.option("--here", is_flag=True, help="In this terminal, though a server runs that would take it.")
@click.option("--plan", "going_on", multiple=True, hidden=True, help="Plans that are made already.")
@format_option
@pass_session
def run(
    session: Session,
    words: tuple[str, ...],
    action: str | None,
    pairs: tuple[str, ...],
    checks: tuple[str, ...],
    invariants: tuple[str, ...],
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
    file: str | None,
    parallel: int | None,
    background: bool,
    here: bool,
    going_on: tuple[str, ...],
    output: Output,
) -> None:
    """Reach a goal, or run an action, as a plan: sandboxed, reviewed, applied or not.

    Your files are not touched until you say so. What the plan changed is shown as a diff; on a terminal you
    are asked whether to apply it, elsewhere the exit code is 3. With --review nobody is asked, and the exit
    code is 0. `agents plan apply` does it later.

    \b
    Example:
      agents run "Add a --json flag to the export command" --check "pytest -q" --max-usd 0.50
      agents run -f goals.txt --parallel 8
      agents run -f goals.yaml --check "make test"
      agents run --action builtin/command -- sed -i s/colour/color/ README.md
      agents run --action builtin/replace --arg pattern=colour --arg replacement=color --yes
    """
    from cleveragents.api.plans.requests import Wanted
    from cleveragents.cli.actor_file import runnable_name
    from cleveragents.cli.run.plans import Handling, go_on_with, run_new

    handling = Handling(yes, only_review, message, file, parallel, background, here)
    if going_on:
        go_on_with(session.container(), going_on, handling, output)
        return
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
        actor=actor and runnable_name(session, actor),
        model=model,
        limits=limits,
        invariants=invariants,
        parallel=parallel,
    )
    run_new(session.container(), wanted, handling, output)
