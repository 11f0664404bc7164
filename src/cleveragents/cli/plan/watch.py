"""`agents plan watch`: follow a plan that runs elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.plan.choose import chosen_plan, optional_plan
from cleveragents.cli.session import Session, pass_session
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.api.client import LocalClient
    from cleveragents.api.plans.summary import PlanSummary
    from cleveragents.api.plans.views import PlanView

__all__ = ["watch_plan"]


@click.command("watch")
@optional_plan
@format_option
@pass_session
def watch_plan(session: Session, plan_id: str | None, output: Output) -> None:
    """Follow a plan that runs elsewhere.

    Returns when the plan ends or needs a person, with the exit code of `run`: 3 for a result to review, 75 if
    no worker runs the plan. Ctrl-C ends this command, not the plan. Without PLAN, follow the only
    plan that runs here.

    \b
    Example:
      agents plan watch 7QX2
    """
    from cleveragents.api.client import LocalClient
    from cleveragents.cli.plan.exit_codes import exit_code
    from cleveragents.cli.plan.follow import PlansFollower, current_position
    from cleveragents.cli.plan.view import print_changes, print_next_steps, print_plan, print_reason
    from cleveragents.cli.plan.work import name_of, plans_needing_action
    from cleveragents.cli.servers import prefix_of

    client = session.client()
    after = current_position(client)
    plan = client.plans.get(chosen_plan(client, plan_id, "watch"))
    hint = "Ctrl-C stops watching, not the plan"
    at_it = _Company(client, plan) if isinstance(client, LocalClient) else None
    following = PlansFollower(client, [plan], output, after=after, statuses=True, hint=hint, at_it=at_it)
    try:
        following.say(plan.id, f"plan {plan.id}: {plan.title}")
        (plan,) = following.to_rest()
    except KeyboardInterrupt:
        following.close()
        progress(f"the plan continues; stop it with `{prefix_of(session)} plan cancel {plan.id}`")
        raise
    finally:
        following.close()
    if plan.state.running:
        progress("no worker runs the plan at present")
    elif (plan.phase, plan.state) == (Phase.EXECUTE, PlanState.COMPLETE):
        print_changes(plan)
    elif plan.state is not PlanState.APPLIED:
        print_reason(plan)
    print_next_steps(plan)
    for one in plans_needing_action(client, plan):
        if one.id != plan.id:
            progress(f"sub-plan {one.id} needs you: {name_of(one)}")
            print_reason(one)
            print_next_steps(one)
    print_plan(output, plan)
    code = exit_code(plan)
    if code:
        raise click.exceptions.Exit(code)


class _Company:
    """The processes that continue a plan of this machine: a worker, or a background process.

    If no process has worked on the plan for `worker.lease_seconds`, no process will continue it: a worker
    that is silent for so long counts as dead. Not thread-safe: use it in the thread that made it.
    """

    def __init__(self, client: LocalClient, plan: PlanView) -> None:
        self._container = client.access.container
        self._root = plan.root
        self._alone_since: float | None = None

    def is_kept_by(self, plan: PlanSummary) -> bool:
        """Return whether a living process may continue the plan although none of its jobs runs."""
        from cleveragents.plans.background_logs import is_in_background

        resting = plan.state is PlanState.COMPLETE or plan.waits_for_sub_plans
        return resting and is_in_background(self._container.state_directory, self._root)

    def is_gone(self, plan: PlanView) -> bool:
        """Return whether no process has worked on the plan for a while."""
        from cleveragents.plans.background_logs import is_in_background

        now = self._container.clock.monotonic()
        until = plan.parked_until
        waits = until is not None and until > self._container.clock.now()
        if waits or plan.worked_on or is_in_background(self._container.state_directory, self._root):
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        else:
            return now - self._alone_since > self._container.settings.worker.lease_seconds
        return False
