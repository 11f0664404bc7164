"""`agents run`: plans from goals or an action, worked on here and now, or in the background."""

from __future__ import annotations

import click

from cleveragents.cli.budget_options import budget_options
from cleveragents.cli.local_only import LocalOption, ServerOption
from cleveragents.cli.output import Output, format_option
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.models.model.budget import BudgetLimits

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
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Ignored files to bring along.",
    cls=LocalOption,
    reason="the files of this machine stay here; say --server local for them",
)
@click.option("--goal", metavar="TEXT", help="What it is for, in your words; kept with the plan.")
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@click.option("--commit", "message", metavar="MESSAGE", help="When applied, commit it with this message.")
@click.option("--review", "only_review", is_flag=True, help="Stop before Apply, whatever the profile says.")
@click.option(
    "-f", "--file", "file", metavar="FILE", help="Several goals: one to a line, or a .yaml; - reads stdin."
)
@click.option("--parallel", type=click.IntRange(1, 64), metavar="N", help="At most so many plans at once.")
@click.option("--background", is_flag=True, help="Return at once; `agents plan watch` follows it.")
@click.option(
    "--here",
    is_flag=True,
    help="In this terminal, though a server runs that would take it.",
    cls=LocalOption,
    reason="say --server local to run it in this terminal",
)
@click.option(
    "--resource",
    metavar="NAME",
    help="What a server works on; else the one that is the repository you are in.",
    cls=ServerOption,
)
@click.option(
    "--to-branch",
    metavar="NAME",
    help="Of a git remote of a server: the result is pushed to this new branch; {plan} in it stands for the "
    "plan's id.",
    cls=ServerOption,
)
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
    limits: BudgetLimits,
    file: str | None,
    parallel: int | None,
    background: bool,
    here: bool,
    resource: str | None,
    to_branch: str | None,
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
    from cleveragents.api.client import LocalClient
    from cleveragents.api.plans.create import PlanSpec
    from cleveragents.cli.actor_file import runnable_name
    from cleveragents.cli.plan.work import WorkOptions
    from cleveragents.cli.run.plans import RunOptions, continue_plans, run_new

    client, prefix = session.client(), prefix_of(session)
    is_here = isinstance(client, LocalClient)
    handling = RunOptions(
        yes, only_review, message, file, parallel, background, here, resource=resource, to_branch=to_branch
    )
    deciding = WorkOptions(client, prefix, output, yes, only_review, message, parallel)
    if going_on:
        if not isinstance(client, LocalClient):
            raise click.UsageError("--plan cannot go through a server")
        continue_plans(client, going_on, deciding)
        return
    wanted = PlanSpec(
        action=action,
        words=words,
        pairs=pairs,
        checks=checks,
        profile=profile,
        from_head=start == "HEAD",
        include=include,
        goal=goal,
        commit=message is not None,
        actor=runnable_name(session, actor) if actor and is_here else actor,
        model=model,
        limits=limits,
        invariants=invariants,
        parallel=parallel,
    )
    run_new(client, wanted, handling, deciding)
