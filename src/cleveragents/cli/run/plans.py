"""`agents run` after its options are checked: create plans, and run them in the foreground, in the background
or on a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from cleveragents.api.client import HttpClient, LocalClient
from cleveragents.cli.run.goals_file import text_of_stdin
from cleveragents.cli.run.request import left_for_review, with_goal_read

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.plans.create import PlanSpec
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.cli.output import Output
    from cleveragents.cli.plan.follow import StreamPosition
    from cleveragents.cli.plan.work import WorkOptions
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.ports.plans import PlanDraft

__all__ = ["RunOptions", "continue_plans", "run_new"]


class RunOptions(Struct, frozen=True):
    """Where plans run, how many in parallel, and whether their results are applied."""

    yes: bool = False
    only_review: bool = False
    message: str | None = None
    file: str | None = None
    parallel: int | None = None
    background: bool = False
    here: bool = False
    """Whether to run in this terminal although a server would take the plan."""
    typed: str | None = None
    """The text from stdin, if the file of goals is `-`."""
    resource: str | None = None
    to_branch: str | None = None

    def ensure_sound(self, wanted: PlanSpec) -> None:
        """Raise `click.UsageError` for options that exclude each other."""
        if self.yes and self.only_review:
            raise click.UsageError("pass --yes or --review, not both")
        if self.file is not None and (wanted.words or wanted.pairs or wanted.action or wanted.goal):
            raise click.UsageError("-f FILE cannot be combined with a goal or an action; pass one of them")
        if self.one_by_one and self.message is not None:
            raise click.UsageError(
                "--commit needs a single goal; commit later with `agents plan apply PLAN --commit`"
            )

    @property
    def one_by_one(self) -> bool:
        """Whether each goal of the file is a plan of its own, not a part of one plan."""
        from cleveragents.cli.run.goals_file import is_goals_document

        return self.file is not None and not is_goals_document(self.file, self.typed)

    def options(self) -> list[str]:
        """Return the command-line options of `agents run` to pass to a background process."""
        words = ["--yes"] * self.yes + ["--review"] * self.only_review
        words += [] if self.message is None else [f"--commit={self.message}"]
        return words if self.parallel is None else [*words, f"--parallel={self.parallel}"]


def run_new(client: Client, wanted: PlanSpec, handling: RunOptions, deciding: WorkOptions) -> None:
    """Create the plans and run them, here or elsewhere. Exits as `agents run` documents."""
    if handling.file == "-":
        handling = replace(handling, typed=text_of_stdin("the goals on stdin"))
    handling.ensure_sound(wanted)
    if isinstance(client, HttpClient):
        from cleveragents.cli.run.server_run import run_on_server

        run_on_server(client, with_goal_read(wanted), handling, deciding)
        return
    assert isinstance(client, LocalClient)
    container = client.access.container
    if handling.file is None and not handling.here and _handed_over(client, wanted, handling, deciding):
        return
    parts = container.plan_parts
    # Mistakes in the file are reported before the database is opened.
    requests = _requests(container, wanted, handling)
    parts.apply.settle()
    plans = _made(parts, [left_for_review(new) for new in requests] if handling.only_review else requests)
    if handling.background:
        _start(container, plans, handling, deciding.output)
    elif handling.one_by_one:
        _run_many(deciding, plans)
    else:
        _run_one(deciding, plans[0])


def _handed_over(client: LocalClient, wanted: PlanSpec, handling: RunOptions, deciding: WorkOptions) -> bool:
    """Hand the plan to the server of this state directory, if there is one, and watch it. Return whether the
    server took the plan.
    """
    from cleveragents.server.server_file import server_file

    container = client.access.container
    if not server_file(container.state_directory).exists():
        return False
    from cleveragents.cli.plan.follow import current_position
    from cleveragents.cli.run.handover import hand_over, local_server_here, print_handover
    from cleveragents.cli.run.interruption import interrupt_deferred, pause_unfollowed

    local_server = local_server_here(container)
    if local_server is None:
        return False
    after, request = current_position(client), with_goal_read(wanted)
    plan: Plan | None = None
    try:
        with interrupt_deferred():  # a plan that the server runs is known to this command
            plan = hand_over(container, local_server, request, handling)
        if handling.background:
            print_handover(plan, local_server, deciding.output)
        else:
            _run_one(deciding, plan, after)
    except KeyboardInterrupt:
        if plan is not None:
            pause_unfollowed(client, plan.id, deciding.prefix)
        raise
    return True


def continue_plans(client: LocalClient, plan_ids: Sequence[str], deciding: WorkOptions) -> None:
    """Run existing plans, as the background process does."""
    parts = client.access.container.plan_parts
    plans = [parts.lifecycle.resume(parts.plans.get(plan_id)) for plan_id in plan_ids]
    if len(plans) == 1:
        _run_one(deciding, plans[0])
    else:
        _run_many(deciding, plans)


def _requests(container: Container, wanted: PlanSpec, handling: RunOptions) -> list[PlanDraft]:
    from cleveragents.cli.run.goals_file import read_goals, requested_goals
    from cleveragents.cli.run.request import requested_plan

    parts, file = container.plan_parts, handling.file
    if file is None:
        return [requested_plan(parts, wanted)]
    if handling.one_by_one:
        return [
            requested_plan(parts, replace(wanted, words=(goal,))) for goal in read_goals(file, handling.typed)
        ]
    return [requested_goals(container, wanted, file, handling.typed)]


def _made(parts: PlanParts, requests: Sequence[PlanDraft]) -> list[Plan]:
    """Create a plan for each request. Ctrl-C meanwhile cancels all plans that were created."""
    plans: list[Plan] = []
    try:
        plans.extend(parts.lifecycle.create(request) for request in requests)
    except KeyboardInterrupt:
        for plan in plans:
            parts.lifecycle.cancel(plan, "interrupted by the user")
        raise
    return plans


def _start(container: Container, plans: Sequence[Plan], handling: RunOptions, output: Output) -> None:
    from cleveragents.cli.run.background import print_started, start_in_background

    overrides = click.get_current_context().find_root().params.get("overrides", ())
    started = start_in_background(container.state_directory, plans, overrides, handling.options())
    print_started(plans, started, output)


def _run_one(deciding: WorkOptions, plan: Plan, after: StreamPosition | None = None) -> None:
    from cleveragents.cli.plan.view import printed_at_end
    from cleveragents.cli.plan.work import decide, work_on

    with printed_at_end(deciding.client, deciding.output, plan.id) as told:
        made = deciding.client.plans.get(plan.id)
        told.plan = decide(deciding, work_on(deciding, made, after=after))


def _run_many(deciding: WorkOptions, plans: Sequence[Plan]) -> None:
    from cleveragents.cli.run.batch import run_many

    run_many(deciding, plans)
