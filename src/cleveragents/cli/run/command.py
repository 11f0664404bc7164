"""`agents run`: plans from goals or an action."""

from __future__ import annotations

import click

from cleveragents.cli.budget_options import budget_options
from cleveragents.cli.completion import complete_actor, complete_model
from cleveragents.cli.local_only import LocalOption, ServerOption
from cleveragents.cli.output import Output, format_option
from cleveragents.cli.plan.view import commit_option
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.models.model.budget import BudgetLimits

__all__ = ["run"]


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="GOAL | -- ARGUMENTS…")
@click.option(
    "--model",
    metavar="PROVIDER/NAME",
    shell_complete=complete_model,
    help="Model. Default: models.default.",
)
@click.option(
    "--actor",
    shell_complete=complete_actor,
    metavar="NAME_OR_FILE",
    help="Actor for the whole plan, instead of strategist, executor and reviewer.",
)
@budget_options
@click.option("--action", metavar="NAME", help="Run an action instead of a goal; see `agents action list`.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument of the action.")
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="COMMAND",
    help="Command that must pass on the result; may be repeated.",
)
@click.option(
    "--invariant",
    "invariants",
    multiple=True,
    metavar="TEXT",
    help="Rule for the plan: 'never touch migrations/'; may be repeated.",
)
@click.option(
    "--profile", metavar="NAME", help="Profile: what the plan may do without approval. Default: plan.profile."
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["tree", "HEAD"]),
    default="tree",
    show_default=True,
    help="Start from your current files or from the last commit.",
)
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Ignored files to include.",
    cls=LocalOption,
    reason="a server cannot read the files of this machine; pass --server local",
)
@click.option("--goal", metavar="TEXT", help="Purpose of the plan; recorded with it.")
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@commit_option
@click.option(
    "--review", "only_review", is_flag=True, help="Do not apply the result, even if the profile allows it."
)
@click.option(
    "-f", "--file", "file", metavar="FILE", help="File with several goals: one per line, or YAML; - is stdin."
)
@click.option("--parallel", type=click.IntRange(1, 64), metavar="N", help="Maximum number of parallel plans.")
@click.option("--background", is_flag=True, help="Run in the background; follow with `agents plan watch`.")
@click.option(
    "--here",
    is_flag=True,
    help="Run in this terminal, even if a local server could take the plan.",
    cls=LocalOption,
    reason="pass --server local to run the plan in this terminal",
)
@click.option(
    "--resource",
    metavar="NAME",
    help="Resource of the server. Default: the resource of the current repository.",
    cls=ServerOption,
)
@click.option(
    "--to-branch",
    metavar="NAME",
    help="Push the result to this new branch of the server's git remote; {plan} stands for the plan id.",
    cls=ServerOption,
)
@click.option("--plan", "going_on", multiple=True, hidden=True, help="Run existing plans.")
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
    """Run a goal or an action as a plan, in a sandbox.

    Your files do not change until the result is applied. On a terminal you are asked whether to apply it;
    elsewhere the exit code is 3. With --review there is no question, and the exit code is 0: apply the result
    later with `agents plan apply`. If a required check did not pass, the exit code is 3, also with --review.

    \b
    Example:
      agents run "Add a --json flag to the export command" --check "pytest -q" --max-usd 0.50
      agents run "Fix the typos in README.md" --yes --commit
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
    if message and not (words or action or file or going_on):
        raise click.UsageError("missing goal: the text after --commit is its message; write the goal first")
    handling = RunOptions(
        yes, only_review, message, file, parallel, background, here, resource=resource, to_branch=to_branch
    )
    deciding = WorkOptions(client, prefix, output, yes, only_review, message, parallel)
    if going_on:
        if not isinstance(client, LocalClient):
            raise click.UsageError("--plan cannot be used with a server")
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
