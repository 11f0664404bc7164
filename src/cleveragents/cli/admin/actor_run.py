"""`agents actor run`: run one actor on a goal."""

from __future__ import annotations

from collections.abc import Mapping

import click

from cleveragents.actors.model.actor import GIVEN
from cleveragents.cli.budget_options import budget_options
from cleveragents.cli.completion import complete_model
from cleveragents.cli.local_only import LocalCommand
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.json_value import JsonValue
from cleveragents.models.model.budget import BudgetLimits

__all__ = ["run_actor"]

_IN_YOUR_TERMINAL = (
    "an actor without a plan runs in your terminal; run `agents --server local actor run`, or "
    "`agents run --actor` for a plan on the server"
)


@click.command("run", cls=LocalCommand, reason=_IN_YOUR_TERMINAL)
@click.argument("name", metavar="NAME_OR_FILE")
@click.argument("words", nargs=-1, required=True, metavar="GOAL")
@click.option(
    "--model",
    metavar="PROVIDER/NAME",
    shell_complete=complete_model,
    help="Model. Default: models.default.",
)
@click.option("--profile", metavar="NAME", help="Profile. Default: plan.profile.")
@budget_options
@format_option
@pass_session
def run_actor(
    session: Session,
    name: str,
    words: tuple[str, ...],
    model: str | None,
    profile: str | None,
    limits: BudgetLimits,
    output: Output,
) -> None:
    """Run one actor on a goal, in a sandbox of this repository, and show its final state.

    This makes a plan without a strategist and a reviewer. Changes stay in the sandbox until you run
    `agents plan apply`. The actor may be a file that is not saved among your actors; a resume reads it again.
    GOAL `-` reads the goal from stdin.

    \b
    Example:
      agents actor run builtin/reviewer "Is the README right about the options?" --max-tokens 50000
      agents actor run ./careful.yaml "Spell colour the American way"
    """
    from cleveragents.api.client import LocalClient
    from cleveragents.api.plans.create import PlanSpec
    from cleveragents.cli.actor_file import runnable_name
    from cleveragents.cli.plan.view import print_plan
    from cleveragents.cli.plan.work import WorkOptions, decide, work_on
    from cleveragents.cli.run.request import left_for_review, requested_plan

    client = session.client()
    assert isinstance(client, LocalClient)
    container = client.access.container
    parts = container.plan_parts
    wanted = PlanSpec(
        action=None,
        words=words,
        pairs=(),
        checks=(),
        profile=profile,
        from_head=False,
        include=(),
        goal=None,
        commit=False,
        actor=runnable_name(session, name),
        model=model,
        limits=limits,
    )
    plan = client.plans.get(parts.lifecycle.create(left_for_review(requested_plan(parts, wanted))).id)
    deciding = WorkOptions(client, "agents", output, only_review=True)
    try:
        plan = decide(deciding, work_on(deciding, plan, after=None))
    except (click.exceptions.Exit, CleverAgentsError):
        print_plan(output, client.plans.get(plan.id))
        raise
    left = _values(container.jobs.get(str(plan.job)).result)
    if output.machine_readable:
        output.record(
            {"plan": plan.id, "status": plan.status.value, "state": plan.state.value, "values": left}
        )
        return
    print_plan(output, plan)
    if not left:
        progress("the final state is empty")
        return
    output.title("final state")
    output.record(left)


def _values(result: JsonValue) -> Mapping[str, JsonValue]:
    """Return the values of the actor's own keys, without empty values."""
    found = result.get("values") if isinstance(result, Mapping) else None
    values = found if isinstance(found, Mapping) else {}
    return {key: value for key, value in values.items() if key not in GIVEN and value not in ("", (), None)}
